"""Reading a node: a view of its store in chunks, its changes in ranges of its log.

While a copy lasts no change is read behind its view, so that rows of the view never undo one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.relay.remote import COPY_S, Remote
from tailrace.log.batch import Batch
from tailrace.log.frame import Head
from tailrace.message import Mode
from tailrace.relay.checking import unpacked
from tailrace.relay.inquiry import Copy, Forget, Hold, Inquiry, Plan, Planned, Range, Spot, Tables
from tailrace.relay.request import Chunk
from tailrace.source.contract import Piece, Position, Table


class RelayReader:
    """A source: one node. What is kept between calls can be asked for again."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._since: Spot | None = None
        """Where the pipeline goes on, if it does."""
        self._wanted: list[str] | None = None
        self._copy: Copy | None = None
        self._may_copy = True
        """Whether the node may have a view for this pipeline."""
        self._reached: Position | None = None

    def tables(self) -> list[Table]:
        found = Tables.read(self._remote.ask(Inquiry.TABLES))
        return [Table(each.namespace, _schema(each.columns), each.key, each.rows) for each in found.tables]

    def check(self, position: Position) -> None:
        self._since = _spot(position)
        self._remote.ask(Inquiry.CHECK, self._since)

    def install(self, tables: Sequence[Table]) -> None:
        self._wanted = [table.namespace for table in tables]
        self._remote.ask(Inquiry.HOLD, Hold(consumer=self._remote.consumer, since=self._since))
        self._since = None

    def uninstall(self) -> None:
        self._remote.ask(Inquiry.RELEASE)

    def position(self) -> Position:
        return _position(Spot.read(self._remote.ask(Inquiry.WHERE)))

    def plan_copy(self, table: Table) -> list[Piece]:
        if self._copy is None or table.namespace not in self._copy.tables:
            self._copy = Copy.read(self._remote.ask(Inquiry.COPY, timeout_s=COPY_S))
            self._may_copy = True
        first, end = self._copy.tables.get(table.namespace, (0, 0))
        return [{"session": self._copy.session, "chunk": number} for number in range(first, end)]

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        wish = Chunk(session=piece["session"], chunk=piece["chunk"])
        for head, body in self._remote.frames(wish, COPY_S):  # a view may have to be taken first
            yield Batch(head.namespace, unpacked(body), Mode.COPY)

    def copied(self) -> None:
        if self._may_copy:
            self._remote.ask(Inquiry.COPIED)
            self._copy, self._may_copy = None, False

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        if _place(start) == _place(end):
            return []
        asked = Plan(since=_spot(start), upto=_spot(end), namespaces=self._wanted)
        planned = Planned.read(self._remote.ask(Inquiry.PLAN, asked))
        wanted = {"log": planned.log, "namespaces": self._wanted}
        pieces: list[dict[str, Any]] = [
            {**wanted, "start": span.start, "end": span.end, "vclock": span.vclock.encode()} for span in planned.spans
        ]
        if planned.reached is not None:
            pieces[-1]["reached"] = _position(planned.reached)
        return list(pieces)

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        wish = {name: piece[name] for name in ("log", "start", "end", "namespaces", "vclock")}
        for head, body in self._remote.frames(Range(**wish)):
            yield Batch(head.namespace, _ordered(unpacked(body), head), Mode.SYNC, head.origin)
        self._reached = piece.get("reached")

    def reached(self) -> Position | None:
        return self._reached

    def forget(self, upto: Position) -> None:
        self._remote.ask(Inquiry.FORGET, Forget(consumer=self._remote.consumer, upto=_spot(upto)))

    def close(self) -> None:
        self._remote.close()


def _ordered(rows: pa.RecordBatch, head: Head) -> pa.RecordBatch:
    """Rows whose lsn is their place in the node's log: the numbers of several origins have no order among each other.
    What they were is in `tx`: the origin, and the number of the first message of the transaction there."""
    at: Any = rows.schema.get_field_index("lsn")
    lsn: Any = pc.add(rows.column(at), pa.scalar(head.offset - head.first_lsn, pa.int64()))
    rows = rows.set_column(at, "lsn", lsn)
    if "tx" in rows.schema.names:
        return rows
    tx = f"{head.origin}:{head.first_lsn - (head.offset - head.durable)}"
    return rows.append_column("tx", pa.repeat(pa.scalar(tx, pa.string()), rows.num_rows))


def _position(spot: Spot) -> Position:
    return {"log": spot.log, "offset": spot.offset, "vclock": spot.vclock.encode()}


def _place(position: Position) -> tuple[Any, Any]:
    return position["log"], position["offset"]


def _spot(position: Position) -> Spot:
    return Spot.model_validate({name: position[name] for name in ("log", "offset", "vclock")})


def _schema(told: str) -> pa.Schema:
    raw: Any = pa.py_buffer(base64.b64decode(told))
    return pa.ipc.read_schema(raw)
