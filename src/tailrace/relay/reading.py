"""What a node does for pipelines that read it: tables, copies, places in its log, and what lies between two of them.

A pipeline is no peer. Its tasks fetch parts of the log by themselves, many at a time, as often as they like; the log is
kept for it up to where it says it has everything, durably (I2), and for a while after it was last heard of.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.limits import MIB, READERS_PER_TOKEN_MAX
from tailrace.log.cursor import Cursor
from tailrace.log.identity import identity_of
from tailrace.log.selection import EVERYTHING
from tailrace.log.session import ConsumerSession
from tailrace.log.view import LogView
from tailrace.message import Offset
from tailrace.namespace import RESERVED
from tailrace.relay.acquaintances import READERS, Acquaintances
from tailrace.relay.decisions import Decisions
from tailrace.relay.holds import PIPELINE, pipeline_name
from tailrace.relay.inquiry import (
    Copy,
    Forget,
    Hold,
    Inquiry,
    Plan,
    Planned,
    Range,
    Reading,
    Span,
    Spot,
    TableInfo,
    Tables,
)
from tailrace.relay.journal import span_of
from tailrace.relay.judging import unbeaten
from tailrace.relay.limbo import control_of
from tailrace.relay.oldest import check_kept
from tailrace.relay.outgoing import first_missing
from tailrace.relay.request import Chunk
from tailrace.relay.vclock import LOCAL, Vclock

if TYPE_CHECKING:
    from tailrace.log.consumers import Consumers
    from tailrace.log.frame import Head
    from tailrace.node.store import Store
    from tailrace.relay.copies import Copies
    from tailrace.relay.holds import Holds
    from tailrace.relay.journal import Journal
    from tailrace.relay.outgoing import Frame

SPAN_BYTES: Final = 16 * MIB
"""So much of what is wanted is one part."""
PLAN_BYTES: Final = 256 * MIB
"""So much is planned at a time; the rest is for the next."""
_OF_ONE: Final[dict[Inquiry, type[Reading | Hold | Forget]]] = {
    Inquiry.HOLD: Hold,
    Inquiry.RELEASE: Reading,
    Inquiry.WHERE: Reading,
    Inquiry.COPY: Reading,
    Inquiry.COPIED: Reading,
    Inquiry.FORGET: Forget,
}
"""What is about one pipeline, and only its own token may ask."""
_WRITERS_IN_CONFLICT: Final = 2
"""One alone is in no conflict with anybody."""


class Readings:
    """One node's log and store, for pipelines."""

    def __init__(self, journal: Journal, consumers: Consumers, holds: Holds, store: Store, copies: Copies) -> None:
        self._journal = journal
        self._consumers = consumers
        self._holds = holds
        self._store = store
        self.copies = copies
        self._log = identity_of(journal.log.directory)
        self._owners = Acquaintances(
            journal.log.directory,
            READERS,
            each_max=READERS_PER_TOKEN_MAX,
            is_held=lambda consumer: pipeline_name(consumer) in consumers.names(),
        )
        self._looking = threading.Lock()
        self._contents = self._view()
        """Remembers what is in the log's files."""
        self._decisions = Decisions(self._view())

    def tables(self) -> Tables:
        return Tables(
            tables=[
                TableInfo(
                    namespace=table.namespace,
                    columns=base64.b64encode(table.schema.serialize().to_pybytes()).decode(),
                    key=table.key,
                    rows=table.rows,
                )
                for table in self._store.tables()
            ]
        )

    def check(self, since: Spot) -> None:
        """Refuse a place behind which something is missing here."""
        self._start(since)

    def hold(self, request: Hold) -> None:
        """Keep the log for a pipeline."""
        self._store.settle()  # tables that are new are captured
        start = self._journal.end if request.since is None else self._start(request.since)
        self._holds.keep(pipeline_name(request.consumer), start)

    def release(self, consumer: str) -> None:
        """The pipeline will not come back."""
        self.copies.end(consumer)
        self._holds.release(pipeline_name(consumer), "its pipeline was uninstalled")
        self._owners.forget(consumer)

    def check_owner(self, consumer: str, peer: str) -> None:
        """Refuse one that asks for a pipeline which came with another token."""
        self._owners.check(consumer, peer)

    def where(self, consumer: str) -> Spot:
        """Where the store is, with all that has happened in it: what is behind it in the log is not judged yet. While a
        pipeline copies from a view, where that was taken."""
        self._holds.show_life(pipeline_name(consumer))
        views = self.copies.views_of(consumer)
        if views:
            oldest = min(views, key=lambda vclock: vclock.total)
            return Spot(log=self._log, offset=self._missing(oldest), vclock=oldest)
        end, vclock = self._journal.decided(self._store.settle())
        return Spot(log=self._log, offset=end, vclock=vclock)

    def copy(self, consumer: str, caller: str = "") -> Copy:
        """All rows there are. The log is kept before they are looked at."""
        self._holds.keep(pipeline_name(consumer), self._journal.end)
        return self.copies.begin(consumer, caller)

    def chunk(self, request: Chunk) -> Iterator[list[Frame]]:
        """The rows of a part of a copy."""
        self._holds.show_life(pipeline_name(self.copies.consumer_of(request.session)))
        return self.copies.chunk(request.session, request.chunk)

    def copied(self, consumer: str) -> None:
        self.copies.end(consumer)

    def plan(self, request: Plan) -> Planned:
        """Parts of whole transactions that have something of what is wanted in them."""
        self._check_log(request.upto.log)
        start, end = self._start(request.since), min(Offset(request.upto.offset), self._journal.end)
        is_wanted, vclock = _wanted(request.namespaces), request.since.vclock
        spans: list[Span] = []
        begun, size, total, group = (start, vclock), 0, 0, list["Head"]()
        for head in self._view().heads(start) if start < end else ():
            if head.offset >= end:
                break
            group.append(head)
            if not head.closes_group:
                continue
            size += sum(each.body_bytes for each in group if is_wanted(each))
            vclock, group = _after(vclock, group), []
            if size >= SPAN_BYTES:
                spans.append(Span(start=begun[0], end=head.end, vclock=begun[1]))
                begun, total, size = (head.end, vclock), total + size, 0
                if total >= PLAN_BYTES and head.end < end:
                    return self._planned(spans, Spot(log=self._log, offset=head.end, vclock=vclock))
        if size:
            spans.append(Span(start=begun[0], end=end, vclock=begun[1]))
        return self._planned(spans, None)

    def range(self, request: Range) -> Iterator[list[Frame]]:
        """The changes of a part of the log. A frame's offset says where in the log's order its first message is, its
        `durable` where the transaction begins: the order of a group is that of its origin, not that of its frames."""
        self._check_log(request.log)
        is_wanted, happened = _wanted(request.namespaces), self._decisions.upto(self._journal.end)
        cursor = Cursor(self._view(), Offset(request.start), EVERYTHING)
        group: list[Frame] = []
        known = request.vclock
        try:
            for frame in cursor.advance(min(Offset(request.end), self._journal.end)):
                group.append((frame.head, frame.body))
                if frame.head.closes_group:
                    is_real = control_of(group) is None or group[0][0].offset in happened
                    if is_real and (found := self._judged(group, is_wanted, known)):
                        yield found
                    known, group = _after(known, [head for head, _ in group]), []
        finally:
            cursor.close()

    def _judged(self, group: list[Frame], is_wanted: Callable[[Head], bool], known: Vclock) -> list[Frame]:
        """The frames of a transaction that are wanted and not known, without messages that lost against known ones."""
        chosen = _chosen(group, is_wanted, known)
        if not chosen or len(self._journal.vclock) < _WRITERS_IN_CONFLICT:
            return [_placed(group, frame) for frame in chosen]
        judged = (unbeaten(frame, self._store, known) for frame in chosen)
        return [_placed(group, frame) for frame in judged if frame is not None]

    def forget(self, request: Forget) -> None:
        """A pipeline has everything up to a place (I2)."""
        if request.upto.log != self._log or request.upto.offset == 0:
            return
        name = pipeline_name(request.consumer)
        if name not in self._consumers.names():
            self._holds.keep(name, self._start(request.upto))
        with suppress(TailraceError), ConsumerSession(self._consumers, name) as session:  # else the next time
            session.commit(min(Offset(request.upto.offset), self._journal.end) - 1)

    def forget_old(self) -> None:
        """Copies of pipelines that were not heard of."""
        held = {each.name.removeprefix(PIPELINE) for each in self._holds.all() if each.name.startswith(PIPELINE)}
        self.copies.forget_old(held)
        self._owners.forget_all_but(held)

    def _start(self, since: Spot) -> Offset:
        """Where in this log a place is. All that comes behind it is here."""
        if since.log != self._log:
            with self._looking:
                check_kept(self._journal.oldest(), since.vclock)
            return self._missing(since.vclock)
        oldest, end = self._journal.view.bases()[0], self._journal.end
        if not oldest <= since.offset <= end:
            what = f"the node's log reaches from {oldest} to {end}, and {since.offset} was asked for"
            raise TailraceError("relay.gap", what, hint="take a new snapshot, or ask a node that still has it")
        return Offset(since.offset)

    def _missing(self, vclock: Vclock) -> Offset:
        with self._looking:
            return first_missing(self._contents, vclock)

    def _view(self) -> LogView:
        """For one call: a view is not shared between threads."""
        return LogView(self._journal.log.directory)

    def _check_log(self, log: str) -> None:
        if log != self._log:
            what = "the node's log is another one than when this was planned"
            raise TailraceError("relay.loading", what, hint="plan again; it does so by itself")

    def _planned(self, spans: list[Span], reached: Spot | None) -> Planned:
        return Planned(log=self._log, spans=spans, reached=reached)


