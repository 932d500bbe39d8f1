"""Readers: formats, encodings, and faults named by their line."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_py.errors import InvalidInput
from toolchain.embedding import lines
from toolchain.embedding.readers import records
from toolchain.embedding.settings import InputFormat

LINES, JSONL, CSV, TSV = InputFormat


def read(raw: bytes, fmt: InputFormat, field: str | None = None, id_field: str | None = None):
    return list(records(io.BytesIO(raw), "input", fmt, field, id_field))


def texts(raw: bytes, fmt: InputFormat, field: str | None = None) -> list[str]:
    return [r.text for r in read(raw, fmt, field)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        ("x\x0by\u2028z\x85w\n".encode(), ["x\x0by\u2028z\x85w"]),
        (b"\x00\n", ["\x00"]),
    ],
)
def test_row_i_is_line_i(raw: bytes, expected: list[str]) -> None:
    got = read(raw, LINES)
    assert [r.text for r in got] == expected
    assert [r.row for r in got] == list(range(len(expected)))
    assert [r.line for r in got] == list(range(1, len(expected) + 1))


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))))
def test_any_lines_read_back(values: list[str]) -> None:
    raw = "".join(line + "\n" for line in values).encode()
    if not raw.startswith(b"\xef\xbb\xbf"):
        assert texts(raw, LINES) == values


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_texts_read_back_from_jsonl(values: list[str]) -> None:
    raw = "".join(
        json.dumps({"text": v}, ensure_ascii=i % 2 == 0) + "\n" for i, v in enumerate(values)
    )
    assert texts(raw.encode(), JSONL) == values


@given(
    st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=20)] * 2)),
    st.sampled_from([(CSV, ","), (TSV, "\t")]),
)
def test_any_table_reads_back(rows: list[tuple[str, str]], kind: tuple[InputFormat, str]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=kind[1], quoting=csv.QUOTE_ALL).writerows([("k", "text"), *rows])
    assert texts(out.getvalue().encode(), kind[0]) == [text for _, text in rows]


def test_csv_quirks() -> None:
    raw = b'\xef\xbb\xbfid,text,note\r\n7,"a ""quoted"", text",\r\n8,"two\nlines",x\r\n\r\n9,,y\r\n'
    got = read(raw, CSV, "text", "id")
    assert [(r.row, r.line, r.id, r.text) for r in got] == [
        (0, 2, "7", 'a "quoted", text'),
        (1, 3, "8", "two\nlines"),
        (2, 6, "9", ""),
    ]
    assert texts(b"only\na\nb\n", CSV) == ["a", "b"]
    assert texts(b"", CSV) == []
    assert texts(b"a\tb\n1\t2, 3\n", TSV, "b") == ["2, 3"]


def test_jsonl_paths_and_ids() -> None:
    raw = (
        b'{"a":{"b":["x",{"c":"deep"}]},"a.b":"flat","n":5}\n\n'
        b'{"a":{"b":["x",{"c":"2"}]},"a.b":"f","n":"k"}'
    )
    assert texts(raw, JSONL, "a.b.1.c") == ["deep", "2"]
    assert texts(raw, JSONL, "a.b") == ["flat", "f"]
    assert [(r.line, r.id) for r in read(raw, JSONL, "a.b", "n")] == [(1, "5"), (3, "k")]
    assert texts(b'"bare"\n{"text":"object"}\n', JSONL) == ["bare", "object"]


@pytest.mark.parametrize(
    ("raw", "fmt", "field", "says"),
    [
        (b"ok\n\xff\xfe\n", LINES, None, "line 2: byte 0xff at offset 0 of the line is not UTF-8"),
        (b"ok\n" + "Zürich".encode("latin-1"), LINES, None, "line 2: byte 0xfc at offset 1"),
        ("text".encode("utf-16"), LINES, None, "line 1: the file is UTF-16"),
        (b"a\n", LINES, "text", "plain lines, which have no fields"),
        (b'{"text":"a"}\n{"text":', JSONL, None, "line 2: not JSON: Expecting value at column 9"),
        (b"[" * 100_000, JSONL, None, "line 1: not JSON"),
        (b"[1]\n", JSONL, None, "line 1: found an array, expected an object with field 'text'"),
        (b'{"text":null}\n', JSONL, None, "line 1: field 'text' is null, expected a string"),
        (b'{"text":true}\n', JSONL, None, "is a boolean, expected a string"),
        (b'{"text":3}\n', JSONL, None, "is a number, expected a string"),
        (b'{"txet":"a"}\n', JSONL, None, "no field 'text' among 'txet'; did you mean 'txet'?"),
        (b"{}\n", JSONL, "a.b", "no field 'a.b' among no fields"),
        (b'{"text":"\\ud83d"}\n', JSONL, None, "half of a surrogate pair"),
        (b"id,body\n1,a\n", CSV, None, "line 1: which column holds the text?"),
        (
            b"id,body\n1,a\n",
            CSV,
            "boddy",
            "no column is named 'boddy', the header has 'id', 'body'; did",
        ),
        (b"t,t\n1,a\n", CSV, "t", "2 columns are named 't'"),
        (b"id,text\n1,a\n2,b,c\n", CSV, None, "line 3: 3 columns, the header has 2"),
        (b'text\n"open', CSV, None, "line 2: not CSV"),
        (b'text\n"a"b\n', CSV, None, "line 2: not CSV"),
    ],
)
def test_a_fault_names_its_line(raw: bytes, fmt: InputFormat, field: str | None, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(raw, fmt, field)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fault_comes_after_the_rows_before_it() -> None:
    source = records(io.BytesIO(b"a\nb\n\xff\n"), "input", LINES, None, None)
    assert [next(source).text, next(source).text] == ["a", "b"]
    with pytest.raises(InvalidInput):
        next(source)


def test_a_line_that_would_not_fit_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    assert texts(b"x" * 999 + b"\n", LINES) == ["x" * 999]
    with pytest.raises(InvalidInput, match="line 2: the line has more than 1000 bytes"):
        read(b"ok\n" + b"x" * 100_000, LINES)


@given(st.binary(max_size=60), st.integers(1, 9))
def test_reads_of_any_size_give_the_same_lines(raw: bytes, size: int) -> None:
    class Trickle(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            return super().read(size)

    ascii_only = raw.translate(bytes(b % 128 for b in range(256)))
    found = [r.text for r in records(Trickle(ascii_only), "input", LINES, None, None)]
    assert found == texts(ascii_only, LINES)


def test_progress_counts_bytes() -> None:
    raw = "é\nbb\n".encode()
    assert [r.end for r in read(raw, LINES)] == [3, 6]
