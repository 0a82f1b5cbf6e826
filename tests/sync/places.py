"""Databases as their applications see them, in both dialects."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from tailrace.sync.database import Database, open_database
from tailrace.sync.entity import Entity
from tailrace.sync.names import Dialect
from tailrace.sync.store import SyncStore


@dataclass
class Place(ABC):
    """One database and the application that uses it; its own connections know nothing of sync."""

    address: str
    opened: list[Database] = field(default_factory=list)

    dialect: ClassVar[Dialect]

    @cached_property
    @abstractmethod
    def connection(self) -> Any:
        """The application's own."""

    @abstractmethod
    def run(self, *statements: str) -> None:
        """The application changes something, all in one transaction."""

    @abstractmethod
    def ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The application asks, or changes something with values."""

    @property
    def is_postgres(self) -> bool:
        return self.dialect is Dialect.POSTGRES

    def database(self) -> Database:
        self.opened.append(open_database(self.address))
        return self.opened[-1]

    def install(self, *entities: Entity) -> SyncStore:
        return SyncStore.install(self.database(), entities)

    def close(self) -> None:
        self.connection.close()
        for database in self.opened:
            database.close()


class SqlitePlace(Place):
    dialect = Dialect.SQLITE

    @cached_property
    def connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.address, timeout=30, isolation_level=None)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = OFF")  # the application's; sync has its own
        return connection

    def run(self, *statements: str) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                self.connection.execute(statement)
            self.connection.execute("COMMIT")
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise

    def ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, tuple(values)).fetchall()


class PostgresPlace(Place):
    dialect = Dialect.POSTGRES

    @cached_property
    def connection(self) -> psycopg.Connection[Any]:
        return self.connect()

    def connect(self) -> psycopg.Connection[Any]:
        """A further connection of the application."""
        return psycopg.connect(self.address, autocommit=True)

    def run(self, *statements: str) -> None:
        with self.connection.transaction():
            for statement in statements:
                self.connection.execute(statement.encode())

    def ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        text = query.replace("%", "%%").replace("?", "%s") if values else query
        cursor = self.connection.execute(text.encode(), tuple(values) or None)
        return cursor.fetchall() if cursor.description else []


def sqlite_place(directory: Path, name: str) -> SqlitePlace:
    return SqlitePlace(str(directory / f"{name}.db"))
