"""Tables as SQLite allows them: without rows, with NULLs in the key, values of any class, names that nobody can use."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

from tailrace.adaptor.lake import lake
from tailrace.adaptor.sqlite import sqlite
from tailrace.observe.model import Health, Kind
from tailrace.observe.pipelines import overview_of_pipeline
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Until, Watcher, run
from tailrace.transform import omit, python, remap, rename, sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = (
    "CREATE TABLE nobody(id INTEGER PRIMARY KEY, name TEXT, born DATE, x)",
    "CREATE TABLE nameless(k TEXT PRIMARY KEY, v)",
    "INSERT INTO nameless VALUES ('a', 1), (NULL, 2), (NULL, 3)",
    "CREATE TABLE days(id INTEGER PRIMARY KEY, d DATE)",
    "INSERT INTO days VALUES (1, '2024-01-01'), (2, NULL)",
    'CREATE TABLE "a/b"(id INTEGER PRIMARY KEY)',
)


class Listener(Watcher):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def ask(path: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def columns(path: Path, table: str) -> list[str]:
    return [name for (name,) in ask(path, f"SELECT name FROM pragma_table_info('{table}')")]


def unchanged(message: dict[str, Any]) -> dict[str, Any]:
    return message


def test_tables_as_sqlite_allows_them(tmp_path: Path, spark: SparkSession) -> None:
    source, copy, other, selected, own, locked = (
        tmp_path / f"{name}.db" for name in ("source", "copy", "other", "selected", "own", "locked")
    )
    execute(source, *TABLES)
    execute(locked, "CREATE TABLE days(id INTEGER PRIMARY KEY, d)")
    spec = (
        Pipeline("odd", log=str(tmp_path / "log"))
        .read(sqlite(str(source)))
        .write(sqlite(str(copy)), name="copy")
        .through(omit("x"), rename(name="called"), remap({"main.nobody": "main.somebody"}))
        .write(sqlite(str(other)), name="other", namespace="nobody")
        .through(sql("SELECT id, upper(name) AS loud FROM messages"))
        .write(sqlite(str(selected)), name="selected", namespace="nobody")
        .through(python(unchanged))
        .write(sqlite(str(own)), name="own", namespace="nobody")
        .write(sqlite(str(locked), create=False), name="locked", namespace="nobody|days")
        .write(lake(str(tmp_path / "lake")), name="lake", namespace="nobody")
        .spec()
    )
    listener = Listener()
    assert run(spec, Until.ONCE, watcher=listener, session=lambda: spark).errors == []

    assert columns(copy, "nobody") == ["id", "name", "born", "x"]
    assert columns(other, "somebody") == ["id", "called", "born"]
    assert columns(selected, "nobody") == ["id", "loud"]
    assert not own.exists(), "nobody knows what a function of one's own makes of no rows"
    found = ds.dataset(tmp_path / "lake" / "main.nobody" / "current", format="parquet")
    assert found.schema.names == ["id", "name", "born", "x"]
    assert found.count_rows() == 0
    refused = [line for line in listener.said if "main.nobody has no rows, and no table was made for it" in line]
    assert len(refused) == 1
    assert ask(locked, "SELECT * FROM days") == [(1, "2024-01-01"), (2, None)]
    left_out = [line for line in listener.said if "a/b" in line]
    assert left_out == ["main.a/b: left out: namespace 'main.a/b' is not a usable name: it looks like a path"]
    reader = overview_of_pipeline(spec).of(Kind.READER)[0]
    assert reader.health is Health.TROUBLED and reader.wrong is not None
    assert reader.wrong.code == "source.left_out" and reader.wrong.what.startswith("main.a/b is left out: namespace")
    everything = "SELECT k, v, typeof(v) FROM nameless ORDER BY rowid"
    assert ask(copy, everything) == ask(source, everything)

    execute(
        source,
        "UPDATE nameless SET v = 4 WHERE v = 3",
        "DELETE FROM nameless WHERE v = 2",
        "INSERT INTO days VALUES (3, 2.5), (4, 7), (5, '2.5')",
        "INSERT INTO nobody VALUES (1, 'ann', 2.5, x'00')",
        'DROP TABLE "a/b"',
    )
    assert run(spec, Until.ONCE, watcher=listener, session=lambda: spark).errors != [], "there is no table for nobody"
    assert overview_of_pipeline(spec).of(Kind.READER)[0].wrong is None, "it is left out no more"

    assert ask(copy, everything) == ask(source, everything)
    for query in ("SELECT id, d, typeof(d) FROM days", "SELECT id, name, born, x, typeof(born) FROM nobody"):
        assert ask(copy, query) == ask(source, query)
    assert ask(selected, "SELECT * FROM nobody") == [(1, "ANN")]
    assert ask(other, "SELECT id, called, born FROM somebody") == [(1, "ann", 2.5)]
    (row,) = ds.dataset(tmp_path / "lake" / "main.nobody" / "current", format="parquet").to_table().to_pylist()
    assert (row["id"], row["name"]) == (1, "ann")
