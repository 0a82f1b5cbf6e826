"""A node's store: a database with its entities, and all that another node may ask of it."""
# ruff: noqa: S608  names cannot be bound; all of them are sync's own

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_AHEAD_S
from tailrace.masking import keep_secret
from tailrace.sync import (
    changes,
    counts,
    disclosure,
    install,
    nodes,
    quarantine,
    setback,
    standing,
    trackers,
)
from tailrace.sync.aside import put_aside
from tailrace.sync.counts import Counts
from tailrace.sync.database import Database, Link
from tailrace.sync.declared import Current, Outdated
from tailrace.sync.entity import Authors, Entity
from tailrace.sync.exchange import Ack, Acks, Key, Known, Part, Pending, Receipt, RowBatch, Tracker
from tailrace.sync.failing import Failing, HookFailed
from tailrace.sync.ids import KeyMaker
from tailrace.sync.names import Dialect, mark
from tailrace.sync.nodes import CALLS_US, WE_CALL, Node
from tailrace.sync.quarantine import Quarantined, Why
from tailrace.sync.retry import Retry
from tailrace.sync.room import Room, RoomLimit
from tailrace.sync.shape import Shape
from tailrace.sync.standing import Standing, SyncStatus
from tailrace.sync.taking import Taking
from tailrace.sync.untold import keep_untold
from tailrace.sync.watermark import Watermark

__all__ = ["CALLS_US", "WE_CALL", "SyncStore"]


