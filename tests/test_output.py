import io
import os
import stat
from pathlib import Path

import pytest

from isotropy.errors import SettingError
from isotropy.output import progress_bars, reserved


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_writes_all_of_it_under_the_name(tmp_path: Path) -> None:
    with reserved(str(tmp_path / "a.json")) as write:
        write("σ\n")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "σ\n"
    assert names(tmp_path) == ["a.json"]


def test_leaves_the_old_file_and_no_other_when_the_work_fails(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("old")

    def work() -> None:
        with reserved(str(tmp_path / "a.json")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert names(tmp_path) == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "old"


def test_gives_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with reserved(str(tmp_path / "a.json")) as write:
        write("")
    mode = stat.S_IMODE((tmp_path / "a.json").stat().st_mode)
    assert mode == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with reserved(str(tmp_path / "link")) as write:
        write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


def test_does_not_replace_a_device() -> None:
    with reserved(os.devnull) as write:
        write("gone")
    assert not Path(os.devnull).is_file()


def test_never_replaces_the_source(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "a.npy").write_text("rows")
    (tmp_path / "link").symlink_to(tmp_path / "shards" / "a.npy")
    for path, source in (
        ("shards/a.npy", "shards/a.npy"),
        ("link", "shards/a.npy"),
        ("shards/a.npy", "shards"),
        ("shards/new.json", "shards"),
    ):
        with (
            pytest.raises(SettingError, match="is the source or would be among its files"),
            reserved(str(tmp_path / path), source=tmp_path / source),
        ):
            pass
    assert names(tmp_path / "shards") == ["a.npy"]
    with reserved(str(tmp_path / "b.json"), source=tmp_path / "shards") as write:
        write("")


def test_without_a_path_nothing_is_written() -> None:
    with reserved(None) as write:
        write("nowhere")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing/a.json", "No such file or directory"),
        ("", "it is a folder"),
        ("file/a.json", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "null byte"),
    ],
)
def test_says_at_once_what_cannot_be_written(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SettingError, match=f"cannot be written .*{reason}"),
        reserved(f"{tmp_path}/{name}"),
    ):
        pytest.fail("the work began")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_to_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    with progress_bars() as progress:
        progress("reading", 3, 10)
    assert file.getvalue() == ""


def test_progress_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bars(show=False) as progress:
        progress("reading", 3, 10)
    assert terminal.getvalue() == ""


def test_progress_shows_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bars() as progress:
        progress("reading", 0, None)
        progress("reading", 3, 10)
        progress("neighbours [1]", 10, 10)
    assert "reading" in terminal.getvalue()
    assert "neighbours [1]" in terminal.getvalue()
    assert "10/10" in terminal.getvalue()
