import io
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from isotropy.errors import InputError, IsotropyError, SourceError
from isotropy.sources._texts import Texts

# What a text may hold: an empty line, other alphabets, separators that are no newlines, quotes.
TEXTS = ["plain", "", "naïve — 日本語", "one\u2028line", 'a "quoted", text', " spaces "]


def write(path: Path, texts: list[str]) -> Path:
    records = [{"id": i, "body": text} for i, text in enumerate(texts)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(records), path)
    elif path.suffix in (".csv", ".tsv"):
        separator = "," if path.suffix == ".csv" else "\t"
        quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
        lines = [f"{i}{separator}{text}" for i, text in enumerate(quoted)]
        path.write_text("\n".join([f"id{separator}body", *lines]) + "\n", encoding="utf-8")
    else:
        path.write_bytes("".join(f"{text}\n" for text in texts).encode())
    return path


@pytest.mark.parametrize("ending", [".txt", "", ".jsonl", ".csv", ".tsv", ".parquet", ".TXT"])
def test_every_format_gives_the_texts_with_their_numbers(tmp_path: Path, ending: str) -> None:
    texts = Texts(write(tmp_path / f"file{ending}", TEXTS), "body")
    assert list(texts) == list(enumerate(TEXTS))
    assert list(texts) == list(enumerate(TEXTS))
    assert texts.count() == (None if ending in (".csv", ".tsv") else len(TEXTS))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"", []),
        (b"\n", [""]),
        (b"\n\na", ["", "", "a"]),
    ],
)
def test_lines_end_with_newlines(tmp_path: Path, content: bytes, expected: list[str]) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(content)
    assert [text for _, text in Texts(path)] == expected
    assert Texts(path).count() == len(expected)


def test_a_quoted_csv_text_may_have_lines_and_be_long(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text(f'text,label\n"two\nlines",1\n\n"{"long " * 50_000}",2\n')
    assert [(row, len(text)) for row, text in Texts(path)] == [(0, 9), (1, 0), (2, 250_000)]


def test_blank_lines_of_jsonl_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text('{"text": "a"}\n\n{"text": "b"}\n')
    assert list(Texts(path)) == [(0, "a"), (1, ""), (2, "b")]


def test_a_parquet_column_may_be_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    parquet.write_table(pa.table({"text": pa.array(["a", "b", "a"]).dictionary_encode()}), path)
    assert [text for _, text in Texts(path)] == ["a", "b", "a"]


def test_standard_input_has_a_text_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    texts = Texts("-")
    assert not texts.repeatable
    assert texts.count() is None
    assert list(texts) == [(0, "a"), (1, "b")]


def test_a_list_of_strings_is_a_text() -> None:
    assert list(Texts(["a", "b"])) == [(0, "a"), (1, "b")]
    assert Texts(["a", "b"]).count() == 2
    with pytest.raises(InputError, match="a list of texts with a int at position 1"):
        Texts(["a", 1])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.txt", b"fine\nna\xefve\n", "not UTF-8 in line 2.*iconv"),
        ("f.txt", "utf-16".encode("utf-16"), "not UTF-8 in line 1"),
        ("f.txt", b"a\0b", "zero byte in line 1"),
        ("f.jsonl", b'{"text": "a"}\n{"text": ', "no valid JSON in line 2"),
        ("f.jsonl", b'{"text": "\xff"}\n', "not UTF-8 in line 1"),
        ("f.jsonl", b"[" * 100_000, "no valid JSON in line 1"),
        ("f.jsonl", b'["a"]\n', "a JSON list in line 1"),
        ("f.jsonl", b'{"texts": "a"}\n', "column 'text'.*line 1 of f.jsonl.*mean 'texts'"),
        ("f.jsonl", b'{"text": null}\n', "no text in column 'text' of row 0"),
        ("f.jsonl", b'{"text": ["a"]}\n', "a list in column 'text' of row 0"),
        ("f.csv", b"body\na\n", "got column 'text', expected one that f.csv has; .*'body'"),
        ("f.csv", b"", "there is no column to choose"),
        (
            "f.csv",
            b"text,label\na,1\nb\n",
            "1 fields in the record that ends in line 3, expected 2",
        ),
        ("f.csv", b'text\n"a"b\n', "no valid CSV in line 2"),
        ("f.csv", b"text\n\xe9\n", "not UTF-8 in line 2"),
        ("f.parquet", b"PAR1 not really PAR1", "cannot be read as Parquet"),
        ("f.parquet", b"", "cannot be read as Parquet"),
        ("f.json", b"[]", "got text file f.json, expected a name that ends in .txt, .jsonl"),
    ],
)
def test_a_bad_file_is_an_error(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message) as error:
        list(Texts(path))
    assert "\n" not in str(error.value)


def test_a_bad_parquet_file_cannot_be_counted(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(SourceError, match="cannot be read as Parquet"):
        Texts(path).count()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"text": [1, 2]}, "column 'text' of f.parquet with type int64"),
        ({"text": ["a", None]}, "no text in column 'text' of row 1"),
        ({"body": ["a"]}, "got column 'text'"),
    ],
)
def test_a_bad_parquet_table_is_an_error(
    tmp_path: Path, table: dict[str, list[object]], message: str
) -> None:
    parquet.write_table(pa.table(table), tmp_path / "f.parquet")
    with pytest.raises(SourceError, match=message):
        list(Texts(tmp_path / "f.parquet"))


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"got no\.txt, which cannot be read"):
        Texts(tmp_path / "no.txt")
    with pytest.raises(SourceError, match="which is a folder, expected one file"):
        Texts(tmp_path)
    with pytest.raises(SourceError, match=r"cannot be read \(File name too long\)"):
        Texts("x" * 300)
    with pytest.raises(SourceError, match="without a zero byte"):
        Texts("a\0b.txt")


def test_an_endless_line_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isotropy.sources._lines.LONGEST_LINE", 1 << 20)
    path = tmp_path / "f.txt"
    path.write_bytes(b"short\n" + b"a" * (1 << 20))
    with pytest.raises(IsotropyError, match="more than 1 MiB in line 2"):
        list(Texts(path))
