"""SQLite databases as their users have them. Connections are short: the reader brings another copy of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions
from tailrace.adaptor.sqlite.sql import name
from tests.adaptor.contract import ChangingSource, Destination, Row


@contextmanager
def connected(path: Path | str) -> Iterator[sqlite3.Connection]:
    """A user's connection; what was done is committed at the end."""
    with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        yield connection


def run(path: Path | str, *statements: str) -> None:
    with connected(path) as connection:
        for statement in statements:
            connection.execute(statement)


def ask(path: Path | str, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connected(path) as connection:
        return connection.execute(query, parameters).fetchall()


@dataclass(frozen=True)
class SqliteSource(ChangingSource):
    """A database whose tables are made by one form of CREATE TABLE."""

    path: str
    form: str = "CREATE TABLE {}(id INTEGER PRIMARY KEY, name TEXT, amount REAL)"
    journal: str = "WAL"

    def options(self) -> SqliteReaderOptions:
        return SqliteReaderOptions(path=self.path, piece_rows=40)

    def create(self, table: str) -> str:
        run(self.path, f"PRAGMA journal_mode = {self.journal}", self.form.format(name(table)))
        return f"main.{table}"

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        statement = f"INSERT INTO {name(table)}(id, name, amount) VALUES (:id, :name, :amount)"
        with connected(self.path) as connection:
            connection.executemany(statement, rows)

    def rows(self, table: str) -> list[Row]:
        found = ask(self.path, f"SELECT id, name, amount FROM {name(table)} ORDER BY id")
        return [{"id": id_, "name": text, "amount": amount} for id_, text, amount in found]

    def update(self, table: str, id_: int, **values: Any) -> None:
        setting = ", ".join(f"{name(column)} = ?" for column in values)
        with connected(self.path) as connection:
            connection.execute(f"UPDATE {name(table)} SET {setting} WHERE id = ?", (*values.values(), id_))

    def delete(self, table: str, id_: int) -> None:
        with connected(self.path) as connection:
            connection.execute(f"DELETE FROM {name(table)} WHERE id = ?", (id_,))

    def add_column(self, table: str, column: str) -> None:
        run(self.path, f"ALTER TABLE {name(table)} ADD COLUMN {name(column)} TEXT")

    def leftovers(self) -> set[str]:
        """SQLite itself keeps `sqlite_sequence` for ever once it is there."""
        return {found for (found,) in ask(self.path, "SELECT name FROM sqlite_master WHERE name LIKE 'tailrace%'")}


@dataclass(frozen=True)
class SqliteDestination(Destination):
    path: str

    def options(self) -> SqliteWriterOptions:
        return SqliteWriterOptions(path=self.path, consumer="test")

    def rows(self, namespace: str) -> list[Row]:
        table = namespace.partition(".")[2]
        if not Path(self.path).exists():
            return []
        with connected(self.path) as connection:
            known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            if known is None:
                return []
            found = connection.execute(f"SELECT * FROM {name(table)}")
            names = [column[0] for column in found.description]
            return [dict(zip(names, values, strict=True)) for values in found]
