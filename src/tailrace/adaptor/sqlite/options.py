"""Options of a SQLite database, as a source and as a destination."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import AfterValidator, Field

from tailrace.adaptor.options import Check, ReaderOptions, Seconds, WriterOptions
from tailrace.adaptor.sqlite import probes
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.reader import SqliteReader
from tailrace.adaptor.sqlite.writer import SqliteWriter


def _file(path: str) -> str:
    """The file's full path, so that every process means the same one."""
    if not path or path.startswith(":") or "\0" in path:
        raise ValueError("a database that other processes can open is a file")
    return os.path.abspath(os.path.expanduser(path))


DatabaseFile = Annotated[str, AfterValidator(_file)]


class SqliteReaderOptions(ReaderOptions):
    """A SQLite database that is read."""

    path: DatabaseFile
    """The database file."""
    piece_rows: int = Field(default=100_000, ge=1)
    """How many rows of a table one task copies at a time."""
    busy: Seconds = 30
    """How long to wait while another program has locked the database."""

    def where(self) -> str:
        return self.path

    def open(self) -> SqliteReader:
        return SqliteReader(self._database(), self.piece_rows)

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
    consumer: str = ""
    """Under which name offsets are recorded; the pipeline fills it in."""

    def where(self) -> str:
        return self.path

    def open(self) -> SqliteWriter:
        return SqliteWriter(self._database(), self.consumer, self.key, creates=self.create)

    def probe(self) -> list[Check]:
        return probes.of_destination(self._database(), creates=self.create)

    def _database(self) -> Database:
        return Database(self.path, self.busy, "destination.unreachable")
