"""Values that an update does not tell because they are long, lie elsewhere (TOAST) and were not touched.

They are never taken for NULL. The row before has them where the table tells it; else they are asked for by key: what
the row has now is what it had, or what a later change will tell. A row that is gone by now has a later change too,
until then the field is left out of its message, which leaves it as it is at the destination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg

from tailrace.adaptor.postgres import sql
from tailrace.adaptor.postgres.catalog import TableInfo
from tailrace.adaptor.postgres.pgoutput import Cells, Flags, Ints, Rows, text_cells
from tailrace.adaptor.postgres.server import Server


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Fills in what is not told."""

    server: Server

    def filled(
        self, rows: Rows, key: Sequence[str], table: TableInfo | None
    ) -> tuple[list[Cells], Mapping[int, Flags]]:
        """The columns of `rows.data`, and where values of some are still not told."""
        data = [
            cells.instead(old, cells.unchanged() & rows.has_whole_before)
            for cells, old in zip(rows.data, rows.before, strict=True)
        ]
        untold = {at: cells.unchanged() for at, cells in enumerate(data) if cells.unchanged().any()}
        if not untold:
            return data, {0: np.zeros(len(rows.ops), np.bool_)}
        if table is not None and key:
            self._ask(rows, data, untold, key, table)
        return data, {at: cells.unchanged() for at, cells in enumerate(data) if at in untold}

    def _ask(
        self, rows: Rows, data: list[Cells], untold: Mapping[int, Flags], key: Sequence[str], table: TableInfo
    ) -> None:
        names = [column.name for column in rows.relation.columns]
        known = {column.name: column.type_name for column in table.columns}
        columns = {names[at]: at for at in untold if names[at] in known}
        if not columns or not set(key) <= set(known):
            return
        places: Ints = np.flatnonzero(np.logical_or.reduce(list(untold.values())))
        keys = list(zip(*(data[names.index(name)].take(places).text().to_pylist() for name in key), strict=True))
        query = sql.rows_by_key(table.schema, table.name, list(columns), key, [known[name] for name in key])
        asked = [list(part) for part in zip(*dict.fromkeys(keys), strict=True)]
        with self.server.session() as connection, psycopg.RawCursor(connection) as cursor:
            rows_found = cursor.execute(query, asked).fetchall()
        found: dict[Any, Any] = {row[: len(key)]: row[len(key) :] for row in rows_found}
        for number, at in enumerate(columns.values()):
            here = [(place, found[each][number]) for place, each in zip(places, keys, strict=True) if each in found]
            told = [(place, value) for place, value in here if untold[at][place]]
            if told:
                data[at] = text_cells(data[at], [place for place, _ in told], [value for _, value in told])
