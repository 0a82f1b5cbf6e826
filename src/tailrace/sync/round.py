"""A round of sync with one other node: what it has for us, what we have for it, table by table.

Tables of a lower batch come first, and no other begins before they are done in both directions. Where they have got
something meanwhile it is their turn again, and rows that were asked for already are left. A round may be cut at any
point: what was acknowledged stays so, and the next one goes on with what was not.

A deletion may take rows with it that refer to the row, and that its node has moved away from it before. So deletions of
tables to which others refer come last, whatever their batch: after all rows, and after the deletions of what refers to
them.

A table that only one of the two has is left out, with a warning: nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, Protocol, TypeVar

from tailrace.ahead import one_ahead
from tailrace.errors import TailraceError
from tailrace.sync.exchange import Ack, Acks, Key, Known, Part, Pending, Receipt, RowBatch, Tracker
from tailrace.sync.pagesize import PageSize
from tailrace.sync.shape import Shape
from tailrace.sync.store import SyncStore


class Peer(Protocol):
    """Another node, as this one may ask it. Each call may raise, and may have been done even so."""

    @property
    def node_id(self) -> int: ...

    @property
    def tables(self) -> Mapping[int, str] | None:
        """The tables that it syncs, by number; None when it does not say."""

    def pending_tables(self) -> Pending:
        """The tables of which it has something for us, and those of which it never had a row."""

    def pending_trackers(self, table_id: int, after: Key | None, limit: int) -> list[Tracker]: ...

    def mark_processed(self, table_id: int, acks: Sequence[Ack], count: int | None = None) -> None:
        """We have these versions, or do not want them; and what we have counted by then."""

    def already_received(self, table_id: int, trackers: Sequence[Tracker]) -> Known: ...

    def pending_rows(self, table_id: int, after: Key | None, limit: int, part: Part = Part.ALL) -> RowBatch:
        """Only if it says of which tables it has nothing but deletions it can be asked for a part."""

    def receive(self, table_id: int, batch: RowBatch) -> Receipt: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """What a round has done so far."""

    fetched: int = 0
    sent: int = 0
    refused: int = 0
    """Rows that we refused, that were refused there, or that are too large to be sent."""
    older: int = 0
    """Rows for which the receiver had a newer version."""
    left: int = 0
    """Rows that the receiver can neither take nor keep; their sender keeps them, and sends them again."""
    warnings: tuple[str, ...] = ()
    """What is left, and why; for people."""


Told = TypeVar("Told")
_PASSES_MAX: Final = 10
"""Who changes lower batches all the time does not make a round last for ever."""

Report = Callable[[str, Progress], None]
"""Told the table and what was done so far, after each batch."""


def sync_round(store: SyncStore, peer: Peer, report: Report = lambda _table, _progress: None) -> Progress:
    """Exchange everything once."""
    progress, is_whole, aside = Progress(), False, dict[str, str]()
    for _ in range(_PASSES_MAX):
        progress, is_whole = _pass(store, peer, report, progress, aside)
        if is_whole:
            break
    progress = replace(progress, warnings=(*progress.warnings, *aside.values()))
    if progress.fetched:  # rows may have come before those to which they refer
        store.process_changes()
    return progress


def _pass(
    store: SyncStore, peer: Peer, report: Report, progress: Progress, aside: dict[str, str]
) -> tuple[Progress, bool]:
    """Exchange what there is, up to a table that has to stand back; whether there was none. By table, `aside` hears of
    rows that are too large."""
    store.process_changes()
    told = peer.pending_tables()
    theirs, empty_there = told.tables, told.empty
    ours = store.pending_tables(peer.node_id)
    late = store.referring.keys()
    common = [shape for shape in store.by_batch() if peer.tables is None or shape.table_id in peer.tables]
    failing = [error.what for error in store.failing.errors()]
    progress = replace(progress, warnings=(*failing, *_left_out(store, peer, theirs, ours)))
    left = _Left(aside)
    waiting = [shape for shape in common if shape.table_id in theirs or shape.table_id in ours]
    for shape in waiting:  # in the order of their batches: no other one begins before they are done
        lower = {each.table_id for each in common if each.entity.batch < shape.entity.batch}
        part = Part.ROWS if shape.table_id in late else Part.ALL
        exchange = _Exchange(store, peer, shape, left, report, _Turn(lower, late, part))
        before = progress
        if shape.table_id in theirs:
            progress = exchange.fetch(progress, part if told.gone is not None else Part.ALL)
        if progress.older != before.older and shape.entity.is_told_by_hooks:
            store.process_changes()
        if shape.table_id in ours or progress.older != before.older:  # what was older there gets what is newer here
            before = progress
            progress = exchange.send(progress, is_empty=shape.table_id in empty_there)
            if progress.older != before.older:
                progress = exchange.fetch(progress, part if told.gone is not None else Part.ALL)
        if exchange.stands_back:
            return progress, False
    gone = [shape for shape in waiting if shape.table_id in late]
    for shape in sorted(gone, key=lambda each: len(store.referring[each.table_id])):  # those that refer to others first
        before, turn = progress, _Turn.of_deletions(store, shape.table_id)
        exchange = _Exchange(store, peer, shape, left, report, turn)
        if shape.table_id in theirs and told.gone is not None:
            progress = exchange.fetch(progress, Part.DELETIONS)
        if shape.table_id in ours:
            progress = exchange.send(progress, is_empty=True)
        if exchange.stands_back or progress.older != before.older:  # what was older gets what is newer
            return progress, False
    return progress, True


def _left_out(store: SyncStore, peer: Peer, theirs: Sequence[int], ours: Sequence[int]) -> Iterator[str]:
    """Tables that have something for the other side, which does not have them."""
    for table_id in ours:
        if peer.tables is not None and table_id not in peer.tables:
            name = store.shape(table_id).entity.table
            yield f"table {name} ({table_id}) is not synced at the other node, so its rows wait here; declare it there"
    for table_id in theirs:
        if table_id not in store.shapes:
            name = (peer.tables or {}).get(table_id, "")
            yield f"table {name} ({table_id}) is not synced here, so its rows wait there; declare it here"


@dataclass(frozen=True, slots=True)
class _Left:
    """Tables of which rows were left, and nobody waits until they are taken; or put aside."""

    aside: dict[str, str]
    there: set[int] = field(default_factory=set)
    here: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Turn:
    """When it is a table's turn: while nothing is pending of those before it."""

    before: Collection[int]
    later: Collection[int]
    """Tables of which deletions do not count, since they come later."""
    part: Part = Part.ALL

    @classmethod
    def of_deletions(cls, store: SyncStore, table_id: int) -> _Turn:
        """After all that refers to the table; in a circle the deletions of one table have to come first."""
        before = store.referring[table_id]
        circle = [each for each in before if table_id in store.referring.get(each, ())]
        return cls(before, circle, Part.DELETIONS)


