"""Every kind of bad input that we know of: one clear error of one line, and nothing is executed."""

import io
import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import isotropy
from isotropy.errors import InputError, IsotropyError, SettingError, SourceError, UndefinedError
from isotropy.measures import iso_score
from isotropy.sources import open_source

EXECUTED = Path("executed")  # in the working directory, which is the test's own folder


class Malice:
    """Creates a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (EXECUTED,)


def cloud(n: int = 12, d: int = 3) -> Any:
    return np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)


def with_value(value: float, row: int = 7) -> Any:
    x = cloud()
    x[row, 1] = value
    return x


# ---------------------------------------------------------------------------- arrays in memory

ARRAYS: dict[str, tuple[Callable[[], Any], type[IsotropyError], str]] = {
    "no-rows": (lambda: np.empty((0, 3)), InputError, r"got an empty cloud \(0 rows\)"),
    "one-row": (lambda: cloud(1), InputError, "got x with 1 row, expected at least 2 rows"),
    "no-features": (lambda: np.empty((4, 0)), InputError, r"\(4, 0\), .* at least 2 features"),
    "one-feature": (lambda: cloud(5, 1), InputError, r"shape \(5, 1\), .* at least 2 features"),
    "scalar": (lambda: np.array(1.0), InputError, r"shape \(\), expected two dimensions"),
    "one-dimension": (lambda: np.ones(5), InputError, r"shape \(5,\), expected two dimensions"),
    "three-dimensions": (lambda: np.ones((2, 3, 4)), InputError, r"\(2, 3, 4\), expected two"),
    "integers": (lambda: np.ones((4, 3), int), InputError, "dtype int64, expected float16"),
    "booleans": (lambda: np.ones((4, 3), bool), InputError, "dtype bool, expected float16"),
    "complex": (lambda: np.ones((4, 3), complex), InputError, "dtype complex128, expected float16"),
    "text": (lambda: np.full((4, 3), "a"), InputError, "dtype str32, expected float16"),
    "objects": (lambda: np.full((4, 3), 1.0, object), InputError, "dtype object, expected float16"),
    "long-double": (lambda: np.ones((4, 3), np.longdouble), InputError, "expected float16"),
    "list": (lambda: [[1.0, 2.0], [3.0, 4.0]], InputError, "of type list, expected a torch tensor"),
    "none": (lambda: None, InputError, "of type NoneType, expected a torch tensor"),
    "path": (lambda: Path("x.npy"), InputError, "files and folders are read by isotropy.measure"),
    "nan": (lambda: with_value(np.nan), InputError, "1 NaN or infinite value, the first in row 7"),
    "infinity": (lambda: with_value(np.inf, 0), InputError, "1 NaN or .* the first in row 0"),
    "all-nan": (lambda: np.full((4, 3), np.nan), InputError, "12 NaN or infinite values"),
    "equal-rows": (lambda: np.ones((4, 3)), UndefinedError, "got x with 4 equal rows"),
    "integer-tensor": (lambda: torch.ones(4, 3).int(), InputError, "dtype int32, expected float16"),
    "sparse-tensor": (lambda: torch.eye(4).to_sparse(), InputError, "layout sparse_coo"),
    "float8-tensor": (
        lambda: torch.ones(4, 3).to(torch.float8_e4m3fn),
        InputError,
        "dtype float8_e4m3fn, expected float16",
    ),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_measure_refuses(kind: str) -> None:
    make, error, match = ARRAYS[kind]
    with pytest.raises(error, match=match) as caught:
        iso_score(make())
    check_message(caught.value, error)


# ---------------------------------------------------------- files, folders, standard input, names


@dataclass(frozen=True)
class Bad:
    """A bad source: what writes it into a folder and returns it, and the error it gives."""

    make: Callable[[Path], Any]
    match: str
    error: type[IsotropyError] = SourceError
    key: str | None = None
    format: str | None = None
    by: str | None = None


def file(name: str, content: bytes | str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def npy_bytes(x: Any, **settings: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, x, **settings)
    return stream.getvalue()


def npz_bytes(compressed: bool = False, /, **arrays: Any) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def safetensors_bytes(**tensors: torch.Tensor) -> bytes:
    from safetensors.torch import save

    return save(tensors)


def parquet_bytes(compression: str = "none", **columns: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, compression=compression)
    return stream.getvalue()


def pt_bytes(content: Any, **settings: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream, **settings)
    return stream.getvalue()


def lists(*rows: Any, type_: Any = None) -> Any:
    return pa.array(list(rows), type=type_ or pa.list_(pa.float32()))


def jsonl(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def npy(name: str, x: Any, **settings: Any) -> Callable[[Path], Path]:
    return file(name, npy_bytes(x, **settings))


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


def folder_of(**files: bytes | str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        for name, content in files.items():
            file(f"shards/{name.replace('__', '.')}", content)(folder)
        return folder / "shards"

    return make


def npy_header(text: str) -> bytes:
    body = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "x.npy")
    return folder / "x.npy"


def broken_link(folder: Path) -> Path:
    (folder / "x.npy").symlink_to(folder / "gone.npy")
    return folder / "x.npy"


def loop_of_links(folder: Path) -> Path:
    (folder / "x.npy").symlink_to(folder / "x.npy")
    return folder / "x.npy"


def near_name(folder: Path) -> Path:
    file("embeddings.npy", b"")(folder)
    return folder / "embedings.npy"


def shard_gone(folder: Path) -> Any:
    """A folder of which a shard is removed after it was opened."""
    path = folder_of(a__npy=npy_bytes(cloud()), b__npy=npy_bytes(cloud()))(folder)
    source = open_source(path)
    (path / "b.npy").unlink()
    return source


def shorter(name: str, content: bytes) -> Callable[[Path], Any]:
    """A file that loses its end after it was opened."""

    def make(folder: Path) -> Any:
        path = file(name, content)(folder)
        source = open_source(path)
        os.truncate(path, len(content) - 20)
        return source

    return make


def quantized() -> torch.Tensor:
    with warnings.catch_warnings():  # torch will do without them one day
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.randn(4, 3), 0.1, 0, torch.qint8)


def encrypted_npz() -> bytes:
    content = bytearray(npz_bytes(x=cloud()))
    for mark, at in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        content[content.index(mark) + at] |= 1
    return bytes(content)


X = cloud()
T = torch.from_numpy(X)
NPY, NPZ, PT = npy_bytes(X), npz_bytes(x=X), pt_bytes(T)
NPZ_SMALL = npz_bytes(True, x=X)
SAFE = safetensors_bytes(x=T)
PARQUET = parquet_bytes(x=lists(*X.tolist()))
MIXED = {"a__npy": NPY, "b__npy": npy_bytes(cloud(d=4))}

BAD: dict[str, Bad] = {
    # --- what is given
    "source-list": Bad(lambda _: [[1.0, 2.0]], "type list, expected an array", InputError),
    "source-none": Bad(lambda _: None, "type NoneType, expected an array", InputError),
    "source-number": Bad(lambda _: 5, "type int, expected an array", InputError),
    "masked-array": Bad(lambda _: np.ma.masked_array(X), "got array with a mask", InputError),
    "array-empty": Bad(lambda _: X[:0], r"got an empty array \(0 rows\)", InputError),
    "array-integers": Bad(lambda _: X.astype(int), "got array with dtype int64", InputError),
    "array-objects": Bad(lambda _: X.astype(object), "got array with dtype object", InputError),
    "array-records": Bad(
        lambda _: np.zeros(4, [("a", "f4")]), "got array with dtype of records", InputError
    ),
    "array-1d": Bad(lambda _: X[0], r"got array with shape \(3,\), expected two", InputError),
    "array-key": Bad(lambda _: X, "got key='x' for the array", SettingError, key="x"),
    "array-format": Bad(lambda _: X, "format='npy' for the array", SettingError, format="npy"),
    "array-column": Bad(
        lambda _: X, "got column 'label', .* there is no column to choose", by="label"
    ),
    "tensor-sparse": Bad(lambda _: T.to_sparse(), "with layout sparse_coo", InputError),
    "tensor-quantized": Bad(lambda _: quantized(), r"qint8, .* x\.dequantize\(\)", InputError),
    "tensor-meta": Bad(lambda _: T.to("meta"), "got tensor on the meta device", InputError),
    "tensor-complex": Bad(lambda _: T + 1j, "dtype complex64", InputError),
    "tensor-3d": Bad(lambda _: T[None], r"shape \(1, 12, 3\), expected two", InputError),
    "address": Bad(lambda _: "s3://bucket/x.npy", "got the address 's3://.*download it first"),
    "path-empty": Bad(lambda _: "", "got the path '', expected the path of a file"),
    "path-with-nul": Bad(lambda _: "x\0.npy", r"got the path 'x\\x00.npy'"),
    "path-too-long": Bad(lambda _: "x" * 5000, "File name too long"),
    "format-unknown": Bad(
        npy("x.npy", X), "'parket', .* did you mean 'parquet'", SettingError, format="parket"
    ),
    "path-of-two-lines": Bad(lambda f: f / "a\nb.npy", r"a\\nb\.npy', expected an existing file"),
    # --- values
    "nan-in-a-file": Bad(
        npy("x.npy", with_value(np.nan)), "1 NaN .* the first in row 7", InputError
    ),
    "nan-in-a-later-shard": Bad(
        folder_of(a__npy=NPY, b__npy=npy_bytes(with_value(np.nan, 3))),
        "1 NaN .* the first in row 15",
        InputError,
    ),
    "infinity-in-text": Bad(
        file("x.csv", "x_0,x_1\n1,2\n3,-inf\n"), "1 NaN .* the first in row 1", InputError
    ),
    "equal-rows-in-a-file": Bad(npy("x.npy", np.ones((4, 3))), "4 equal rows", UndefinedError),
    "one-row-in-a-file": Bad(npy("x.npy", X[:1]), "with 1 row, expected at least 2", InputError),
    # --- the file system
    "missing": Bad(lambda f: f / "x.npy", r"x\.npy, expected an existing file; check its name"),
    "missing-near": Bad(near_name, r"did you mean 'embeddings\.npy'\?"),
    "missing-folder": Bad(lambda f: f / "no" / "x.npy", "there is no folder '.*no'"),
    "below-a-file": Bad(lambda f: npy("a", X)(f) / "x.npy", "expected an existing file"),
    "broken-link": Bad(broken_link, r"a link to '.*gone\.npy', which does not exist"),
    "loop-of-links": Bad(loop_of_links, "Too many levels of symbolic links"),
    "pipe": Bad(fifo, "is a pipe or a device, .* pipe it into standard input"),
    "device": Bad(lambda _: "/dev/null", "/dev/null, which is a pipe or a device"),
    "empty-file": Bad(file("x.npy", b""), r"which is empty \(0 bytes\)"),
    # --- endings
    "no-ending": Bad(file("x", NPY), r"in unknown format, .* a \.npy file: pass format='npy'"),
    "unknown-ending": Bad(file("x.dat", b"\x01\x02"), r"'\.dat' is unknown, .* name its format"),
    "pickle": Bad(file("x.pkl", pickle.dumps(Malice())), "a Python pickle: a pickle can run code"),
    "hdf5": Bad(file("x.h5", b"\x89HDF\r\n\x1a\n"), "it looks like an HDF5 file"),
    "feather": Bad(file("x.feather", b"ARROW1\0\0"), r"it looks like an Arrow \(Feather\) file"),
    "gzip": Bad(file("x.csv.gz", b"\x1f\x8b\x08\0"), "compressed with gzip: decompress it first"),
    "zip": Bad(file("x.npz", b"PK\x03\x04junk"), "looks like a damaged zip archive"),
    "npz-as-npy": Bad(file("x.npy", NPZ), r"looks like a \.npz archive, .* pass format='npz'"),
    "npy-as-safetensors": Bad(file("x.safetensors", NPY), r"looks like a \.npy file"),
    "safetensors-as-parquet": Bad(file("x.parquet", SAFE), "looks like a safetensors file"),
    "parquet-as-csv": Bad(file("x.csv", PARQUET), "looks like a Parquet file"),
    "pt-as-npz": Bad(file("x.npz", PT), r"looks like a file of torch\.save"),
    "csv-as-jsonl": Bad(file("x.jsonl", "a,b\n1,2\n"), "looks like comma-separated or plain text"),
    "jsonl-as-csv": Bad(file("x.csv", '{"x": [1, 2]}\n'), "looks like JSON objects"),
    "wrong-format": Bad(file("x.npy", NPY), r"looks like a \.npy file", format="parquet"),
    # --- .npy
    "npy-not": Bad(file("x.npy", b"\x00" * 99), r"cannot be read as a \.npy file \(the magic"),
    "npy-magic-only": Bad(file("x.npy", NPY[:7]), r"cannot be read as a \.npy file \(EOF"),
    "npy-header-cut": Bad(file("x.npy", NPY[:60]), r"cannot be read as a \.npy file \(EOF"),
    "npy-header-corrupt": Bad(
        file("x.npy", NPY[:20] + b"\xff" * 40 + NPY[60:]), r"cannot be read as a \.npy file"
    ),
    "npy-version": Bad(file("x.npy", flipped(NPY, 6)), r"version 254\.0, not 1\.0 or 2\.0"),
    "npy-negative-shape": Bad(
        file("x.npy", npy_header("{'descr':'<f4','fortran_order':False,'shape':(-1,3)}")),
        r"shape \(-1, 3\)",
    ),
    "npy-code-in-header": Bad(
        file("x.npy", npy_header("__import__('pathlib').Path('executed').touch()")),
        r"cannot be read as a \.npy file",
    ),
    "npy-truncated": Bad(file("x.npy", NPY[:-50]), r"is truncated \(222 of 272 bytes\)"),
    "npy-too-long": Bad(file("x.npy", NPY + NPY), "272 bytes after its array"),
    "npy-cut-later": Bad(shorter("x.npy", NPY), r"x\.npy, which is truncated \(it ends early\)"),
    "npy-objects": Bad(
        npy("x.npy", np.full(3, Malice(), object), allow_pickle=True),
        "dtype object, .* objects are refused, as loading them can run code",
        InputError,
    ),
    "npy-ragged": Bad(
        npy("x.npy", np.array([[1.0], [1.0, 2.0]], object)), "dtype object", InputError
    ),
    "npy-integers": Bad(npy("x.npy", X.astype(int)), r"x\.npy with dtype int64", InputError),
    "npy-complex": Bad(npy("x.npy", X + 1j), r"x\.npy with dtype complex64", InputError),
    "npy-text": Bad(npy("x.npy", np.full((3, 2), "ab")), r"x\.npy with dtype str", InputError),
    "npy-1d": Bad(npy("x.npy", X[0]), r"x\.npy with shape \(3,\), expected two", InputError),
    "npy-3d": Bad(npy("x.npy", X[None]), r"x\.npy with shape \(1, 12, 3\), expected", InputError),
    "npy-one-feature": Bad(npy("x.npy", X[:, :1]), r"\(12, 1\), .* 2 features", InputError),
    "npy-no-rows": Bad(npy("x.npy", X[:0]), r"x\.npy with 0 rows"),
    "npy-key": Bad(npy("x.npy", X), "got key='x' for .* one array", SettingError, key="x"),
    # --- .npz
    "npz-empty": Bad(file("x.npz", npz_bytes()), "without any array"),
    "npz-truncated": Bad(file("x.npz", NPZ[:-60]), "looks like a damaged zip archive"),
    "npz-values-corrupt": Bad(file("x.npz", flipped(NPZ, 200)), "Bad CRC-32"),
    "npz-compressed-corrupt": Bad(
        file("x.npz", flipped(NPZ_SMALL, 150)), r"cannot be read as a \.npz archive"
    ),
    "npz-encrypted": Bad(file("x.npz", encrypted_npz()), "is encrypted"),
    "npz-ambiguous": Bad(
        file("x.npz", npz_bytes(a=X, b=X)), r"2 arrays that could be .*\(--key .*\): 'a', 'b'"
    ),
    "npz-no-2d": Bad(
        file("x.npz", npz_bytes(a=X[0], b=X[1])), "with the arrays 'a', 'b', expected a two-dim"
    ),
    "npz-integers": Bad(
        file("x.npz", npz_bytes(x=X.astype(int), y=X[0])), "expected a two-dimensional one"
    ),
    "npz-integers-named-embeddings": Bad(
        file("x.npz", npz_bytes(embeddings=X.astype(np.int8), logits=X)),
        r"\(array 'embeddings'\) with dtype int8",
        InputError,
    ),
    "npz-only-integers": Bad(file("x.npz", npz_bytes(x=X.astype(int))), "int64", InputError),
    "npz-objects": Bad(
        file("x.npz", npz_bytes(x=np.full(3, Malice(), object))), "dtype object", InputError
    ),
    "npz-unknown-key": Bad(
        file("x.npz", npz_bytes(train=X, test=X)),
        "got key 'tran', .* did you mean 'train'",
        key="tran",
    ),
    "npz-key-1d": Bad(
        file("x.npz", npz_bytes(x=X, y=X[0])), r"\(array 'y'\) with shape", InputError, key="y"
    ),
    "npz-unknown-column": Bad(
        file("x.npz", npz_bytes(x=X, label=np.arange(12))),
        "got column 'lable', .* did you mean 'label'",
        by="lable",
    ),
    "npz-column-of-other-length": Bad(
        file("x.npz", npz_bytes(x=X, label=np.arange(11))), "got column 'label'", by="label"
    ),
    # --- .safetensors
    "safetensors-not": Bad(file("x.safetensors", b"\xff" * 99), "cannot be read as safetensors"),
    "safetensors-header-cut": Bad(file("x.safetensors", SAFE[:40]), "cannot be read as safetens"),
    "safetensors-header-corrupt": Bad(
        file("x.safetensors", SAFE[:8] + b"}" * 40 + SAFE[48:]), "cannot be read as safetensors"
    ),
    "safetensors-truncated": Bad(
        file("x.safetensors", SAFE[:-50]), "cannot be read as safetensors .*truncated"
    ),
    "safetensors-too-long": Bad(file("x.safetensors", SAFE + b"1"), "cannot be read as safeten"),
    "safetensors-cut-later": Bad(shorter("x.safetensors", SAFE), r"is truncated \(it ends early"),
    "safetensors-no-tensor": Bad(file("x.safetensors", safetensors_bytes()), "without any array"),
    "safetensors-ambiguous": Bad(
        file("x.safetensors", safetensors_bytes(a=T, b=T + 1)), "2 arrays that could be the embed"
    ),
    "safetensors-integers": Bad(
        file("x.safetensors", safetensors_bytes(x=T.int())), "dtype I32, expected", InputError
    ),
    "safetensors-3d": Bad(
        file("x.safetensors", safetensors_bytes(x=T[None])), r"shape \(1, 12, 3\)", InputError
    ),
    "safetensors-no-rows": Bad(file("x.safetensors", safetensors_bytes(x=T[:0])), "with 0 rows"),
    # --- .pt
    "pt-malicious": Bad(file("x.pt", pt_bytes({"x": Malice()})), "Python objects other than tens"),
    "pt-old-malicious": Bad(
        file("x.pt", pt_bytes({"x": Malice()}, _use_new_zipfile_serialization=False)),
        "Python objects other than tensors, .* refused",
    ),
    "pt-is-a-pickle": Bad(
        file("x.pt", pickle.dumps(Malice())), "looks like a Python pickle, .* can run code"
    ),
    "pt-numpy": Bad(file("x.pt", pt_bytes(X)), "Python objects other than tensors"),
    "pt-module": Bad(file("x.pt", pt_bytes(torch.nn.Linear(2, 2))), "Python objects other than"),
    "pt-number": Bad(file("x.pt", pt_bytes(5)), "of type int, expected a tensor or a dict"),
    "pt-list": Bad(file("x.pt", pt_bytes([T])), "of type list, expected a tensor or a dict"),
    "pt-empty-dict": Bad(file("x.pt", pt_bytes({})), "without any array"),
    "pt-truncated": Bad(file("x.pt", PT[:-99]), "looks like a damaged zip archive"),
    "pt-old-truncated": Bad(
        file("x.pt", pt_bytes(T, _use_new_zipfile_serialization=False)[:-20]),
        r"cannot be read as a file of torch\.save",
    ),
    "pt-corrupt": Bad(
        file("x.pt", PT.replace(b"_rebuild_tensor", b"_rebuild_\xff\xfe\xfdsor")),
        r"cannot be read as a file of torch\.save|Python objects other than tensors",
    ),
    "pt-text": Bad(file("x.pt", "hello"), "looks like comma-separated or plain text"),
    "pt-sparse": Bad(file("x.pt", pt_bytes(T.to_sparse())), "layout sparse_coo", InputError),
    "pt-integers": Bad(file("x.pt", pt_bytes(T.int())), "dtype int32", InputError),
    "pt-1d": Bad(file("x.pt", pt_bytes(T[0])), r"shape \(3,\)", InputError),
    "pt-unknown-key": Bad(file("x.pt", pt_bytes({"x": T})), "got key 'y'", key="y"),
    # --- .parquet
    "parquet-truncated": Bad(file("x.parquet", PARQUET[:-99]), "cannot be read as Parquet"),
    "parquet-head-only": Bad(file("x.parquet", PARQUET[:6]), "cannot be read as Parquet"),
    "parquet-footer-corrupt": Bad(
        file("x.parquet", PARQUET[:-200] + b"\xff" * 150 + PARQUET[-50:]),
        "cannot be read as Parquet",
    ),
    "parquet-values-corrupt": Bad(
        file("x.parquet", PARQUET[:4] + b"\xff" * 60 + PARQUET[64:]), "cannot be read as Parquet"
    ),
    "parquet-ragged": Bad(
        file("x.parquet", parquet_bytes(x=lists([1, 2], [3, 4], [5]))),
        "row 2 of .* with 1 number, expected 2",
    ),
    "parquet-null-row": Bad(
        file("x.parquet", parquet_bytes(x=lists([1, 2], None))), r"\(null\) for .*'x' in row 1"
    ),
    "parquet-null-first-row": Bad(
        file("x.parquet", parquet_bytes(x=lists(None, [1, 2]))), r"\(null\) for .*'x' in row 0"
    ),
    "parquet-null-value": Bad(
        file("x.parquet", parquet_bytes(x=lists([1, 2], [3, 4], [5, None]))),
        r"\(null\) for the lists in row 2",
    ),
    "parquet-null-in-a-wide-table": Bad(
        file("x.parquet", parquet_bytes(x_0=[1.0, 2.0], x_1=[1.0, None])),
        r"\(null\) for column 'x_1' in row 1",
    ),
    "parquet-null-label": Bad(
        file("x.parquet", parquet_bytes(x=lists([1, 2], [3, 4]), label=["a", None])),
        r"\(null\) for column 'label' in row 1",
        by="label",
    ),
    "parquet-integers": Bad(
        file("x.parquet", parquet_bytes(x=lists([1, 2], type_=pa.list_(pa.int32())))),
        r"\(column 'x'\) with dtype int32",
        InputError,
    ),
    "parquet-text-only": Bad(
        file("x.parquet", parquet_bytes(text=["a", "b"])), "with the columns 'text', expected one"
    ),
    "parquet-integers-among-floats": Bad(
        file("x.parquet", parquet_bytes(x_0=[1.0, 2.0], x_1=[1, 2], x_2=[1.0, 3.0])),
        "got column 'x_1' of .* with the type 'int64', expected floating-point numbers as in 'x_0'",
    ),
    "parquet-text-among-floats": Bad(
        file("x.parquet", parquet_bytes(x_0=["a", "b"], x_1=[1.0, 2.0], x_2=[1.0, 3.0])),
        "got column 'x_0' of .* with the type 'string', expected .* 'x_1'",
    ),
    "parquet-nested-among-floats": Bad(
        file("x.parquet", parquet_bytes(x_0=[{"a": 1}], x_1=[1.0], x_2=[1.0])),
        "got column 'x_0' of .* with the type 'struct<a: int64>'",
    ),
    "parquet-family-of-text-by-key": Bad(
        file("x.parquet", parquet_bytes(x_0=["a"], x_1=["b"], y=[1.0], z=[1.0])),
        "got column 'x_0' of .* with the type 'string', expected floating-point numbers; conv",
        key="x_",
    ),
    "parquet-integers-named-embedding": Bad(
        file(
            "x.parquet",
            parquet_bytes(
                embedding=lists([1, 2], type_=pa.list_(pa.int8())), mean=lists([1.0, 2.0])
            ),
        ),
        "got column 'embedding' of .* without floating-point numbers",
    ),
    "parquet-gap": Bad(
        file("x.parquet", parquet_bytes(x_0=[1.0, 2.0], x_2=[1.0, 3.0])), "none called 'x_1'"
    ),
    "parquet-null-view": Bad(
        file("x.parquet", parquet_bytes(x=lists([1, 2], None, type_=pa.list_view(pa.float32())))),
        r"\(null\) for column 'x' in row 1",
    ),
    "parquet-ragged-view": Bad(
        file("x.parquet", parquet_bytes(x=lists([1, 2], [3], type_=pa.list_view(pa.float32())))),
        "row 1 of .* with 1 number, expected 2",
    ),
    "parquet-one-feature": Bad(
        file("x.parquet", parquet_bytes(x=lists([1], [2]))), "at least 2 features", InputError
    ),
    "parquet-no-rows": Bad(file("x.parquet", parquet_bytes(x=lists())), "with 0 rows"),
    "parquet-ambiguous": Bad(
        file("x.parquet", parquet_bytes(a=lists([1, 2]), b=lists([1, 2]))),
        "2 columns that could be the embeddings",
    ),
    "parquet-key-of-text": Bad(
        file("x.parquet", parquet_bytes(x=lists([1, 2]), text=["a"])),
        "got key 'text', expected a column .* that holds lists",
        key="text",
    ),
    "parquet-unknown-column": Bad(
        file("x.parquet", parquet_bytes(x=lists([1, 2]), layer=[1])),
        "got column 'layr', .* did you mean 'layer'",
        by="layr",
    ),
    # --- .jsonl
    "jsonl-blank": Bad(file("x.jsonl", "\n \n"), "with 0 rows"),
    "jsonl-invalid": Bad(
        file("x.jsonl", jsonl([1, 2], [3, 4]) + "[5, 6"), r"line 3 of .* no valid JSON .*Expecting"
    ),
    "jsonl-number": Bad(file("x.jsonl", "[1, 2]\n7\n"), "a single value in line 2"),
    "jsonl-nested-too-deep": Bad(file("x.jsonl", "[" * 100_000), "line 1 of .* no valid JSON"),
    "jsonl-matrix": Bad(file("x.jsonl", "[[1, 2], [3, 4]]"), "line 1 .* than a flat list"),
    "jsonl-pretty": Bad(file("x.jsonl", "[\n[1, 2],\n[3, 4]\n]"), "line 1 .* one object or list"),
    "jsonl-no-list": Bad(file("x.jsonl", jsonl({"a": 1})), "line 1 .* with the columns 'a'"),
    "jsonl-ambiguous": Bad(
        file("x.jsonl", jsonl({"a": [1.0, 2], "b": [1.0, 2]})), "2 columns that could be"
    ),
    "jsonl-ragged": Bad(
        file("x.jsonl", jsonl([1, 2], [1, 2, 3])), "line 2 of .* with 3 numbers, expected 2"
    ),
    "jsonl-null": Bad(file("x.jsonl", jsonl([1, 2], [1, None])), r"line 2 .*\(no null, no text\)"),
    "jsonl-text-in-list": Bad(file("x.jsonl", jsonl([1, 2], ["1", 2])), "line 2 .* flat list"),
    "jsonl-huge-integer": Bad(file("x.jsonl", jsonl([1, 2], [10**400, 1])), "line 2 .* flat list"),
    "jsonl-field-gone": Bad(
        file("x.jsonl", jsonl({"x": [1, 2]}, {"y": [1, 2]})), "line 2 of .* without 'x'"
    ),
    "jsonl-truth-value-in-list": Bad(
        file("x.jsonl", jsonl([1, 2], [1.5, True])), "line 2 .* flat list"
    ),
    "jsonl-embedding-null-first": Bad(
        file("x.jsonl", jsonl({"a": [1, 2], "embedding": None}, {"a": [1, 2], "embedding": [3]})),
        "got column 'embedding' of line 1 of .* without floating-point numbers",
    ),
    "jsonl-embedding-later": Bad(
        file("x.jsonl", jsonl({"a": [1, 2]}, {"a": [1, 2], "embedding": [3]})),
        "a list of numbers as 'embedding' in line 2 .* 'a' holds the embeddings; choose",
    ),
    "jsonl-list-after-object": Bad(
        file("x.jsonl", jsonl({"x": [1, 2]}, [1, 2])), "line 2 of .* without 'x'"
    ),
    "jsonl-label-gone": Bad(
        file("x.jsonl", jsonl({"x": [1, 2], "label": "a"}, {"x": [1, 2]})),
        "got no value for column 'label' in line 2",
        by="label",
    ),
    "jsonl-label-of-other-kind": Bad(
        file("x.jsonl", jsonl({"x": [1, 2], "label": "a"}, {"x": [1, 2], "label": 1})),
        "got 1 for column 'label' in line 2 of .* expected a text",
        by="label",
    ),
    "jsonl-latin-1": Bad(
        file("x.jsonl", '{"x": [1, 2]}\n{"x": [1, 2], "l": "é"}\n'.encode("latin-1")),
        "no UTF-8 in line 2",
    ),
    "jsonl-utf-16": Bad(file("x.jsonl", "[1, 2]".encode("utf-16")), "looks like UTF-16 text"),
    "jsonl-truncated": Bad(
        file("x.jsonl", jsonl({"x": [1, 2]}, {"x": [1, 2]})[:-8]), "line 2 of .* no valid JSON"
    ),
    "jsonl-one-feature": Bad(file("x.jsonl", jsonl([1])), "at least 2 features", InputError),
    # --- .csv
    "csv-header-only": Bad(file("x.csv", "x_0,x_1\n"), "with 0 rows"),
    "csv-ragged": Bad(file("x.csv", "a,b\n1,2\n3\n"), "line 3 of .* with 1 cell, expected 2"),
    "csv-first-row-ragged": Bad(file("x.csv", "a,b\n1,2,3\n"), "line 2 of .* 3 cells, expected 2"),
    "csv-text-in-numbers": Bad(
        file("x.csv", "x_0,x_1\n1,2\n3,four\n"), "the value 'four' for column 'x_1' in line 3"
    ),
    "csv-long-cell": Bad(
        file("x.csv", f"x_0,x_1\n1,2\n3,{'z' * 10_000}\n"), "the value 'z{79}…' for column 'x_1'"
    ),
    "csv-empty-cell": Bad(file("x.csv", "x_0,x_1\n1,2\n,4\n"), "an empty cell for column 'x_0'"),
    "csv-decimal-commas": Bad(
        file("x.csv", "x_0;x_1\n0,1;0,2\n"), "'0,1' .* points instead of commas"
    ),
    "csv-decimal-commas-without-header": Bad(
        file("x.csv", "0,126;-0,132;0,5\n0,2;0,1;-0,4\n"),
        "got the value '0,126' for column 'column_0' in line 1 .* decimal point",
    ),
    "csv-text-without-header": Bad(
        file("x.csv", "0.1,0.2,a\n0.3,0.4,b\n"), "'a' for column 'column_2' .* without a header"
    ),
    "csv-years-in-header": Bad(
        file("x.csv", "label,2019,2020\na,0.1,0.2\n"), "the value 'label' for .* first line of nam"
    ),
    "csv-na-in-first-row": Bad(
        file("x.csv", "x_0,x_1,x_2\n1,NA,3\n4,5,6\n"), "'NA' for column 'x_1' in line 2"
    ),
    "csv-na-in-first-row-of-plain-names": Bad(
        file("x.csv", "a,b,c\n1,NA,3\n4,5,6\n"), "the value 'NA' for column 'b' in line 2"
    ),
    "csv-number-after-text": Bad(
        file("x.csv", "a,b,c\n1,oops,3\n4,5,6\n"), "got '5' for column 'b' in line 3 .* no number"
    ),
    "csv-list-after-text": Bad(
        file("x.csv", 'x_0,x_1,v\n1,2,a\n3,4,"[5, 6]"\n'), r"'\[5, 6\]' for column 'v' in line 3"
    ),
    "csv-gap": Bad(
        file("x.csv", "x_0,x_1,x_3\n1,2,3\n4,5,7\n"), "none called 'x_2', .* pass key='x_'"
    ),
    "csv-underscore": Bad(
        file("x.csv", "x_0,x_1\n1,2\n3,1_0\n"), "the value '1_0' for column 'x_1' in line 3"
    ),
    "csv-blanks": Bad(
        file("x.csv", "1.25e-01 -1.32e-01\n2.5e-01 5.0e-01\n"), "got one cell '1.25e-01 -1.32e-01'"
    ),
    "csv-text-only": Bad(file("x.csv", "a,b\nc,d\n"), "with the columns 'a', 'b', expected"),
    "csv-one-feature": Bad(file("x.csv", "x,label\n1,a\n2,b\n"), "2 features", InputError),
    "csv-same-names": Bad(file("x.csv", "x,x\n1,2\n"), "several columns named 'x'"),
    "csv-open-quote": Bad(file("x.csv", 'a,b\n1,2\n"3,4\n'), "line 3 of .* each quote to be clos"),
    "csv-latin-1": Bad(
        file("x.csv", "a,b\n1,é\n".encode("latin-1")), "are no UTF-8 near line 1 of"
    ),
    "csv-ambiguous": Bad(
        file("x.csv", "x_0,x_1,y_0,y_1\n1,2,3,4\n"), "2 groups of columns .*: 'x_', 'y_'"
    ),
    "csv-unknown-key": Bad(
        file("x.csv", "x_0,x_1,y_0,y_1\n1,2,3,4\n"), "got key 'z_', .* 'x_', 'y_'", key="z_"
    ),
    "csv-unknown-column": Bad(
        file("x.csv", "x_0,x_1,label\n1,2,a\n"), "did you mean 'label'", by="labels"
    ),
    "csv-label-no-number": Bad(
        file("x.csv", "x_0,x_1,label\n1,2,0\n1,2,b\n"),
        "the value 'b' for column 'label' in line 3 .* expected a number",
        by="label",
    ),
    "csv-list-ragged": Bad(
        file("x.csv", 'x\n"[1, 2]"\n"[3]"\n'), "line 3 of .* with 1 number, expected 2"
    ),
    "csv-list-of-text": Bad(file("x.csv", 'x\n"[1, 2]"\n"[3, a]"\n'), "line 3 .* flat list"),
    "csv-list-shortened": Bad(file("x.csv", 'x\n"[1. ... 2.]"\n'), r"line 2 .*'\.\.\.'"),
    "tsv-with-commas": Bad(file("x.tsv", "a,b\n1,2\n"), "one cell 'a,b' .* by a tab"),
    # --- folders
    "folder-empty": Bad(lambda f: f, "without files to read"),
    "folder-without-shards": Bad(
        folder_of(README="x", _SUCCESS="", config__json="{}"), "without files to read"
    ),
    "folder-mixed-formats": Bad(
        folder_of(a__npy=NPY, b__parquet=PARQUET), r"several formats \('a\.npy', 'b\.parquet'\)"
    ),
    "folder-unknown-file": Bad(
        folder_of(a__npy=NPY, b__npy__tmp=NPY), r"with the file 'b\.npy\.tmp', expected only"
    ),
    "folder-shard-below": Bad(
        folder_of(**{"a__npy": NPY, "sub/b__npy": NPY}), r"would be left out \('sub/b\.npy'\)"
    ),
    "folder-shard-of-hidden-name": Bad(
        folder_of(a__npy=NPY, _b__npy=NPY), r"would be left out \('_b\.npy'\)"
    ),
    "folder-columns-of-other-order": Bad(
        folder_of(a__csv="x_0,x_1\n1,2\n", b__csv="x_1,x_0\n1,2\n"),
        r"different columns .*: 'b\.csv' has 'x_1' where 'a\.csv' has 'x_0'",
    ),
    "folder-mixed-features": Bad(
        folder_of(**MIXED),
        r"different numbers of features in .*: 'b\.npy' has 4 and 'a\.npy' has 3",
    ),
    "folder-mixed-dtypes": Bad(
        folder_of(a__npy=NPY, b__npy=npy_bytes(X.astype(np.float64))),
        r"different dtypes in .*: 'b\.npy' has float64 and 'a\.npy' has float32",
    ),
    "folder-truncated-shard": Bad(
        folder_of(a__npy=NPY, b__npy=NPY[:-4]), r"shards.b\.npy, which is truncated"
    ),
    "folder-empty-shard": Bad(folder_of(a__npy=NPY, b__npy=b""), r"shards.b\.npy, which is empty"),
    "folder-shards-without-rows": Bad(
        folder_of(a__npy=npy_bytes(X[:0]), b__npy=npy_bytes(X[:0])), "shards with 0 rows"
    ),
    "folder-shard-gone": Bad(shard_gone, r"shards.b\.npy, which cannot be read \(No such file"),
    "folder-unknown-column": Bad(
        folder_of(a__npy=NPY), "got column 'shards', .* did you mean 'shard'", by="shards"
    ),
    "folder-column-in-one-shard": Bad(
        folder_of(a__jsonl=jsonl({"x": [1, 2], "label": "a"}), b__jsonl=jsonl({"x": [1, 2]})),
        "got column 'label', expected one that .*shards has; choose from: 'shard'",
        by="label",
    ),
    "folder-of-a-model": Bad(
        folder_of(config__json="{}", model__safetensors=SAFE), "folder of a model, .* embed"
    ),
}

STDIN: dict[str, tuple[bytes, str | None, str]] = {
    "empty": (b"", None, r"got standard input, which is empty \(0 bytes\)"),
    "empty-text": (b"", "csv", "got standard input with 0 rows"),
    "unknown": (b"\x01\x02\x03", None, "got standard input in unknown format, .* name its format"),
    "pickle": (pickle.dumps(Malice()), None, "got standard input in unknown format, .* a pickle"),
    "truncated": (NPY[:-4], None, "got standard input, which is truncated"),
    "other-format": (NPY, "jsonl", r"got standard input, which looks like a \.npy file"),
    "gzip": (b"\x1f\x8b\x08\0", "csv", "compressed with gzip, .* decompress it first"),
}


def measure(source: Any, bad: Bad) -> None:
    isotropy.measure(source, "iso_score", by=bad.by, key=bad.key, format=bad.format)


def check_message(error: BaseException, expected: type[IsotropyError]) -> None:
    message = str(error)
    assert type(error) is expected
    assert message.startswith("got ")
    assert "expected" in message
    assert "\n" not in message
    assert len(message) < 900
    assert not EXECUTED.exists()


@pytest.mark.parametrize("kind", BAD)
def test_a_source_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bad = BAD[kind]
    source = bad.make(tmp_path)
    with pytest.raises(bad.error, match=bad.match) as caught:
        measure(source, bad)
    check_message(caught.value, bad.error)


@pytest.mark.parametrize("kind", STDIN)
def test_standard_input_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content, format, match = STDIN[kind]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    with pytest.raises(SourceError, match=match) as caught:
        measure("-", Bad(Path, match, format=format))
    check_message(caught.value, SourceError)


def test_a_file_without_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = file("x.npy", NPY)(tmp_path)
    monkeypatch.setattr(Path, "open", refuse)  # the administrator may read any file
    with pytest.raises(SourceError, match=r"x\.npy, which may not be read") as caught:
        open_source(path)
    check_message(caught.value, SourceError)


def test_a_failing_disk_is_no_mystery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.FileIO):
        def readinto(self, _: Any) -> int:
            raise OSError(5, "Input/output error")

    path = file("x.npy", NPY)(tmp_path)
    monkeypatch.setattr("isotropy.sources._raw.FileIO", Failing)
    with pytest.raises(SourceError, match=r"cannot be read \(Input/output error\)") as caught:
        isotropy.measure(path, "iso_score")
    check_message(caught.value, SourceError)


def test_there_are_many_kinds() -> None:
    assert len({*ARRAYS, *BAD, *STDIN}) >= 60
