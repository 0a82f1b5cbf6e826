"""Options of a SQLite database, as a source and as a destination."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from tailrace.adaptor.options import Check, FilePath, FilledIn, ReaderOptions, Seconds, WriterOptions
from tailrace.adaptor.sqlite import guard, probes
from tailrace.adaptor.sqlite.comparing import SqliteReadBack
from tailrace.adaptor.sqlite.conflicts import all_conflicts, resolve
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.reader import SqliteReader
from tailrace.adaptor.sqlite.versions import VersionRow, all_versions
from tailrace.adaptor.sqlite.writer import SqliteWriter, table_name
from tailrace.node.conflict import Conflict, Keep

_VIEW_NAME: Final = "view.db"


def _refuse_memory(path: str) -> str:
    if path.startswith(":") or path == "-" or "://" in path:
        raise ValueError("a database that other processes can open is a file")
    return path


DatabaseFile = Annotated[FilePath, BeforeValidator(_refuse_memory)]


class SqliteReaderOptions(ReaderOptions):
    """A SQLite database that is read."""

    path: DatabaseFile
    """The database file."""
    piece_rows: int = Field(default=100_000, ge=1)
    """How many rows of a table one task copies at a time."""
    busy: Seconds = 30
    """How long to wait while another program has locked the database."""
    pipeline: str = ""
    """For which pipeline changes are noted; it fills it in itself."""

    def where(self) -> str:
        return self.path

    def open(self) -> SqliteReader:
        return SqliteReader(self._database(), self.piece_rows, self.pipeline)

    def view_into(self, directory: str) -> SqliteReaderOptions:
        path = os.path.join(directory, _VIEW_NAME)
        self._database().copy_into(path)
        return self.model_copy(update={"path": path})

    def probe(self) -> list[Check]:
        return probes.of_source(self._database())

    def _database(self) -> Database:
        return Database(self.path, self.busy)


class SqliteWriterOptions(WriterOptions):
    """A SQLite database that is written."""

    path: DatabaseFile
    """The database file."""
    create: bool = True
    """Whether to create the database, its tables and their columns where they are missing."""
    key: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The key columns of a namespace where the source does not say, or others are wanted."""
    busy: Seconds = 30
    """How long to wait while another program has locked the database."""
    consumer: FilledIn = ""
    """Under which name offsets are recorded; the pipeline fills it in."""

    def where(self) -> str:
        return self.path

    def open(self) -> SqliteWriter:
        return SqliteWriter(self._database(), self.consumer, self.key, creates=self.create)

    def open_unnoted(self) -> SqliteWriter:
        return SqliteWriter(self._database(), self.consumer, self.key, creates=self.create, unnoted=True)

    def of_view(self, directory: str) -> SqliteWriterOptions:
        return self.model_copy(update={"path": os.path.join(directory, _VIEW_NAME)})

    def versions(self) -> Iterator[list[VersionRow]]:
        with self._database().reading() as connection:
            yield from all_versions(connection)

    def close_to_users(self, namespaces: Iterable[str]) -> None:
        with self._database().writing() as connection:
            guard.close(connection, [table_name(namespace) for namespace in namespaces])

    def open_to_users(self) -> None:
        with self._database().writing() as connection:
            guard.open_again(connection)

    def conflicts(self) -> list[Conflict]:
        with self._database().reading() as connection:
            return all_conflicts(connection)

    def resolve(self, conflict: Conflict, keep: Keep) -> None:
        with self._database().writing() as connection:
            resolve(connection, conflict.id, keep, table_name(conflict.namespace))

    def read_back(self) -> SqliteReadBack:
        return SqliteReadBack(self._database(), self.key)

    def probe(self) -> list[Check]:
        return probes.of_destination(self._database(), creates=self.create)

    def _database(self) -> Database:
        return Database(self.path, self.busy, "destination.unreachable")
