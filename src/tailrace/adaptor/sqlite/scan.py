"""One query as Arrow columns: by the ADBC driver where all values fit their kinds, else exactly, value by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.kinds import Kind, all_fit, type_of
from tailrace.adaptor.values import Value, to_json


@dataclass(frozen=True, slots=True)
class Query:
    """Which expressions of which rows, in which order."""

    expressions: tuple[str, ...]
    kinds: tuple[Kind, ...]
    source: str
    where: tuple[str, ...]
    parameters: tuple[Value, ...]
    order: tuple[str, ...]
    rowid_at: int | None = None
    """Which expression is the rowid, when that is the order."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows found, as columns, each with the kind it turned out to have."""

    columns: list[pa.Array[Any]]
    kinds: tuple[Kind, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)


def scan(database: Database, query: Query, rows_max: int) -> Answer:
    """The first rows of a query. No value is ever changed: a column of mixed classes comes back as JSON text."""
    is_quick = Kind.JSON not in query.kinds and not database.is_shared
    answer = _scan_quickly(database, query, rows_max) if is_quick else None
    return answer or _scan_exactly(database, query, rows_max)


def _scan_quickly(database: Database, query: Query, rows_max: int) -> Answer | None:
    """The rows by ADBC, None when a value does not fit. Its errors say little, so what fails is tried the other way."""
    from adbc_driver_manager import Error

    by_rowid = query.rowid_at is not None
    text = sql.typed(query.expressions, query.kinds, query.source, query.where, query.order, by_rowid=by_rowid)
    with_ours = rows_max + 1
    try:
        table = database.arrow(text, [*query.parameters, with_ours], with_ours)
    except (Error, OSError, pa.ArrowException):
        return None
    columns = [_whole(column)[1:] for column in table.columns]
    misfit: Any = columns.pop().cast(pa.bool_())
    if pc.any(misfit).as_py() or not all(map(_sound, columns, query.kinds)):
        return None
    if query.rowid_at is not None and not _rises(columns[query.rowid_at]):
        return None
    return Answer(columns, query.kinds)


def _whole(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    whole: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return cast("pa.Array[Any]", whole)


def _rises(column: pa.Array[Any]) -> bool:
    """Whether rows came in order; the driver's query trusts SQLite to read a table from its beginning to its end."""
    return bool(np.all(np.diff(column.to_numpy()) > 0))


def _sound(column: pa.Array[Any], kind: Kind) -> bool:
    if column.type != type_of(kind):
        return False
    if kind is Kind.TEXT:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return False
    return True


def _scan_exactly(database: Database, query: Query, rows_max: int) -> Answer:
    text = sql.select(query.expressions, query.source, query.where, query.order)
    with database.reading(exact=True) as connection:
        rows = connection.execute(text, [*query.parameters, rows_max]).fetchall()
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(query.kinds)
    kinds = tuple(
        kind if all_fit(kind, column) else Kind.JSON for column, kind in zip(columns, query.kinds, strict=True)
    )
    arrays = [_array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return Answer(arrays, kinds)


def _array(values: Sequence[Any], kind: Kind) -> pa.Array[Any]:
    if kind is Kind.JSON:
        return pa.array([to_json(value) for value in values], pa.string())
    return pa.array(values, type_of(kind))
