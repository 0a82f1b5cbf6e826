"""Changes: the changelog's rows as batches, in its order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.sqlite import changelog, sql
from tailrace.adaptor.sqlite.catalog import SCHEMA
from tailrace.adaptor.sqlite.changelog import State, Version
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.kinds import Kind, field_of
from tailrace.adaptor.sqlite.scan import Answer, Query, scan
from tailrace.errors import TailraceError
from tailrace.log.batch import TIMESTAMP, Batch, with_key
from tailrace.message import Mode, Op
from tailrace.source.contract import Piece, Position

PIECE_ROWS: Final = 50_000
_FIRST_ROWS: Final = 512
_BATCH_ROWS_MAX: Final = 20_000
_BATCH_BYTES: Final = 16 << 20
_HEAD: Final = ("seq", "op", "at")


def position(state: State) -> Position:
    """Where the changes end, as the pipeline keeps it."""
    return {"seq": state.last, "id": state.id}


def plan(state: State, start: Position, end: Position, path: str) -> list[Piece]:
    """Changes in pieces of bounded length."""
    for place in (start, end):
        check(state, place, path)
    numbers = range(start["seq"], end["seq"], PIECE_ROWS)
    return [{"id": state.id, "after": after, "upto": min(after + PIECE_ROWS, end["seq"])} for after in numbers]


def check(state: State | None, place: Position, path: str) -> State:
    """Refuse a position that the changelog cannot go on from."""
    if state is None:
        raise _lost(path, "it has no changelog any more")
    if state.is_broken:
        raise _lost(path, "its changes are numbered from the beginning again; was sqlite_sequence emptied?")
    if place["id"] != state.id:
        raise _lost(path, "its changelog is not the one that was read before")
    if place["seq"] > state.last:
        raise _lost(path, f"its changelog ends at {state.last}, but changes up to {place['seq']} were read from it")
    return state


def read(database: Database, piece: Piece) -> Iterator[Batch]:
    """The changes of a piece, table by table."""
    with database.reading() as connection:
        _check_piece(connection, piece, database.path)
        versions = changelog.versions(connection)
        renamed = changelog.renamed(connection)
        found = connection.execute(sql.CHANGED_TABLES, (piece["after"], piece["upto"])).fetchall()
    for tbl, first, last in found:
        if tbl not in renamed:
            yield from _read_table(database, versions[tbl], first - 1, last)
    with database.reading() as connection:  # all of it was there until now
        _check_piece(connection, piece, database.path)


def _check_piece(connection: sqlite3.Connection, piece: Piece, path: str) -> None:
    state = check(changelog.state(connection), {"seq": piece["upto"], "id": piece["id"]}, path)
    if piece["after"] < state.forgotten:
        raise _lost(path, f"its changelog begins after {state.forgotten}; {piece['after']} was asked for")


def _read_table(database: Database, version: Version, after: int, upto: int) -> Iterator[Batch]:
    rows_max = _FIRST_ROWS
    while after < upto:
        answer = scan(database, _query(version, after, upto), rows_max)
        if not len(answer):
            return
        yield _batch(version, answer)
        after = answer.columns[0][-1].as_py()
        rows_max = max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES * len(answer) // max(1, answer.nbytes)))


def _query(version: Version, after: int, upto: int) -> Query:
    kinds = tuple(version.kinds.values())
    columns = (*_HEAD, *sql.change_columns("n", len(kinds)), *sql.change_columns("o", len(kinds)))
    return Query(
        expressions=tuple(map(sql.column, columns)),
        kinds=(*(Kind.INTEGER for _ in _HEAD), *kinds, *kinds),
        source="tailrace_changelog",
        where=("seq > ?", "seq <= ?", "tbl = ?"),
        parameters=(after, upto, version.tbl),
        order=("seq",),
        rowid_at=0,
    )


def _batch(version: Version, answer: Answer) -> Batch:
    seq, op, at = answer.columns[:3]
    width = len(version.kinds)
    fields = [
        field_of(name, kind) for name, kind in zip((*version.kinds, *version.kinds), answer.kinds[3:], strict=True)
    ]
    columns: dict[str, pa.Array[Any]] = {
        "op": op.cast(pa.int8()),
        "timestamp": pc.max_element_wise(at, pa.scalar(0, pa.int64())).cast(TIMESTAMP),
        "lsn": seq,
        "data": pa.StructArray.from_arrays(answer.columns[3 : 3 + width], fields=fields[:width]),
    }
    inserted = pc.equal(op, pa.scalar(int(Op.INSERT), pa.int64()))
    if not pc.all(inserted).as_py():
        before = pa.StructArray.from_arrays(answer.columns[3 + width :], fields=fields[width:], mask=inserted)
        columns["before"] = before
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Batch(f"{SCHEMA}.{version.name}", with_key(rows, version.key), Mode.SYNC)


def _lost(path: str, why: str) -> TailraceError:
    what = f"changes of {path} cannot be read on from where they were: {why}"
    return TailraceError("source.position_lost", what, hint="copy the source again, into a new log")
