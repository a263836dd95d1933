"""Transforms as files, and files that are no transforms."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import isotropy
from isotropy import transforms
from isotropy.errors import SettingError, SourceError


@pytest.fixture
def saved(rng: np.random.Generator, tmp_path: Path) -> Path:
    path = tmp_path / "t.safetensors"
    transforms.Whitening(k=3).fit(rng.normal(size=(50, 5))).save(path)
    return path


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="np") as file:
        found: dict[str, str] = file.metadata()
    return found


def test_a_file_says_what_it_holds(saved: Path) -> None:
    said = metadata(saved)
    assert said["isotropy_transform"] == "Whitening"
    assert said["isotropy_version"] == isotropy.__version__
    assert said["isotropy_format"] == "1"
    settings = {"k": 3, "method": "pca", "shrinkage": 0.0, "floor": 1e-6}
    assert json.loads(said["settings"]) == settings


def test_any_transform_is_loaded_by_its_own_name(saved: Path) -> None:
    assert repr(transforms.load(saved)) == "Whitening(k=3)"
    with pytest.raises(SourceError, match="holds a transform of kind 'Whitening', expected Stand"):
        transforms.Standardize.load(saved)


def test_settings_of_numpy_and_names_of_features(tmp_path: Path, rng: np.random.Generator) -> None:
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    path = tmp_path / "t.safetensors"
    transforms.Whitening(k=np.int64(2), shrinkage=np.float64(0.5)).fit(x).save(path)
    loaded = transforms.load(path)
    assert loaded.feature_names_in_.tolist() == ["a", "b"]
    assert (loaded.k, loaded.shrinkage) == (2, 0.5)


def rewritten(path: Path, **changes: str) -> Path:
    save_file(load_file(path), path, metadata(path) | changes)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"isotropy_format": "2"}, "in format '2' .* update isotropy"),
        ({"isotropy_transform": "Bleaching"}, "kind 'Bleaching', expected AllButTheTop, Cl"),
        ({"settings": "{"}, "whose content makes no transform"),
        ({"settings": '{"kk": 3}'}, "whose content makes no transform .*kk"),
        ({"settings": '{"k": -3}'}, "whose content makes no transform .*k=-3"),
        ({"features": "4"}, "whose content makes no transform"),
        ({"features": "many"}, "whose content makes no transform"),
    ],
)
def test_metadata_that_make_no_sense(saved: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        transforms.load(rewritten(saved, **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arrays",
    [
        {"mean_": np.zeros(5)},
        {"mean_": np.zeros(5), "components_": np.zeros((3, 4)), "variances_": np.ones(3)},
        {"mean_": np.full(5, np.nan), "components_": np.zeros((3, 5)), "variances_": np.ones(3)},
        {"mean_": np.zeros(5), "components_": np.zeros((3, 5)), "variances_": np.ones(2)},
        {"mean_": np.zeros(()), "components_": np.zeros((3, 5)), "variances_": np.ones((3, 1, 1))},
    ],
    ids=["missing", "shapes", "nan", "lengths", "dimensions"],
)
def test_arrays_that_make_no_sense(saved: Path, arrays: dict[str, np.ndarray]) -> None:
    save_file(arrays, saved, metadata(saved))
    with pytest.raises(SourceError, match="whose content makes no transform"):
        transforms.load(saved)


def test_files_that_are_something_else(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    saved.write_bytes(whole[:-7])
    with pytest.raises(SourceError, match="truncated, corrupt or something else"):
        transforms.load(saved)
    saved.write_bytes(b"not this")
    with pytest.raises(SourceError, match="cannot be read as safetensors"):
        transforms.load(saved)
    save_file({"embeddings": np.eye(3)}, saved)
    with pytest.raises(SourceError, match="a safetensors file that holds no transform"):
        transforms.load(saved)
    with pytest.raises(SourceError, match="expected an existing file"):
        transforms.load(tmp_path / "none.safetensors")
    with pytest.raises(SourceError, match="which is a folder"):
        transforms.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("t.npy", "expected a name that ends in .safetensors"),
        ("none/t.safetensors", "expected a folder .* that exists"),
        ("folder.safetensors", "which is a folder"),
    ],
)
def test_where_nothing_can_be_written(
    name: str, message: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    (tmp_path / "folder.safetensors").mkdir()
    fitted = transforms.Standardize().fit(rng.normal(size=(9, 2)))
    with pytest.raises(SettingError, match=message):
        fitted.save(tmp_path / name)


def test_a_full_disk_leaves_the_old_file(
    saved: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SettingError, match="No space left"):
        transforms.Standardize().fit(rng.normal(size=(9, 2))).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
