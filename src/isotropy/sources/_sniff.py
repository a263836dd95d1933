"""What a file looks like by its first bytes, whatever it is called."""

import codecs
import re
import struct
import zipfile
from pathlib import Path
from typing import NamedTuple

LISTS = "JSON lists"
"""What a file of JSON lines may look like, and a table too that begins with a column of lists."""

BROKEN_ZIP = (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, struct.error, EOFError)
"""What Python's zipfile raises for a damaged archive."""

_HEAD = 4096
# The number with which torch began its files before it wrote zip archives.
_OLD_TORCH = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"
_COMPRESSED = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"(\xb5/\xfd", "zstd"),
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")  # what no text has
_OTHERS = (
    (b"\x89HDF", "an HDF5 file"),
    (b"ARROW1", "an Arrow (Feather) file"),
    (b"ORC", "an ORC file"),
    (b"Obj\x01", "an Avro file"),
    (b"SQLite format 3", "a SQLite database"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
)


class Look(NamedTuple):
    """What a file looks like.

    Attributes:
        format: the name of a format that is read here, or None.
        what: what to call it in a message.
        advice: what to do if it cannot be read.
    """

    format: str | None
    what: str
    advice: str = "save the embeddings in a format that is read here"


def look(path: Path) -> Look | None:
    """What a file looks like, or None if its first bytes say nothing."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(b"\x93NUMPY"):
        return Look("npy", "a .npy file")
    if head.startswith(b"PAR1"):
        return Look("parquet", "a Parquet file")
    if head.startswith(b"PK\x03\x04") or head.startswith(b"PK\x05\x06"):
        return _archive(path)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return Look("safetensors", "a safetensors file")
    if head.startswith(b"\x80"):
        return _pickle(head)
    for start, compression in _COMPRESSED:
        if head.startswith(start):
            return Look(
                None,
                f"a file compressed with {compression}",
                f"decompress it first, for instance with: {compression} -d",
            )
    for start, what in _OTHERS:
        if head.startswith(start):
            return Look(None, what)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Look(None, "UTF-16 text", "save it as UTF-8 text")
    return _text(head)


def _archive(path: Path) -> Look:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except BROKEN_ZIP:
        return Look(None, "a damaged zip archive", "it is truncated or corrupt: write it again")
    if any(name.endswith("data.pkl") for name in names):
        return Look("pt", "a file of torch.save")
    if not names or any(name.endswith(".npy") for name in names):
        return Look("npz", "a .npz archive")
    return Look(None, "a zip archive", "unpack it first")


def _pickle(head: bytes) -> Look:
    if _OLD_TORCH in head[:32]:
        return Look("pt", "a file of torch.save")
    return Look(
        None, "a Python pickle", "a pickle can run code when it is loaded: save an array instead"
    )


def _text(head: bytes) -> Look | None:
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return None
    if _CONTROL.search(text) or not text.strip():
        return None
    first = text.lstrip()[0]
    if first in "{[":
        return Look("jsonl", LISTS if first == "[" else "JSON objects")
    return Look("csv", "comma-separated or plain text")