@dataclass(frozen=True, slots=True)
class _Page:
    """Rows that were asked for."""

    batch: RowBatch
    is_last: bool
    asked_s: float


class _Exchange:
    """The exchange of one table. Of many rows, some are asked for, some are taken and some confirmed at one time."""

    def __init__(self, store: SyncStore, peer: Peer, shape: Shape, left: _Left, report: Report, turn: _Turn) -> None:
        self._store = store
        self._peer = peer
        self._shape = shape
        self._report = report
        self._table = shape.table_id
        self._turn = turn
        self._left = left
        self.stands_back = False
        """Whether rows were left because there was something by then that comes before them."""
        self._size = PageSize(shape)

    def fetch(self, progress: Progress, part: Part) -> Progress:
        """What the other node has for this one."""
        store, peer, table = self._store, self._peer, self._table
        if part is not Part.DELETIONS and not store.is_empty(table):
            for trackers in self._pages(lambda after, limit: peer.pending_trackers(table, after, limit)):
                known = store.already_received(table, peer.node_id, trackers)
                if known.trackers:
                    self._confirm([Ack(each) for each in known.trackers], known.count)
        pages = self._row_pages(
            lambda after, limit: self._in_turn(
                peer.pending_rows(table, after, limit, part), peer.pending_tables, self._left.there
            )
        )
        taken = self._taken(pages, lambda batch: store.receive(table, peer.node_id, batch))
        with closing(taken):
            for batch, receipt in taken:
                self._confirm(_acks(self._shape, batch, receipt), receipt.count)
                progress = self._told(_counted(progress, receipt, fetched=len(batch)), receipt, self._left.there)
        return progress

    def send(self, progress: Progress, *, is_empty: bool) -> Progress:
        """What this node has for the other one."""
        store, table, node = self._store, self._table, self._peer.node_id
        if not is_empty:
            for trackers in self._pages(lambda after, limit: store.pending_trackers(table, node, after, limit)):
                known = self._known(trackers)
                if known.trackers:
                    store.mark_processed(table, node, [Ack(each) for each in known.trackers], known.count)
        pages = self._row_pages(
            lambda after, limit: self._in_turn(
                store.pending_rows(table, node, after, limit, self._turn.part),
                lambda: store.pending(node),
                self._left.here,
            )
        )
        taken = self._taken(pages, self._sent)
        with closing(taken):
            for batch, receipt in taken:
                store.mark_processed(table, node, _acks(self._shape, batch, receipt), receipt.count)
                progress = self._told(_counted(progress, receipt, sent=len(batch)), receipt, self._left.here)
        return progress

    def _confirm(self, acks: Sequence[Ack], count: int | None) -> None:
        _in_parts(lambda part: self._peer.mark_processed(self._table, part, count), acks)

    def _known(self, trackers: Sequence[Tracker]) -> Known:
        """Those that the other node has."""
        told: list[Known] = []
        _in_parts(lambda asked: told.append(self._peer.already_received(self._table, asked)), trackers)
        return Known(list(chain.from_iterable(each.trackers for each in told)), told[-1].count)

    def _sent(self, batch: RowBatch, *, is_page: bool = True) -> Receipt:
        """Send rows; fewer at a time if they are too large for the other node, or for something on the way to it."""
        try:
            return self._peer.receive(self._table, batch)
        except TailraceError as error:
            if error.code != "sync.too_large":
                raise
            if len(batch) == 1:
                return self._put_aside(batch, error.what)
        receipt = Receipt()
        for part in batch.parted(len(batch) // 2):
            receipt.extend(self._sent(part, is_page=False))
        if is_page:  # its parts do not count: one large row would make all pages small
            self._size.was_too_large(len(batch))
        return receipt

    def _put_aside(self, row: RowBatch, why: str) -> Receipt:
        """It is too large even alone."""
        tracker = Acks.of_rows(row, self._shape.key)[0].tracker
        if self._store.put_aside(self._table, self._peer.node_id, row, why):
            return Receipt(aside=[Ack(tracker, why)])
        return Receipt(left=[Ack(tracker, f"{why}, and there is no room for it in quarantine here")])

    def _in_turn(self, batch: RowBatch, pending: Callable[[], Pending], left: set[int]) -> RowBatch:
        """Rows, unless there is something that comes before them. That is asked after they were read: what they may
        depend on was committed with them or before them, so it is either here or pending. Nobody waits for rows that
        were left, but deletions, which could destroy what these have saved."""
        if not len(batch) or not self._turn.before:
            return batch
        found = pending().but_deletions(self._turn.later) & {*self._turn.before}
        self.stands_back |= bool(found - left)
        is_late = self._turn.part is Part.DELETIONS
        return RowBatch((), []) if found - (set() if is_late else left) else batch

    def _pages(self, ask: Callable[[Key | None, int], list[Tracker]]) -> Iterator[list[Tracker]]:
        after: Key | None = None
        limit = self._size.rows
        while page := ask(after, limit):
            yield page
            if len(page) < limit:
                return
            after = page[-1].key

    def _row_pages(self, ask: Callable[[Key | None, int], RowBatch]) -> Iterator[_Page]:
        after: Key | None = None
        is_last = False
        while not is_last:
            limit, began_s = self._size.rows, time.perf_counter()
            batch = ask(after, limit)
            if not len(batch):
                return
            is_last = len(batch) < limit and not batch.is_cut
            yield _Page(batch, is_last, time.perf_counter() - began_s)
            last = batch.key_at(-1, self._shape.key)
            if last == after:
                what = f"node {self._peer.node_id} sends the same rows of table {self._shape.entity.table} again"
                raise TailraceError("sync.bad_answer", what, hint="look whether a node of sync listens there")
            after = last

    def _taken(
        self, pages: Iterator[_Page], take: Callable[[RowBatch], Receipt]
    ) -> Generator[tuple[RowBatch, Receipt]]:
        """Pages and what became of them. While one is taken, the next is asked for, and the last one confirmed."""

        def taken(page: _Page) -> tuple[RowBatch, Receipt]:
            began_s = time.perf_counter()
            receipt = take(page.batch)
            self._size.took(page.asked_s + time.perf_counter() - began_s)
            return page.batch, receipt

        first = next(pages, None)
        if first is None:
            return
        if first.is_last:
            yield taken(first)
            return
        all_pages = chain([first], pages)
        with closing(one_ahead(all_pages)) as asked, closing(one_ahead(taken(each) for each in asked)) as done:
            yield from done

    def _told(self, progress: Progress, receipt: Receipt, left: set[int]) -> Progress:
        if receipt.left:
            reason = receipt.left[0].refused
            whose = "the other node" if left is self._left.here else "this node"
            told = f"rows of table {self._shape.entity.table} were left, since {whose} does not take them: {reason}"
            if self._table not in left:
                progress = replace(progress, warnings=(*progress.warnings, told))
            left.add(self._table)
        if receipt.aside:
            table, why = self._shape.entity.table, receipt.aside[0].refused
            told = f"rows of table {table} are too large to be sent, and in quarantine until they are changed: {why}"
            self._left.aside.setdefault(table, told)
        self._report(self._shape.entity.table, progress)
        return progress


def _acks(shape: Shape, batch: RowBatch, receipt: Receipt) -> Acks:
    """For each row of a batch that was not left, what its sender is told."""
    acks = Acks.of_rows(batch, shape.key)
    if not receipt.refused and not receipt.left:
        return acks
    why = {ack.tracker.key: ack.refused for ack in receipt.refused}
    left = {ack.tracker.key for ack in receipt.left}
    places = {place: key for place, key in enumerate(zip(*acks.keys, strict=True)) if key in why or key in left}
    refused = {place: told for place, key in places.items() if (told := why.get(key)) is not None}
    return Acks.of_rows(batch, shape.key, refused).without({place for place in places if places[place] in left})


def _in_parts(tell: Callable[[Sequence[Told]], None], told: Sequence[Told]) -> None:
    """Tell all at once, or in parts if that is too large for the other node, or for something on the way to it."""
    try:
        tell(told)
    except TailraceError as error:
        if error.code != "sync.too_large" or len(told) <= 1:
            raise
        half = len(told) // 2
        for part in (told[:half], told[half:]):
            _in_parts(tell, part)


def _counted(progress: Progress, receipt: Receipt, *, fetched: int = 0, sent: int = 0) -> Progress:
    left, aside = len(receipt.left), len(receipt.aside)
    return replace(
        progress,
        fetched=progress.fetched + (fetched and fetched - left),
        sent=progress.sent + (sent and sent - left - aside),
        refused=progress.refused + len(receipt.refused) + aside,
        older=progress.older + len(receipt.older),
        left=progress.left + left,
    )
