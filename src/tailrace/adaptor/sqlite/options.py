"""Options of a SQLite database, as a source and as a destination."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from tailrace.adaptor.options import Check, FilePath, FilledIn, ReaderOptions, Seconds, WriterOptions
from tailrace.adaptor.sqlite import probes
from tailrace.adaptor.sqlite.comparing import SqliteReadBack
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.reader import SqliteReader
from tailrace.adaptor.sqlite.storage import SqliteStorage
from tailrace.adaptor.sqlite.writer import SqliteWriter

_PIECE_ROWS: Final = 100_000


def _refuse_memory(path: str) -> str:
    if path.startswith(":") or path == "-" or "://" in path:
        raise ValueError("a database that other processes can open is a file")
    return path


DatabaseFile = Annotated[FilePath, BeforeValidator(_refuse_memory)]


class SqliteReaderOptions(ReaderOptions):
    """A SQLite database that is read."""

    path: DatabaseFile
    """The database file."""
    piece_rows: int = Field(default=_PIECE_ROWS, ge=1)
    """How many rows of a table one task copies at a time."""
    busy: Seconds = 30
    """How long to wait while another program has locked the database."""
    pipeline: str = ""
    """For which pipeline changes are noted; it fills it in itself."""

    def where(self) -> str:
        return self.path

    def open(self) -> SqliteReader:
        return SqliteReader(self._database(), self.piece_rows, self.pipeline)

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

    def open_storage(self, reading: ReaderOptions) -> SqliteStorage:
        """This database as the store of a node."""
        if self.create:
            self._database().make()
        self._database().share()
        rows = reading.piece_rows if isinstance(reading, SqliteReaderOptions) else _PIECE_ROWS
        return SqliteStorage(
            database=self._database(), consumer=self.consumer, keys=self.key, creates=self.create, piece_rows=rows
        )

    def read_back(self) -> SqliteReadBack:
        return SqliteReadBack(self._database(), self.key)

    def probe(self) -> list[Check]:
        return probes.of_destination(self._database(), creates=self.create)

    def _database(self) -> Database:
        return Database(self.path, self.busy, "destination.unreachable")
