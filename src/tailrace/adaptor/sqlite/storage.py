"""A SQLite database as the store of a node. A view of it is a copy of its file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final

from tailrace.adaptor.sqlite import changelog, gate
from tailrace.adaptor.sqlite.catalog import find_table
from tailrace.adaptor.sqlite.conflicts import all_conflicts, drop_rival, note, resolve
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.reader import SqliteReader
from tailrace.adaptor.sqlite.versions import SqliteVersions, all_versions
from tailrace.adaptor.sqlite.writer import SqliteWriter, table_name
from tailrace.adaptor.values import read_text
from tailrace.adaptor.versions import VersionRow
from tailrace.errors import TailraceError
from tailrace.node.conflict import Conflict, Keep
from tailrace.source.contract import Position, Table

_VIEW_NAME: Final = "view.db"


@dataclass(frozen=True, slots=True)
class SqliteView:
    """A copy. It stays until its directory is removed."""

    database: Database
    piece_rows: int
    position: Position

    def reader(self) -> SqliteReader:
        return SqliteReader(self.database, self.piece_rows)

    def versions(self) -> Iterator[list[VersionRow]]:
        with self.database.reading() as connection:
            yield from all_versions(connection)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteStorage:
    """One database file. Nothing stays open between calls."""

    database: Database
    consumer: str
    keys: Mapping[str, tuple[str, ...]]
    creates: bool
    piece_rows: int
    shape_s: ClassVar = 0.0

    def open_unnoted(self) -> SqliteWriter:
        return SqliteWriter(self.database, self.consumer, self.keys, creates=self.creates, unnoted=True)

    def key_of(self, namespace: str, key: tuple[str, ...]) -> tuple[str, ...]:
        return self.keys.get(namespace, key)

    def forbid_untold(self, namespaces: Collection[str]) -> None:
        """Rows of tables without a key have only numbers of their own in each database."""
        with self.database.reading() as connection:
            tables = {namespace: find_table(connection, table_name(namespace)) for namespace in namespaces}
        for namespace, table in sorted(tables.items()):
            if table is not None and not table.primary_key and namespace not in self.keys:
                what = f"{namespace} has no primary key, by which nodes could tell its rows from others"
                hint = "give it one, name its columns with `key`, or leave it out with `namespace` at `store`"
                raise TailraceError("config.invalid", what, hint=hint)

    def shape(self) -> int:
        with self.database.reading() as connection:
            (version,) = connection.execute("PRAGMA schema_version").fetchone()
        return int(version)

    def noted(self, tables: Sequence[Table]) -> set[str]:
        with self.database.reading() as connection:
            return {each.namespace for each in tables if changelog.is_noted(connection, table_name(each.namespace))}

    @contextmanager
    def adopting(self, tables: Sequence[Table]) -> Iterator[Collection[str]]:
        """What there is goes into the changelog, so there is nothing left to tell."""
        with self.database.writing() as connection:
            connection.text_factory = read_text
            versions = SqliteVersions(connection)
            for table in tables:
                key = self.keys.get(table.namespace, ())
                changelog.adopt(connection, table_name(table.namespace), versions, key)
        yield ()

    def close_to_users(self, namespaces: Collection[str]) -> None:
        with self.database.writing() as connection:
            gate.close(connection, [table_name(namespace) for namespace in namespaces])

    def open_to_users(self) -> None:
        with self.database.writing() as connection:
            gate.open_again(connection)

    def conflicts(self) -> list[Conflict]:
        with self.database.reading() as connection:
            return all_conflicts(connection)

    def resolve(self, conflict: Conflict, keep: Keep) -> None:
        with self.database.writing() as connection:
            resolve(connection, conflict.id, keep, table_name(conflict.namespace))

    def give_way(self, conflicts: Collection[Conflict]) -> int:
        with self.database.writing() as connection:
            is_gated = gate.is_closed(connection)
            if is_gated:
                gate.open_again(connection)
            note(connection, conflicts)
            dropped = sum(drop_rival(connection, table_name(each.namespace), each) for each in conflicts)
            if is_gated:
                gate.set_closed(connection, True)
        return dropped

    def view(self, directory: str) -> SqliteView:
        path = os.path.join(directory, _VIEW_NAME)
        self.database.copy_into(path)
        copy = Database(path, self.database.busy_s)
        return SqliteView(copy, self.piece_rows, SqliteReader(copy, self.piece_rows).position())

    def close(self) -> None:
        """Nothing is open."""
