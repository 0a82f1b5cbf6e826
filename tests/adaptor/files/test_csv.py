"""CSV: no value is lost to a type, no row to a line end."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.adaptor.files import contents
from tailrace.errors import TailraceError
from tests.adaptor.files.material import changed, copied, reader_of

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6) | st.sampled_from(
    ["", "1", "-1", "007", "1.5", "1e5", "true", "NaN", "9007199254740993", "9223372036854775808", "0.1", "1.10", "-0"]
)
TABLES = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1))


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def csv_text(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return out.getvalue()


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=TABLES, step=st.integers(1, 200))
def test_fields_come_back(tmp_path: Path, rows: list[list[str]], step: int) -> None:
    header = [f"c{at}" for at in range(len(rows[0]))]
    file = write(tmp_path / "a.csv", csv_text([header, *rows]))
    found = copied(file, piece_bytes=step, csv={"quoted_newlines": True})
    assert len(found) == len(rows)
    for row, given_row in zip(found, rows, strict=True):
        for value, text in zip(row.values(), given_row, strict=True):
            assert as_text(value) == text or (isinstance(value, float) and value == float(text))


def test_types(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.csv",
        "int,float,bool,zip,long,mixed,date\n"
        "1,1.5,true,00501,9007199254740993.5,1,2024-01-01\n"
        "-2,3,false,10001,1.5,x,2024-01-02\n",
    )
    assert copied(file) == [
        {
            "int": 1,
            "float": 1.5,
            "bool": True,
            "zip": "00501",
            "long": "9007199254740993.5",
            "mixed": "1",
            "date": "2024-01-01",
        },
        {"int": -2, "float": 3.0, "bool": False, "zip": "10001", "long": "1.5", "mixed": "x", "date": "2024-01-02"},
    ]
    assert {type(value) for row in copied(file, csv={"infer": False}) for value in row.values()} == {str}


def test_chosen_types(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "a,b\n1,2024-01-01\n")
    row = copied(file, csv={"types": {"a": "text", "b": "date"}})[0]
    assert (row["a"], row["b"].isoformat()) == ("1", "2024-01-01")
    write(file, "a,b\n1,never\n")
    with pytest.raises(TailraceError, match="'b' is not date"):
        copied(file, csv={"types": {"b": "date"}})


def test_null_is_not_empty(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'a,b\n"",\nNULL,"NULL"\n')
    assert copied(file) == [{"a": "", "b": None}, {"a": "NULL", "b": "NULL"}]
    assert copied(file, csv={"null_values": ["NULL"]}) == [{"a": "", "b": ""}, {"a": None, "b": "NULL"}]


def test_later_rows_that_do_not_fit_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_SAMPLE_BYTES", 8)
    file = write(tmp_path / "a.csv", "n,m\n1,2\nx,3\n4,5\n")
    assert copied(file, piece_bytes=1) == [{"n": 1, "m": 2}, {"n": "x", "m": 3}, {"n": 4, "m": 5}]


def test_growth(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "n\n1\n")
    start = reader_of(file).position()
    assert copied(file) == [{"n": 1}]
    with file.open("a") as opened:
        opened.write("2\n3")
    assert changed(file, start) == [{"n": 2}]


def test_header_without_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "n\n")
    start = reader_of(file).position()
    assert copied(file) == []
    with file.open("a") as opened:
        opened.write("1\n")
    assert changed(file, start) == [{"n": 1}]


def test_header_that_comes_late(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "n,")
    start = reader_of(file).position()
    assert copied(file) == []
    write(file, "n,m\n1,2\n")
    assert changed(file, start) == [{"n": 1, "m": 2}]


def test_without_header(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "1\tx\n2\ty\n")
    assert copied(file, csv={"header": False}) == [{"column1": 1, "column2": "x"}, {"column1": 2, "column2": "y"}]
    named = copied(file, csv={"header": False, "columns": ["n", "s"]}, piece_bytes=1)
    assert named == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]


def test_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"\xef\xbb\xbfn,s\r\n1,x\r\n\r\n2,y\r\n")
    assert copied(file) == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]
    assert copied(file, piece_bytes=1) == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]


def test_line_end_inside_quotes_is_not_guessed(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'n,s\n1,"a\nb"\n2,"c\nd"\n')
    rows = [{"n": 1, "s": "a\nb"}, {"n": 2, "s": "c\nd"}]
    assert copied(file) == rows
    with pytest.raises(TailraceError, match="quoted_newlines"):
        copied(file, piece_bytes=1)
    assert copied(file, piece_bytes=1, csv={"quoted_newlines": True}) == rows


def test_torn_quoted_field_waits(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'n,s\n1,"a\n')
    options = {"csv": {"quoted_newlines": True}}
    start = reader_of(file, **options).position()
    with file.open("a") as opened:
        opened.write('b"\n')
    assert changed(file, start, **options) == [{"n": 1, "s": "a\nb"}]


def test_row_with_too_many_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(tmp_path / "a.csv", "n,m\n1,2\n1,2,3\n4,5\n")
    with pytest.raises(TailraceError) as told:
        copied(file)
    assert told.value.code == "source.malformed"
    assert told.value.place is not None
    assert told.value.place.byte == 8
    assert copied(file, on_malformed="skip") == [{"n": 1, "m": 2}, {"n": 4, "m": 5}]
    assert "3 fields instead of 2" in caplog.text


@pytest.mark.parametrize("header", ["a,a", "a,", ""])
def test_bad_header(tmp_path: Path, header: str) -> None:
    file = write(tmp_path / "a.csv", f"{header}\n1,2\n")
    with pytest.raises(TailraceError, match="header"):
        copied(file)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"n\nok\n\xff\n")
    with pytest.raises(TailraceError, match=r"source\.malformed"):
        copied(file)
