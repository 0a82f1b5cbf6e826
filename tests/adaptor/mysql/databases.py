"""MySQL databases as their users have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql

from tailrace.adaptor.mysql.options import MysqlReaderOptions, MysqlWriterOptions
from tailrace.adaptor.mysql.server import parse_url
from tailrace.adaptor.mysql.sql import name
from tests.adaptor.contract import ChangingSource, Destination, Row


@contextmanager
def connected(url: str) -> Iterator[pymysql.cursors.Cursor]:
    """A user's connection; what was done is committed at the end."""
    zone = "SET time_zone = '+00:00'"
    parts = {**parse_url(url), "charset": "utf8mb4", "init_command": zone, "ssl_disabled": True}
    with closing(pymysql.connect(**parts)) as connection, connection.cursor() as cursor:
        yield cursor
        connection.commit()


def run(url: str, *statements: str) -> None:
    with connected(url) as cursor:
        for statement in statements:
            cursor.execute(statement)


def ask(url: str, query: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    with connected(url) as cursor:
        cursor.execute(query, parameters)
        return list(cursor.fetchall())


@dataclass(frozen=True)
class MysqlSource(ChangingSource):
    """A database whose tables are made by one form of CREATE TABLE."""

    url: str
    form: str = "CREATE TABLE {}(id bigint PRIMARY KEY, name text, amount double)"

    def options(self) -> MysqlReaderOptions:
        return MysqlReaderOptions(url=self.url, piece_rows=40)  # type: ignore[arg-type]

    def create(self, table: str) -> str:
        run(self.url, self.form.format(name(table)))
        return f"{parse_url(self.url)['database']}.{table}"

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        statement = f"INSERT INTO {name(table)}(id, name, amount) VALUES (%s, %s, %s)"
        with connected(self.url) as cursor:
            if rows:
                cursor.executemany(statement, [(row["id"], row["name"], row["amount"]) for row in rows])
            if len(rows) > 40:
                cursor.execute(f"ANALYZE TABLE {name(table)}")  # so that the server knows how many there are

    def rows(self, table: str) -> list[Row]:
        found = ask(self.url, f"SELECT id, name, amount FROM {name(table)} ORDER BY id")
        return [{"id": id_, "name": text, "amount": amount} for id_, text, amount in found]

    def update(self, table: str, id_: int, **values: Any) -> None:
        setting = ", ".join(f"{name(column)} = %s" for column in values)
        with connected(self.url) as cursor:
            cursor.execute(f"UPDATE {name(table)} SET {setting} WHERE id = %s", (*values.values(), id_))

    def delete(self, table: str, id_: int) -> None:
        with connected(self.url) as cursor:
            cursor.execute(f"DELETE FROM {name(table)} WHERE id = %s", (id_,))

    def add_column(self, table: str, column: str) -> None:
        run(self.url, f"ALTER TABLE {name(table)} ADD COLUMN {name(column)} text")

    def leftovers(self) -> set[str]:
        return {f"{schema}.{table}" for schema, table in ask(self.url, _OURS)}


_OURS = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_NAME LIKE 'tailrace%'"


@dataclass(frozen=True)
class MysqlDestination(Destination):
    url: str

    def options(self) -> MysqlWriterOptions:
        return MysqlWriterOptions(url=self.url, consumer="test")  # type: ignore[arg-type]

    def rows(self, namespace: str) -> list[Row]:
        schema, _, table = namespace.partition(".")
        known = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        with connected(self.url) as cursor:
            if not cursor.execute(known, (schema, table)):
                return []
            cursor.execute(f"SELECT * FROM {name(schema, table)}")
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
