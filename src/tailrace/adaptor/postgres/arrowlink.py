"""A connection that answers in Arrow columns, kept from one question to the next: to make one takes a tenth of a
second, most of what a small question costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.adaptor.postgres.server import Server

if TYPE_CHECKING:
    from adbc_driver_manager import dbapi


class ArrowLink:
    """Made when it is first used, and again after it failed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: dbapi.Connection | None = None

    def answer(self, query: str) -> Iterator[pa.RecordBatch]:
        """What is answered to a query."""
        with self._server.errors():
            if self._connection is None:
                self._connection = self._server.arrow()
            try:
                with self._connection.cursor() as cursor:
                    cursor.execute(query)
                    yield from cursor.fetch_record_batch()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