def answered(readings: Callable[[], Readings], peer: str, inquiry: str, said: bytes) -> Iterator[bytes]:
    """What a pipeline is told."""
    if inquiry in _OF_ONE:
        readings().check_owner(_OF_ONE[Inquiry(inquiry)].read(said).consumer, peer)
    match inquiry:
        case Inquiry.TABLES:
            yield readings().tables().packed()
        case Inquiry.CHECK:
            readings().check(Spot.read(said))
        case Inquiry.HOLD:
            readings().hold(Hold.read(said))
        case Inquiry.RELEASE:
            readings().release(Reading.read(said).consumer)
        case Inquiry.WHERE:
            yield readings().where(Reading.read(said).consumer).packed()
        case Inquiry.COPY:
            yield readings().copy(Reading.read(said).consumer, peer).packed()
        case Inquiry.COPIED:
            readings().copied(Reading.read(said).consumer)
        case Inquiry.PLAN:
            yield readings().plan(Plan.read(said)).packed()
        case Inquiry.FORGET:
            readings().forget(Forget.read(said))
        case _:
            what = f"action {inquiry[:40]!r} is unknown"
            raise TailraceError("relay.malformed", what, hint="use a newer release")


def _after(vclock: Vclock, group: list[Head]) -> Vclock:
    heads = [head for head in group if head.origin != LOCAL and not head.is_hole]
    for head in heads:
        vclock = vclock.advanced(head.origin, head.last_lsn)
    return vclock


def _wanted(namespaces: list[str] | None) -> Callable[[Head], bool]:
    """Tells which frames are changes that are wanted; what the nodes tell each other is none."""
    if namespaces is None:
        return lambda head: head.origin != LOCAL and not head.namespace.startswith(RESERVED)
    names = frozenset(namespaces)
    return lambda head: head.origin != LOCAL and head.namespace in names


def _chosen(group: list[Frame], is_wanted: Callable[[Head], bool], known: Vclock) -> list[Frame]:
    """The frames of a transaction that are wanted and not known."""
    foreign = [(head, body) for head, body in group if head.origin != LOCAL]
    if not any(is_wanted(head) for head, _ in foreign):
        return []
    origin, _, last = span_of([head for head, _ in foreign])
    if last <= known[origin]:
        return []
    return [(head, body) for head, body in foreign if is_wanted(head)]


def _placed(group: list[Frame], frame: Frame) -> Frame:
    """A frame of a transaction with its place in the log's order."""
    head, body = frame
    begin = group[0][0].offset
    first = min(each.first_lsn for each, _ in group if each.origin != LOCAL)
    return head._replace(offset=Offset(begin + head.first_lsn - first), durable=begin), body