class SyncStore:
    """A database whose entities are synced. Any number of threads may use it."""

    def __init__(
        self,
        database: Database,
        entities: Sequence[Entity],
        limit: RoomLimit | None = None,
        ahead_max_s: float = SYNC_AHEAD_S,
    ) -> None:
        """Raises `sync.not_installed` when that was not done, or the entities were others then."""
        self.database = database
        self._room = limit or RoomLimit()
        self._current = Current(database, entities)
        self._retry = Retry()
        self._watermark = Watermark()
        self.failing = Failing()
        """The hooks that fail at the moment."""
        query = "SELECT nodeId, secret, keyNode FROM DoorSelf"
        self.node_id, self.secret, self.key_node = database.read(lambda link: link.rows(query))[0]
        keep_secret(self.secret)
        self._taking = Taking(database, self._current, self.node_id, self._room, ahead_max_s)
        self.keys = KeyMaker(database)
        """Makes keys that no other node makes."""

    @classmethod
    def install(
        cls,
        database: Database,
        entities: Sequence[Entity],
        limit: RoomLimit | None = None,
        ahead_max_s: float = SYNC_AHEAD_S,
    ) -> SyncStore:
        """Make what is missing in the database, then open it."""
        database.write(lambda link: install.install(link, entities, database.dialect))
        return cls(database, entities, limit, ahead_max_s)

    @property
    def shapes(self) -> Mapping[int, Shape]:
        return self._current.declared.shapes

    def shape(self, table_id: int) -> Shape:
        return self._current.shape(table_id)

    def now_ms(self) -> int:
        """Milliseconds since 1970, by the clock as it is corrected."""
        shift: int = self.database.read(lambda link: link.value("SELECT clockShift FROM DoorSelf"))
        return int(time.time() * 1000) + shift

    # Other nodes.

    def meet(self, node: int, rel: int, auth: str | None = None) -> bool:
        """A node is there. If it was unknown, it gets what it should have, and the answer is yes."""
        self._check_other(node)
        return self.database.write(lambda link: self._meet(link, node, rel, auth))

    def call(self, node: int, name: str) -> bool:
        """A node is called, and goes by that name from now on; whether it was unknown."""
        self._check_other(node)

        def note(link: Link) -> bool:
            is_new = self._meet(link, node, WE_CALL, None)
            nodes.set_called(link, self.database.dialect, node, name)
            return is_new

        return self.database.write(note)

    def called(self, name: str) -> int | None:
        """The node that goes by a name."""
        return self.database.read(lambda link: nodes.find_called(link, self.database.dialect, name))

    def node(self, node: int) -> Node | None:
        """What is known of another node; None when it is unknown."""
        return self.database.read(lambda link: nodes.find(link, self.database.dialect, node))

    def auth_of(self, node: int) -> str | None:
        """What a node must prove to know, None when it was never told or the node is unknown."""
        known = self.node(node)
        return None if known is None else known.auth

    def register(self, node: int, auth: str) -> bool:
        """A node may call from now on, and must prove this; whether it was unknown."""
        self._check_other(node)

        def note(link: Link) -> bool:
            is_new = self._meet(link, node, CALLS_US, auth)
            nodes.set_auth(link, self.database.dialect, node, auth)
            return is_new

        return self.database.write(note)

    def forget(self, node: int) -> bool:
        """A node may call no more, and gets nothing; whether it was known."""

        def note(link: Link) -> bool:
            for shape in self.shapes.values():
                trackers.forget(link, shape, node)
            return nodes.remove(link, self.database.dialect, node)

        return self.database.write(note)

    def key_node_of(self, node: int) -> int:
        """The 20-bit number that a node makes keys with, reserved for it when it asks first."""
        known = self.node(node)
        if known is not None and known.key_node is not None:
            return known.key_node
        dialect = self.database.dialect
        return self.database.write(lambda link: nodes.reserve_key_node(link, dialect, node))

    def count_nodes(self) -> int:
        return self.database.read(nodes.count)

    def nodes(self) -> list[int]:
        return [node for (node,) in self.database.read(lambda link: link.rows("SELECT nodeId FROM DoorNode"))]

    def saw(self, heard: Collection[int]) -> None:
        """Nodes were heard of just now."""
        dialect = self.database.dialect
        self.database.write(lambda link: nodes.saw(link, dialect, heard))

    # What has changed here.

    def process_changes(self) -> bool:
        """Say in the trackers who gets what has changed; whether anything had. What a hook that fails has to say waits,
        and is in `failing`."""
        shapes = list(self.shapes.values())
        held, found = self.failing.held(), False

        def process(link: Link) -> None:
            changes.process(link, shapes, held, self._watermark.after)

        while self._has_changes([shape for shape in shapes if shape.table_id not in held]):
            try:
                self.database.write(process, must_last=False)
                found = True
            except HookFailed as error:
                self.failing.failed(error)
                held.update(error.tables)
        self.failing.done(self.shapes.keys() - held)
        if self._retry.is_due(has_changed=found):
            found |= self._retry.did(self._taking.take_waiting)
        return found

    def _has_changes(self, shapes: Sequence[Shape]) -> bool:
        if self.database.dialect is Dialect.POSTGRES and len(shapes) == len(self.shapes) > 0:
            return self._watermark.has_changes(self.database, changes.about(shapes), shapes[0])
        return self.database.read(lambda link: changes.has_changes(link, shapes))

    def nodes_with_pending(self) -> dict[int, list[int]]:
        """By node: the tables of which it should get something."""

        def ask(link: Link) -> dict[int, list[int]]:
            found: dict[int, list[int]] = {}
            for shape in self.shapes.values():
                for node in trackers.pending_nodes(link, shape):
                    found.setdefault(node, []).append(shape.table_id)
            return found

        return self.database.read(ask)

    def pending_tables(self, node: int) -> list[int]:
        """The tables of which a node should get something, those of the lowest batch first."""

        def ask(link: Link) -> list[int]:
            return [shape.table_id for shape in self.by_batch() if trackers.has_pending(link, shape, node)]

        return self.database.read(ask)

    def pending(self, node: int) -> Pending:
        """The same, and of which of them there are only deletions."""

        def ask(link: Link) -> Pending:
            some = [shape for shape in self.by_batch() if trackers.has_pending(link, shape, node)]
            gone = frozenset(shape.table_id for shape in some if not trackers.has_pending(link, shape, node, Part.ROWS))
            return Pending([shape.table_id for shape in some], [], gone)

        return self.database.read(ask)

    @property
    def referring(self) -> Mapping[int, frozenset[int]]:
        """By table to which foreign keys refer: itself and those that do, directly or not."""
        return self._current.declared.referring

    def by_batch(self) -> list[Shape]:
        return [self.shapes[table_id] for table_id in self._current.declared.order]

    def is_empty(self, table_id: int) -> bool:
        """Whether a table has never had a row, so that it can hold none that somebody else has."""
        shape = self.shape(table_id)
        return self.database.read(lambda link: not link.rows(f"SELECT 1 FROM {shape.stamp} LIMIT 1"))

    # The exchange.

    def pending_trackers(self, table_id: int, node: int, after: Key | None, limit: int) -> list[Tracker]:
        """Versions that a node should get, in the order of their keys."""
        shape = self.shape(table_id)
        return self.database.read(lambda link: trackers.pending(link, shape, node, after, limit))

    def pending_rows(self, table_id: int, node: int, after: Key | None, limit: int, part: Part = Part.ALL) -> RowBatch:
        """Rows that a node should get, in the order of their keys. Deletions are not told alone while nobody knows
        who gets rows that refer to the table."""
        undecided = {each for error in self.failing.errors() for each in error.tables}
        if part is Part.DELETIONS and undecided & self.referring.get(table_id, frozenset()):
            return RowBatch((), [])

        def ask(link: Link) -> RowBatch:
            shape = self.shape(table_id)
            self._current.declared.check_current(link, table_id)
            return trackers.pending_rows(link, shape, node, after, limit, part)

        try:
            found = self.database.read(ask)
        except Outdated:
            self._current.look()
            found = self.database.read(ask)
        if len(found):
            found.count = self.count_on(node)
        return found

    def already_received(self, table_id: int, node: int, asked: Sequence[Tracker]) -> Known:
        """Of some versions those that are the ones here, as far as a node may know it."""
        found = self._held(self.shape(table_id), node, asked)
        return Known(found, self.count_on(node) if found else None)

    def _held(self, shape: Shape, node: int, asked: Sequence[Tracker]) -> list[Tracker]:
        if not asked:
            return []
        try:
            return self.database.read(lambda link: disclosure.held(link, shape, node, asked))
        except TailraceError as error:
            if error.code != "sync.malformed":
                raise
        if len(asked) == 1:  # what cannot be a key here is none; its row is refused when it comes
            return []
        half = len(asked) // 2
        return self._held(shape, node, asked[:half]) + self._held(shape, node, asked[half:])

    def mark_processed(self, table_id: int, node: int, acks: Sequence[Ack], count: int | None = None) -> None:
        """A node has these versions, or does not want them; and what it has counted by then, if it says so."""
        shape = self.shape(table_id)
        if not acks:
            return
        told = Acks.of(acks)

        def note(link: Link) -> None:
            trackers.mark(link, shape, node, quarantine.keep_rejected(link, shape, node, told, Room(self._room)))
            if count is not None:
                counts.hear(link, self.database.dialect, node, count)

        self.database.write(note, must_last=bool(told.refused))  # it may be undone: then the row is offered again

    def put_aside(self, table_id: int, node: int, rows: RowBatch, why: str) -> bool:
        """Rows are too large for a node; whether there was room for them in quarantine."""
        shape = self.shape(table_id)
        return self.database.write(lambda link: put_aside(link, shape, node, rows, why, Room(self._room)))

    def receive(self, table_id: int, sender: int, batch: RowBatch, whose: Authors = Authors.ANY) -> Receipt:
        """Take rows of a node, which may send those of these authors."""
        self._check_other(sender)
        self._retry.came()
        return self._taking.receive(table_id, sender, batch, whose)

    def as_told(self, table_id: int, node: int, receipt: Receipt) -> Receipt:
        """What the node that sent rows hears of them: that there are newer ones only where it may have these."""
        if not receipt.older:
            return receipt
        shape = self.shape(table_id)
        older = self.database.read(lambda link: disclosure.heard_of(link, shape, node, receipt.older))
        return replace(receipt, older=older)

    # Who was set back to an older copy of its database.

    def counts(self, node: int) -> Counts:
        """How often something was exchanged with a node."""
        return self.database.read(lambda link: counts.find(link, self.database.dialect, node))

    def count_on(self, node: int) -> int | None:
        """A node is about to be told something. If a power cut undoes it, it was set back, and does no harm."""
        dialect = self.database.dialect
        return self.database.write(lambda link: counts.count_on(link, dialect, node), must_last=False)

    def was_set_back(self, node: int, count: int) -> None:
        """A node has counted no further than this, and more was heard of it: what it was known to have is unknown."""
        shapes = self.shapes.values()
        self.database.write(lambda link: setback.notice(link, self.database.dialect, shapes, node, count))

    def welcome_own(self) -> None:
        """This database was set back: versions that this node has made come from others."""
        self.database.write(lambda link: counts.welcome_own(link, self.database.dialect))

    def resync(self, node: int | None = None) -> list[int]:
        """Compare everything with a node again, or with all, and let them do so, too; says with which."""
        found = [each for each in self.nodes() if node in (None, each)]
        shapes = self.shapes.values()
        self.database.write(lambda link: setback.start_over(link, self.database.dialect, shapes, found))
        return found

    # For people.

    def quarantined(self, limit: int = 1000, sender: int | None = None) -> list[Quarantined]:
        """The newest first; only what is there because of one node, if that is said."""
        return self.database.read(lambda link: quarantine.listed(link, self.database.dialect, limit, sender))

    def release(self, number: int) -> bool:
        """Somebody has dealt with a row in quarantine."""
        query = f"DELETE FROM DoorQuarantine WHERE qId = {mark(self.database.dialect, 1)}"
        return self.database.write(lambda link: link.run(query, (number,)) == 1)

    def release_all(self, sender: int) -> int:
        """The same with all that is there because of a node, except what is tried again by itself; how many."""
        what = f"qSender = {mark(self.database.dialect, 1)} AND qKind <> '{Why.WAITING}'"
        return self.database.write(lambda link: link.run(f"DELETE FROM DoorQuarantine WHERE {what}", (sender,)))

    def send_again(self, number: int) -> bool:
        """Send a row once more that another node did not want; whether that is possible."""

        def note(link: Link) -> bool:
            query = f"SELECT qTableId FROM DoorQuarantine WHERE qId = {mark(self.database.dialect, 1)}"
            shape = self.shapes.get(link.value(query, (number,)) or 0)
            if shape is None:
                return False
            trackers.take_turn(link, shape)
            return quarantine.send_again(link, shape, number)

        return self.database.write(note)

    def status(self) -> SyncStatus:
        shapes = self.by_batch()
        return self.database.read(lambda link: standing.status(link, self.node_id, shapes, self._room))

    def standings(self) -> list[Standing]:
        """All other nodes; those for whom most is waiting first."""
        return self.database.read(lambda link: standing.standings(link, self.shapes.values()))

    def not_declared(self) -> list[str]:
        """Tables whose changes are noted though they are none of the entities."""
        found = self.database.read(lambda link: install.installed(link, self.database.dialect))
        return [table for table_id, (table, *_) in found.items() if table_id not in self.shapes]

    def close(self) -> None:
        self.database.close()

    def _check_other(self, node: int) -> None:
        if node == self.node_id or not 0 < node < 1 << 63:
            why = "is this node itself" if node == self.node_id else "is no node id"
            raise TailraceError("sync.bad_node", f"{node} {why}", hint="give each database its own: never copy one")

    def _meet(self, link: Link, node: int, rel: int, auth: str | None) -> bool:
        if nodes.find(link, self.database.dialect, node) is None:
            for shape in self.shapes.values():
                trackers.take_turn(link, shape, alone=True)
        if not nodes.add(link, self.database.dialect, node, rel, auth):
            return False
        for shape in self.shapes.values():
            changes.welcome(link, shape, node, self.database.refusals)
            keep_untold(link, shape)
        return True
