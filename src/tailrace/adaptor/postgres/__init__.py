"""PostgreSQL databases, read and written."""

from __future__ import annotations

from typing import Final

from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.postgres.options import PostgresReaderOptions, PostgresWriterOptions
from tailrace.adaptor.registry import Adaptor

ADAPTOR: Final = Adaptor(
    name="postgres",
    summary="a PostgreSQL database: tables from one snapshot, changes by logical decoding, exactly-once writes",
    reader=PostgresReaderOptions,
    writer=PostgresWriterOptions,
)
postgres = endpoint("postgres", first="url")
