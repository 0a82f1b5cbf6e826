"""A peer that is asked directly, without a network, and yet with a network's faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import TypeVar

from tailrace.errors import TailraceError
from tailrace.sync.exchange import ROW_STAMP, Ack, Key, Known, Part, Pending, Receipt, RowBatch, Tracker
from tailrace.sync.round import Progress, sync_round
from tailrace.sync.store import CALLS_US, WE_CALL, SyncStore

Answer = TypeVar("Answer")


class Fault(Enum):
    """What becomes of a request."""

    NONE = auto()
    REQUEST_LOST = auto()
    RESPONSE_LOST = auto()
    REPEATED = auto()


class DirectPeer:
    """Another store, as the network would let one see it."""

    def __init__(self, caller: SyncStore, store: SyncStore, faults: Iterable[Fault] = ()) -> None:
        self._own = caller
        self._caller = caller.node_id
        self._store = store
        self.node_id = store.node_id
        self.tables = {table_id: shape.entity.table for table_id, shape in store.shapes.items()}
        self._faults = iter(faults)

    def pending_tables(self) -> Pending:
        def ask() -> Pending:
            self._store.process_changes()
            empty = [table for table in self._store.shapes if self._store.is_empty(table)]
            return self._store.pending(self._caller)._replace(empty=empty)

        return self._asked(ask)

    def pending_trackers(self, table_id: int, after: Key | None, limit: int) -> list[Tracker]:
        return self._asked(lambda: self._store.pending_trackers(table_id, self._caller, after, limit))

    def mark_processed(self, table_id: int, acks: Sequence[Ack], count: int | None = None) -> None:
        self._asked(lambda: self._store.mark_processed(table_id, self._caller, acks, count))

    def already_received(self, table_id: int, trackers: Sequence[Tracker]) -> Known:
        return self._asked(lambda: self._store.already_received(table_id, self._caller, trackers))

    def pending_rows(self, table_id: int, after: Key | None, limit: int, part: Part = Part.ALL) -> RowBatch:
        rows = self._asked(lambda: self._store.pending_rows(table_id, self._caller, after, limit, part))
        return _as_told(rows, self._own, table_id)

    def receive(self, table_id: int, batch: RowBatch) -> Receipt:
        def take() -> Receipt:
            receipt = self._store.receive(table_id, self._caller, _as_told(batch, self._store, table_id))
            if receipt.older:
                self._store.process_changes()
            return self._store.as_told(table_id, self._caller, receipt)

        return self._asked(take)

    def _asked(self, request: Callable[[], Answer]) -> Answer:
        fault = next(self._faults, Fault.NONE)
        if fault is Fault.REQUEST_LOST:
            raise TailraceError("sync.unreachable", "the request was lost", hint="try again")
        answer = request()
        if fault is Fault.REPEATED:
            answer = request()
        if fault is Fault.RESPONSE_LOST:
            raise TailraceError("sync.unreachable", "the response was lost", hint="try again")
        return answer


def _as_told(batch: RowBatch, receiver: SyncStore, table_id: int) -> RowBatch:
    """Rows as they come over a wire: without columns that the receiver does not have, of which it hears, though."""
    known = receiver.shape(table_id).column_names
    places = [place for place, name in enumerate(batch.columns) if name in known]
    stamps = range(len(batch.columns), len(batch.columns) + len(ROW_STAMP))
    rows = [tuple(row[place] for place in (*places, *stamps)) for row in batch.rows]
    columns = tuple(batch.columns[place] for place in places)
    told = RowBatch(columns, rows, frozenset(batch.columns) - set(columns), was_cut=batch.was_cut)
    told.count = batch.count
    return told


def meet(one: SyncStore, other: SyncStore) -> None:
    """Let two nodes know each other; `one` calls."""
    one.meet(other.node_id, WE_CALL)
    other.meet(one.node_id, CALLS_US)


def sync(one: SyncStore, other: SyncStore, faults: Iterable[Fault] = ()) -> Progress:
    """A round that `one` makes with `other`; raises if a fault cuts it."""
    meet(one, other)
    return sync_round(one, DirectPeer(one, other, faults))
