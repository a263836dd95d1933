"""Damaged files of every format are refused in one line, or read: never a crash, never a hang."""

import io
import json
import random
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save as save_safetensors

from isotropy.errors import IsotropyError, SourceError
from isotropy.sources import open_source
from isotropy.sources._texts import Texts

X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
WORDS = [f"word {i % 3}" for i in range(12)]
TENSORS = {"x": torch.from_numpy(X), "label": torch.arange(12)}
SECONDS = 20  # for one file of less than 5 kB


def written(save: Callable[[io.BytesIO], Any]) -> bytes:
    stream = io.BytesIO()
    save(stream)
    return stream.getvalue()


def parquet(compression: str, checksum: bool, **columns: Any) -> bytes:
    settings: dict[str, Any] = {"compression": compression, "write_page_checksum": checksum}
    return written(lambda file: pq.write_table(pa.table(columns), file, **settings))


def cells(mark: str, head: list[str], rows: list[list[Any]]) -> bytes:
    return "".join(mark.join(map(str, row)) + "\n" for row in [head, *rows]).encode()


LISTS = pa.array(X.tolist(), pa.list_(pa.float32()))
FIXED = pa.FixedSizeListArray.from_arrays(X.ravel(), 3)
LABELS = np.array(WORDS)

# The files and their endings.
FILES: dict[str, tuple[str, bytes]] = {
    "npy": (".npy", written(lambda file: np.save(file, X))),
    "npz": (".npz", written(lambda file: np.savez(file, x=X, label=LABELS))),
    "npz-compressed": (".npz", written(lambda f: np.savez_compressed(f, x=X, label=LABELS))),
    "npz-fortran": (
        ".npz",
        written(lambda file: np.savez_compressed(file, x=np.asfortranarray(X), label=LABELS)),
    ),
    "safetensors": (".safetensors", save_safetensors(TENSORS)),
    "parquet-lists": (".parquet", parquet("none", False, x=LISTS, label=WORDS)),
    "parquet-fixed": (
        ".parquet",
        parquet("snappy", False, x=FIXED, label=pa.array(WORDS).dictionary_encode()),
    ),
    "parquet-wide": (".parquet", parquet("zstd", True, x_0=X[:, 0], x_1=X[:, 1], label=WORDS)),
    "jsonl": (
        ".jsonl",
        "".join(
            json.dumps({"x": row, "label": word, "n": i}) + "\n"
            for i, (row, word) in enumerate(zip(X.tolist(), WORDS, strict=True))
        ).encode(),
    ),
    "csv": (
        ".csv",
        cells(",", ["x_0", "x_1", "n", "label"], [[*row, '"a, b"'] for row in X.tolist()]),
    ),
    "tsv": (
        ".tsv",
        cells("\t", ["v", "label"], [*map(list, zip(X.tolist(), WORDS, strict=True))]),
    ),
    "pt": (".pt", written(lambda file: torch.save({**TENSORS, "words": WORDS}, file))),
    "pt-tensor": (".pt", written(lambda file: torch.save(TENSORS["x"], file))),
    "pt-old": (
        ".pt",
        written(lambda f: torch.save(TENSORS, f, _use_new_zipfile_serialization=False)),
    ),
}


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with something changed, cut, left out or put in."""
    found = bytearray(content)
    at = draw.randrange(len(found))
    some = draw.randrange(1, 20)
    match draw.randrange(6):
        case 0:
            found[at] ^= 1 << draw.randrange(8)
        case 1:
            for _ in range(some):
                found[draw.randrange(len(found))] = draw.randrange(256)
        case 2:
            del found[at:]
        case 3:
            del found[at : at + some]
        case 4:
            found[at:at] = draw.randbytes(some)
        case 5:
            end = min(at + some, len(found))
            found[at:end] = bytes([draw.choice([0, 127, 128, 255])]) * (end - at)
    return bytes(found)


def read_through(path: Path) -> None:
    """Read a file with all its columns and check that the chunks fit what the header said."""
    source = open_source(path)
    rows = 0
    for chunk in source.chunks(5, source.columns):
        k = len(chunk.rows)
        assert chunk.start == rows
        assert tuple(chunk.rows.shape) == (k, source.features)
        assert 0 < k <= 5
        assert [len(values) for values in chunk.columns.values()] == [k] * len(source.columns)
        rows += k
    assert source.n_rows in (None, rows)


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """An alarm, which `refused_or_read` sets for each file."""

    def ring(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"still reading after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refused_or_read(path: Path, read: Callable[[Path], object]) -> bool:
    """Whether it was refused; then the message is one line that a terminal can show."""
    signal.alarm(SECONDS)
    try:
        read(path)
    except IsotropyError as error:
        message = str(error)
        assert message.startswith("got ")
        assert "expected" in message
        assert message.isprintable()
        assert len(message) < 900
        return True
    return False


def check(kind: str, folder: Path, count: int, seed: int) -> None:
    ending, content = FILES[kind]
    path = folder / f"x{ending}"
    path.write_bytes(content)
    read_through(path)
    draw = random.Random(f"{kind} {seed}")
    refused = 0
    for i in range(count):
        path.write_bytes(damaged(content, draw))
        try:
            refused += refused_or_read(path, read_through)
        except Exception as error:
            error.add_note(f"variant {i} of {kind} with seed {seed}")
            raise
    # Neither is everything read, nor is every change noticed where there is no checksum.
    assert 0.3 * count < refused < count


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path, 60, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("kind", FILES)
def test_many_damaged_files(kind: str, seed: int, tmp_path: Path) -> None:
    check(kind, tmp_path, 1000, seed)


@pytest.mark.parametrize("kind", ["npz", "npz-compressed", "npz-fortran"])
def test_an_archive_notices_every_changed_value(kind: str, tmp_path: Path) -> None:
    content = FILES[kind][1]
    path = tmp_path / "x.npz"
    draw = random.Random(0)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
    for member in members:
        # The local header has 30 bytes, the name and an extra field of a length that it tells.
        extra = int.from_bytes(content[member.header_offset + 28 :][:2], "little")
        start = member.header_offset + 30 + len(member.filename) + extra
        for _ in range(60):
            changed = bytearray(content)
            changed[start + draw.randrange(member.compress_size)] ^= 1 << draw.randrange(8)
            path.write_bytes(changed)
            with pytest.raises(IsotropyError):
                read_through(path)


TEXTS = ["a cat", "", "naïve — 日本語", 'a "quoted", text']
TEXT_FILES: dict[str, bytes] = {
    ".txt": "\n".join(TEXTS).encode(),
    ".jsonl": "".join(json.dumps({"text": text, "n": 1}) + "\n" for text in TEXTS).encode(),
    ".csv": b'text,n\na cat,1\n"two\nlines",2\n"a ""quoted"", text",3\n',
    ".parquet": parquet("none", False, text=TEXTS, n=[1, 2, 3, 4]),
}


@pytest.mark.parametrize("ending", TEXT_FILES)
def test_a_damaged_text_file(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"text{ending}"
    draw = random.Random(ending)

    def read(path: Path) -> None:
        texts = Texts(path)
        count = texts.count()
        found = list(texts)
        assert all(isinstance(text, str) for _, text in found)
        assert count in (None, len(found))

    refused = 0
    for _ in range(300):
        path.write_bytes(damaged(TEXT_FILES[ending], draw))
        refused += refused_or_read(path, read)
    assert refused > 30


def npy_header(shape: str, fortran: bool = False) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': {fortran}, 'shape': {shape}}}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.encode().ljust(117) + b"\n"


@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("shape", [(1 << 40, 2), (2, 1 << 40), (10**20, 2), (2, 10**20)])
def test_a_header_cannot_ask_for_memory(
    shape: tuple[int, int], fortran: bool, tmp_path: Path
) -> None:
    header = npy_header(str(shape), fortran)
    (tmp_path / "x.npy").write_bytes(header + bytes(64))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", header + bytes(64))
    described = {"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 64]}}
    text = json.dumps(described).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(64)
    (tmp_path / "x.safetensors").write_bytes(content)
    for path in tmp_path.iterdir():
        with pytest.raises(SourceError, match=r"truncated \(192 of \d+ bytes\)|as safetensors"):
            read_through(path)


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        (".jsonl", b"[" + b"1," * (1 << 19)),
        (".csv", b"1," * (1 << 19)),
        (".tsv", b"1\t" * (1 << 19)),
        (".csv", b'"' + b"1,2\n" * (1 << 18)),  # a quote that is never closed
        (".tsv", b'"' + b"1\t2\n" * (1 << 18)),
    ],
)
def test_a_row_without_an_end_does_not_fill_the_memory(
    ending: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("_lines", "_csv"):
        monkeypatch.setattr(f"isotropy.sources.{module}.LONGEST_LINE", 1 << 16)
    path = tmp_path / f"x{ending}"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"more than 0 MiB in line 1|limit \(65536\)"):
        open_source(path, format=ending[1:])
