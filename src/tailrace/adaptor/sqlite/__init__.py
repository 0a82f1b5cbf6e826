"""SQLite databases, read and written."""

from __future__ import annotations

from typing import Final

from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.registry import Adaptor
from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions

ADAPTOR: Final = Adaptor(
    name="sqlite",
    summary="a SQLite database: tables by key ranges, changes by triggers, exactly-once writes",
    reader=SqliteReaderOptions,
    writer=SqliteWriterOptions,
)
sqlite = endpoint("sqlite", first="path")
