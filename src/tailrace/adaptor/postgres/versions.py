"""The versions of the rows of a node's store in PostgreSQL: many are asked for and noted with one statement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import psycopg

from tailrace.adaptor.postgres import storesql
from tailrace.adaptor.versions import Mark, VersionRow, Versions

_BATCH_ROWS: Final = 10_000


class PostgresVersions(Versions):
    """The versions in one database, inside the transaction of whoever uses it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def put(self, rows: Iterable[VersionRow]) -> None:
        """What a source knows of rows that the node has got from there."""
        told = iter(rows)
        while some := list(islice(told, _BATCH_ROWS)):
            found: dict[tuple[str, str], VersionRow] = {}
            for row in some:
                found[row[:2]] = max(row, found.get(row[:2], row))
            self.write(list(found.values()), always=False)

    def write(self, rows: Sequence[VersionRow], *, always: bool) -> None:
        statement = storesql.NOTE_ALWAYS if always else storesql.NOTE_NEWER
        for begin in range(0, len(rows), _BATCH_ROWS):
            columns = [list(column) for column in zip(*rows[begin : begin + _BATCH_ROWS], strict=True)]
            self._connection.execute(statement, columns)

    def find(self, namespace: str, keys: Collection[str]) -> dict[str, Mark]:
        found = self._connection.execute(storesql.FIND_VERSIONS, (namespace, list(keys)))
        return {key: (at, origin, lsn) for key, at, origin, lsn in found}


def all_versions(connection: psycopg.Connection[Any]) -> Iterator[list[VersionRow]]:
    """All there are, many at a time, inside a transaction."""
    if connection.execute(storesql.HAS_VERSIONS).fetchone() != (True,):
        return
    with connection.cursor(name="tailrace_versions") as cursor:
        cursor.execute(storesql.ALL_VERSIONS)
        while rows := cursor.fetchmany(_BATCH_ROWS):
            yield rows
