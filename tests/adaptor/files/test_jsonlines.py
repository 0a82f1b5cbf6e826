"""JSON lines come back exactly as they were, by the fast parser or without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.adaptor.files.jsonlines import JsonLines
from tailrace.adaptor.files.lines import Block
from tailrace.errors import TailraceError
from tailrace.log.documents import decode
from tests.adaptor.files.material import copied, write_lines

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**53 - 2, 2**53 + 2)
    | st.integers(2**63 - 2, 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["2024-01-01", "2024-01-01T00:00:00Z", "1", "true", "null", "\ud800", "\0", "12:00"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=5,
)
DOCUMENTS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c", "", "é"]), VALUES, max_size=4), min_size=1)


def parsed(*texts: bytes, keep_missing: bool = False) -> list[Any]:
    """The documents of blocks, one after the other."""
    lines = JsonLines("file", keep_missing=keep_missing, skip_malformed=False)
    rows = [rows for text in texts for _, rows in lines.batches(Block(0, text))]
    return [document for batch in rows for document in decode(batch.to_struct_array())]


def as_lines(documents: list[Any]) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def without_nulls(value: Any) -> Any:
    """A field that is missing becomes null in columns; both are the same here."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


@given(DOCUMENTS)
def test_documents_come_back(documents: list[Any]) -> None:
    assert [without_nulls(row) for row in parsed(as_lines(documents))] == [without_nulls(row) for row in documents]


@given(DOCUMENTS)
def test_fast_parser_is_exact(documents: list[Any]) -> None:
    """The second block has the types that the first has taught, so the fast parser is asked."""
    text = as_lines(documents)
    assert [without_nulls(row) for row in parsed(text, text)] == [without_nulls(row) for row in documents * 2]


@given(DOCUMENTS, DOCUMENTS)
def test_types_of_another_block_do_no_harm(first: list[Any], second: list[Any]) -> None:
    found = parsed(as_lines(first), as_lines(second), as_lines(first))
    assert [without_nulls(row) for row in found] == [without_nulls(row) for row in first + second + first]


@given(DOCUMENTS)
def test_missing_fields_are_kept_when_asked(documents: list[Any]) -> None:
    assert parsed(as_lines(documents), as_lines(documents), keep_missing=True) == documents * 2


@pytest.mark.parametrize(
    "value",
    [
        9007199254740993,
        -9007199254740993,
        2**63 - 1,
        -(2**63),
        2**63,
        2**64,
        10**300,
        0.1,
        5e-324,
        1.7976931348623157e308,
        "2024-02-30",
        "2024-01-01T10:00:00.123Z",
        '😀 \u0000 "\\/\b\f\n\r\t',
        "\udc00",
        [1, "a", None, {"b": [2.5]}],
        [],
        {},
        [[]],
        {"deep": {"er": [{"x": 1}, {"y": None}]}},
    ],
)
def test_value_survives(value: Any) -> None:
    plain = as_lines([{"v": value}] * 3)
    assert without_nulls(parsed(plain, plain)) == without_nulls([{"v": value}] * 6)
    beside_a_float = as_lines([{"v": 0.5}, {"v": value}])
    assert without_nulls(parsed(beside_a_float, beside_a_float)) == without_nulls([{"v": 0.5}, {"v": value}] * 2)


def test_type_of_numbers() -> None:
    """Whole numbers become doubles only beside doubles, and only where nothing is rounded."""
    found = parsed(b'{"v":1}\n{"v":2.5}\n', b'{"v":9007199254740993}\n{"v":2.5}\n')
    assert [(type(row["v"]), row["v"]) for row in found] == [
        (float, 1.0),
        (float, 2.5),
        (int, 9007199254740993),
        (float, 2.5),
    ]


def test_last_of_double_keys_wins() -> None:
    text = b'{"a":1,"a":2}\n'
    assert parsed(text, text) == [{"a": 2}] * 2


def test_escaped_names() -> None:
    text = b'{"\\u0061":1}\n'
    assert parsed(text, text) == [{"a": 1}] * 2


def test_many_different_fields_do_not_fill_the_memory() -> None:
    documents = [{f"field{number}": number} for number in range(5000)]
    lines = JsonLines("file", keep_missing=False, skip_malformed=False)
    batches = [rows for _, rows in lines.batches(Block(0, as_lines(documents)))]
    assert sum(rows.num_rows * rows.num_columns for rows in batches) <= 5000 * 1000
    found = [row for rows in batches for row in decode(rows.to_struct_array())]
    assert [without_nulls(row) for row in found] == documents


@pytest.mark.parametrize("text", [b"", b"\n", b" \n\t\r\n\n"])
def test_nothing(text: bytes) -> None:
    assert parsed(text) == []


@pytest.mark.parametrize(
    "text", [b'{"a":1}\r\n{"a":2}\r\n', b'\n{"a":1}\n  \n{"a":2}\n\n', b' {"a":1} \n\t{"a":2}\n', b'{"a":1}\n{"a":2}']
)
def test_white_space(text: bytes) -> None:
    assert parsed(text) == [{"a": 1}, {"a": 2}]
    assert parsed(b'{"a":0}\n', text) == [{"a": 0}, {"a": 1}, {"a": 2}]


MALFORMED = [
    b"null",
    b"3",
    b"[1]",
    b'"text"',
    b"{",
    b'{"a":}',
    b'{"a":1}{"a":2}',
    b'{"a":1} null {"a":2}',
    b'{"a":1} x',
    b'{"a":NaN}',
    b'{"a":Infinity}',
    b'{"a":1e400}',
    b'{"a":01}',
    b'{"a":"\xff"}',
    b'{"a":"\t"}',
    b'{"a":1}\0',
    b'{"\\ud800":1}',
    b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b"[" * 100_000,
]


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: repr(line[:20]))
@pytest.mark.parametrize("before", [b"", b'{"a":0.5}\n'])
def test_malformed_line_is_told(tmp_path: Path, line: bytes, before: bytes) -> None:
    file = tmp_path / "a.jsonl"
    good = before * 2000
    file.write_bytes(good + before + line + b"\n" + b'{"a":1}\n')
    with pytest.raises(TailraceError) as told:
        copied(file)
    assert told.value.code == "source.malformed"
    assert told.value.place is not None
    assert (told.value.place.file, told.value.place.byte) == (str(file), len(good + before))


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: repr(line[:20]))
def test_malformed_line_is_skipped(tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"a":1}\n' + line + b'\n{"a":2}\n')
    assert copied(file, on_malformed="skip") == [{"a": 1}, {"a": 2}]
    assert "left out" in caplog.text


def test_line_that_is_too_long(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"a":"' + b"x" * (17 << 20) + b'"}\n')
    with pytest.raises(TailraceError, match="longer than 16 MiB"):
        copied(file)


def test_long_line_within_the_limit(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.jsonl", [{"a": "x" * (15 << 20)}, {"a": "y"}])
    assert [len(row["a"]) for row in copied(file)] == [15 << 20, 1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(documents=DOCUMENTS, step=st.integers(1, 100))
def test_pieces_of_any_size(tmp_path: Path, documents: list[Any], step: int) -> None:
    file = write_lines(tmp_path / "a.jsonl", documents)
    found = copied(file, piece_bytes=step)
    assert [without_nulls(row) for row in found] == [without_nulls(row) for row in documents]
