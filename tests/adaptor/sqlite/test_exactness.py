"""No value is lost or changed on its way out of a database, whatever column it is in."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.adaptor.sqlite import scan
from tailrace.adaptor.sqlite.kinds import Kind, kind_of_field
from tailrace.adaptor.sqlite.options import SqliteReaderOptions
from tailrace.adaptor.values import BrokenText, from_json, read_text
from tailrace.log.batch import Batch
from tests.adaptor.sqlite.databases import connected, run

DECLARED = ("INTEGER", "REAL", "TEXT", "BLOB", "NUMERIC", "", "DATETIME", "BOOLEAN")
VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.sampled_from(["", "12", "1.5", "1e5", "a\0b", "2024-01-01", "grüße"]),
    st.binary(max_size=3),
    st.just(BrokenText(b"\xff\xfe")),
)


def insert(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    with connected(path) as connection:
        for row in rows:
            places = ", ".join("CAST(? AS TEXT)" if isinstance(value, BrokenText) else "?" for value in row)
            connection.execute(f"INSERT INTO t VALUES ({places})", row)


def held(path: Path) -> list[tuple[Any, ...]]:
    """What SQLite itself says that it has."""
    with connected(path) as connection:
        connection.text_factory = read_text
        return connection.execute("SELECT * FROM t ORDER BY id").fetchall()


def told(batches: list[Batch], column: str = "data") -> list[tuple[Any, ...]]:
    """What the batches say, values in JSON as what they stand for."""
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        struct: Any = batch.rows.column(column)
        columns = []
        for at, field in enumerate(struct.type):
            values = struct.field(at).to_pylist()
            is_json = kind_of_field(field) is Kind.JSON
            columns.append([from_json(value) for value in values] if is_json else values)
        rows += zip(*columns, strict=True)
    return sorted(rows, key=lambda row: row[0])


def assert_same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """Equal, and of the same class, but that numbers of a float column may be floats."""
    assert len(found) == len(expected)
    for found_row, expected_row in zip(found, expected, strict=True):
        for mine, theirs in zip(found_row, expected_row, strict=True):
            assert mine == theirs
            numbers = isinstance(mine, float) and isinstance(theirs, int)
            assert type(mine) is type(theirs) or (numbers and int(mine) == theirs)


def copy_of(path: Path) -> list[Batch]:
    reader = SqliteReaderOptions(path=str(path)).open()
    (table,) = reader.tables()
    return [batch for piece in reader.plan_copy(table) for batch in reader.read_copy(table.namespace, piece)]


@settings(max_examples=60)
@given(st.lists(st.tuples(*[VALUES] * len(DECLARED)), max_size=8), st.booleans())
def test_any_values_in_any_columns(rows: list[tuple[Any, ...]], sampled: bool) -> None:
    """Both ways, and also when the kinds were settled before the values came."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "any.db"
        columns = ", ".join(f"c{number} {declared}" for number, declared in enumerate(DECLARED))
        run(path, f"CREATE TABLE t(id INTEGER PRIMARY KEY, {columns})")
        if sampled:
            insert(path, [(0, 1, 1.5, "x", b"x", 2, 3, "now", 1)])
        reader = SqliteReaderOptions(path=str(path)).open()
        reader.install(reader.tables())
        start = reader.position()
        insert(path, [(number + 1, *row) for number, row in enumerate(rows)])
        expected = held(path)
        assert_same(told(copy_of(path)), expected)
        pieces = reader.plan_changes(start, reader.position())
        changes = [batch for piece in pieces for batch in reader.read_changes(piece)]
        assert_same(told(changes), expected[1:] if sampled else expected)


@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("odd", [7, 2**60 + 1, 1.5, float("inf"), "abc", b"abc", BrokenText(b"\xff"), ""], ids=repr)
@pytest.mark.parametrize("place", [0, 1300])
def test_one_odd_value_among_many(tmp_path: Path, declared: str, odd: Any, place: int) -> None:
    """In the first rows, by which types are settled, and in later ones, where the driver converts silently."""
    usual = {"REAL": 0.5, "NUMERIC": 0.5, "TEXT": "t", "BLOB": b"b", "": "t", "DATETIME": "t"}.get(declared, 1)
    path = tmp_path / "odd.db"
    run(path, f"CREATE TABLE t(id INTEGER PRIMARY KEY, c {declared})")
    insert(path, [(number, odd if number == place else usual) for number in range(1400)])
    assert_same(told(copy_of(path)), held(path))


def test_values_that_fit_never_take_the_slow_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fit.db"
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY, i INT, r REAL, t TEXT COLLATE NOCASE, b BLOB, n DECIMAL, d DATE)")
    rows: list[tuple[Any, ...]] = [(n, 2**62 + n, n / 3, f"\0{n}", b"\xff", n, "2024-01-01") for n in range(2000)]
    insert(path, [*rows, (2000, *[None] * 6)])
    monkeypatch.delattr(scan, "_scan_exactly")
    assert_same(told(copy_of(path)), held(path))


def test_only_the_batch_with_the_misfit_changes_its_type(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY, c INT)")
    insert(path, [(number, "odd" if number == 600 else number) for number in range(2000)])
    types = [batch.rows.column("data").type.field("c") for batch in copy_of(path)]
    assert [kind_of_field(field) for field in types] == [Kind.INTEGER, Kind.JSON]


def test_long_rows_come_in_short_batches(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY, c BLOB)", "INSERT INTO t VALUES (0, zeroblob(1))")
    series = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700)"
    run(path, f"INSERT INTO t {series} SELECT i, zeroblob(100000) FROM n")
    batches = copy_of(path)
    assert sum(map(len, batches)) == 701
    assert max(len(batch) for batch in batches[1:]) < 200


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "wide.db"
    run(path, f"PRAGMA encoding = '{encoding}'", "CREATE TABLE t(id INTEGER PRIMARY KEY, c TEXT)")
    insert(path, [(1, "grüße 日本"), (2, "")])
    assert told(copy_of(path)) == [(1, "grüße 日本"), (2, "")]


def test_batches_are_plain_arrow(tmp_path: Path) -> None:
    """They can be sent elsewhere: whole, and without our own first row."""
    path = tmp_path / "plain.db"
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY, c TEXT)")
    insert(path, [(0, ""), (1, "x")])
    (batch,) = copy_of(path)
    batch.rows.validate(full=True)
    assert batch.rows.column("data").to_pylist() == [{"id": 0, "c": ""}, {"id": 1, "c": "x"}]
    assert batch.rows.schema.field("data").type == pa.struct([("id", pa.int64()), ("c", pa.string())])
