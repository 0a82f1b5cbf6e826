"""PostgreSQL databases as their users have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from tailrace.adaptor.postgres.options import PostgresReaderOptions, PostgresWriterOptions
from tests.adaptor.contract import ChangingSource, Destination, Row


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A user's connection; what was done is committed at the end."""
    with psycopg.connect(url, options="-c TimeZone=UTC") as connection:
        yield connection


def run(url: str, *statements: str) -> None:
    with connected(url) as connection:
        for statement in statements:
            connection.execute(statement)


def ask(url: str, query: Any, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connected(url) as connection:
        return connection.execute(query, parameters).fetchall()


@dataclass(frozen=True)
class PostgresSource(ChangingSource):
    """A database whose tables are made by one form of CREATE TABLE."""

    url: str
    form: str = "CREATE TABLE {}(id bigint PRIMARY KEY, name text, amount double precision)"
    slot: str = "tailrace_test"
    changes: str = "slot"

    def options(self) -> PostgresReaderOptions:
        given: dict[str, Any] = {"url": self.url, "slot": self.slot_name, "changes": self.changes, "piece_rows": 40}
        return PostgresReaderOptions(**given, pipeline="test")

    @property
    def slot_name(self) -> str:
        """Slots belong to the server, so each database's has a name of its own."""
        return f"{self.slot}_{self.url.rpartition('/')[2]}"

    def create(self, table: str) -> str:
        with connected(self.url) as connection:
            connection.execute(sql.SQL(self.form).format(sql.Identifier(table), sql.Literal(table)))
        return f"public.{table}"

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        statement = sql.SQL("INSERT INTO {}(id, name, amount) VALUES (%(id)s, %(name)s, %(amount)s)")
        with connected(self.url) as connection, connection.cursor() as cursor:
            cursor.executemany(statement.format(sql.Identifier(table)), rows)
            cursor.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table)))  # pieces go by what the server knows

    def rows(self, table: str) -> list[Row]:
        query = sql.SQL("SELECT id, name, amount FROM {} ORDER BY id").format(sql.Identifier(table))
        return [{"id": id_, "name": text, "amount": amount} for id_, text, amount in ask(self.url, query)]

    def update(self, table: str, id_: int, **values: Any) -> None:
        setting = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in values)
        with connected(self.url) as connection:
            statement = sql.SQL("UPDATE {} SET {} WHERE id = %s").format(sql.Identifier(table), setting)
            connection.execute(statement, (*values.values(), id_))

    def delete(self, table: str, id_: int) -> None:
        with connected(self.url) as connection:
            connection.execute(sql.SQL("DELETE FROM {} WHERE id = %s").format(sql.Identifier(table)), (id_,))

    def add_column(self, table: str, column: str) -> None:
        with connected(self.url) as connection:
            statement = sql.SQL("ALTER TABLE {} ADD COLUMN {} text")
            connection.execute(statement.format(sql.Identifier(table), sql.Identifier(column)))

    def leftovers(self) -> set[str]:
        query = """
            SELECT slot_name::text FROM pg_replication_slots WHERE slot_name = %s
            UNION ALL SELECT pubname FROM pg_publication
            UNION ALL SELECT nspname FROM pg_namespace WHERE nspname = 'tailrace'
            UNION ALL SELECT tgname FROM pg_trigger WHERE starts_with(tgname, 'tailrace')
        """
        return {name for (name,) in ask(self.url, query, (self.slot_name,))}


@dataclass(frozen=True)
class PostgresDestination(Destination):
    url: str

    def options(self) -> PostgresWriterOptions:
        return PostgresWriterOptions(url=self.url, consumer="test")  # type: ignore[arg-type]

    def rows(self, namespace: str) -> list[Row]:
        schema, _, table = namespace.partition(".")
        with connected(self.url) as connection:
            named = sql.Identifier(schema, table)
            known = connection.execute("SELECT to_regclass(%s)", (named.as_string(connection),)).fetchone()
            if known == (None,):
                return []
            found = connection.execute(sql.SQL("SELECT * FROM {}").format(named))
            names = [column.name for column in found.description or ()]
            return [dict(zip(names, values, strict=True)) for values in found]
