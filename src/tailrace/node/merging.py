"""Merging: what a journal has goes into a database, as far as it is newer than the rows that are there.

In whichever order messages come, of two that write one row the newer one stays. So all nodes end with the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from tailrace.deliver.messages import Messages, messages_of
from tailrace.deliver.task import write
from tailrace.errors import TailraceError
from tailrace.limits import MIB
from tailrace.log.cursor import Cursor
from tailrace.log.selection import EVERYTHING, SelectedFrame
from tailrace.message import Lsn, Offset, Op
from tailrace.namespace import RESERVED
from tailrace.node.conflict import Conflict, Keep, Policies, Policy
from tailrace.node.contract import Judgement, NodeStorage, NodeWriter
from tailrace.node.quarantine import Undecided, decided, newer, stopped, told
from tailrace.node.rivalry import GivesWay, Rivalry
from tailrace.relay.limbo import Limbo, control_of, decode_limbo, encode_limbo
from tailrace.relay.vclock import LOCAL, Vclock

if TYPE_CHECKING:
    from tailrace.log.batch import Batch
    from tailrace.log.view import LogView
    from tailrace.message import NodeId
    from tailrace.source.contract import Position

LIMBO: Final = "limbo"
"""Under which name a store remembers which synchronous transactions are undecided."""
LATEST: Final = "latest"
"""And the latest time of all messages that were written into it: that is what its users can know."""
_MERGE_BYTES: Final = 64 * MIB
_Wanted = tuple[Offset | None, SelectedFrame]
"""What is to be written, and the offset as of which it happens where that is not its own."""


class Merged(Protocol):
    """The log that is brought into a database."""

    @property
    def node(self) -> NodeId:
        """Whose it is: what this node wrote itself is in its database already."""

    @property
    def view(self) -> LogView: ...

    @property
    def end(self) -> Offset: ...

    def append_local(self, batches: Sequence[Batch]) -> object:
        """Tell other nodes of something that was done in the database."""


class Merger:
    """One database that is brought up to a log."""

    def __init__(
        self,
        storage: NodeStorage,
        journal: Merged,
        wants: Callable[[str], bool],
        start: Offset,
        policies: Policies,
        *,
        tells: bool,
        captures: bool = True,
        known: Vclock | None = None,
        reached: Callable[[NodeWriter, Offset], None] = lambda _writer, _offset: None,
    ) -> None:
        """`wants` says of a namespace whether it is replicated. What is `known` is in the database already. `reached`
        is told, inside each transaction, up to where the log is in the database."""
        self.next_offset = start
        """Everything before is in the database."""
        self.needed_from = start
        """Everything before can go from the journal."""
        self._noted = start
        """What the database's own users wrote is noted up to here."""
        self._tells = tells
        """Whether other nodes hear of what is done here."""
        self._captures = captures
        """Whether the database has users of its own, whose changes the log has, too."""
        self._known = known or Vclock()
        self._reached = reached
        self._policies = policies
        self._storage = storage
        self._journal = journal
        self._wants = wants
        self.latest_us: int | None = None
        """The latest time of all messages that the database has; None when that is not known."""

    def merge(self, end: Offset, captured: Position) -> int | None:
        """Some groups up to an offset in one transaction, each whole; says how many messages were written. None when
        the database has news of its own behind what was captured: only with them is it known what is newer.

        A conflict that somebody must decide about stops it: the groups before are written, the others wait."""
        if self.next_offset >= end:
            return 0
        try:
            return self._merge(end, captured, end)
        except Undecided as stop:
            self._quarantine(stop.conflict)
            if stop.group > self.next_offset:
                return self._merge(stop.group, captured, end)
            raise stopped(stop.conflict) from None
        except GivesWay as stop:
            if stop.group > self.next_offset:
                return self._merge(stop.group, captured, end)
            if self._storage.give_way(stop.conflicts):
                return None
            return self._merge(end, captured, end, gives_way=False)  # they came with the same group

    def _merge(self, end: Offset, captured: Position, noted: Offset, *, gives_way: bool = True) -> int | None:
        """Up to `end`. What is captured here is noted up to a later offset; rivals that are here give way first, for
        everybody, unless said otherwise."""
        count = 0
        size = 0
        latest_us = self.latest_us or 0
        rivalry = Rivalry(put)
        with self._cursor(self.next_offset) as cursor, self._writing() as writer:
            if self._captures:
                if not writer.is_captured(captured):
                    return None
                self._note_captured(writer, noted)
            known = limbo = decode_limbo(writer.recalled(LIMBO))
            for group in _groups(cursor.advance(end)):
                try:
                    limbo, wanted = self._to_write(group, limbo)
                    for messages in self._unapplied(writer, wanted):
                        count += self._write(writer, messages, rivalry)
                except Undecided as stop:
                    stop.group = group[0].head.offset
                    raise
                if self._tells and gives_way and rivalry.beaten:
                    raise GivesWay(rivalry.beaten, group[0].head.offset)
                size += sum(frame.head.body_bytes for frame in group)
                latest_us = max(latest_us, *(frame.head.timestamp for frame in group))
                if size >= _MERGE_BYTES:
                    break
            if self._captures and not writer.is_captured(captured):
                return None
            if limbo != known:
                writer.remember(LIMBO, encode_limbo(limbo))
            if self._tells:
                for lost in rivalry.lost:
                    self._journal.append_local(lost)
            if latest_us != self.latest_us:
                writer.remember(LATEST, str(latest_us))
            self._reached(writer, cursor.next_offset)
            writer.commit(Offset(cursor.next_offset - 1))
            self.latest_us = latest_us
            self.next_offset = cursor.next_offset
            self.needed_from = min([self.next_offset, *(each.offset for each in limbo.pending)])
            self._noted = max(self._noted, noted)
        return count

    def _note_captured(self, writer: NodeWriter, end: Offset) -> None:
        """What the database's own users wrote is there. It is noted before anything is judged: what comes from
        elsewhere may stand before it in the journal."""
        with self._cursor(max(self._noted, self.next_offset)) as cursor:
            for group in _groups(cursor.advance(end)):
                if _is_captured_here(group):
                    for messages in map(messages_of, filter(self.is_data, group)):
                        if len(messages) and messages.key:
                            writer.note_versions(messages)

    def _to_write(self, group: list[SelectedFrame], limbo: Limbo) -> tuple[Limbo, list[_Wanted]]:
        """What is undecided after a group, and what it lets happen: its own messages, or those of synchronous
        transactions that it confirms."""
        if self._is_known(group):
            return limbo, []
        control = control_of([(frame.head, frame.body) for frame in group])
        first = group[0].head
        if control is None:
            found = (
                [] if self._captures and _is_captured_here(group) else [frame for frame in group if self.is_data(frame)]
            )
            return limbo, [(None, frame) for frame in found]
        last = Lsn(max(frame.head.last_lsn for frame in group))
        limbo, confirmed = limbo.after(control, first.origin, last, first.offset)
        return limbo, [(first.offset, frame) for each in confirmed for frame in self._group_at(each.offset)]

    def _is_known(self, group: list[SelectedFrame]) -> bool:
        told = [frame.head for frame in group if frame.head.origin != LOCAL]
        return bool(told) and all(head.last_lsn <= self._known[head.origin] for head in told)

    def _group_at(self, offset: Offset) -> list[SelectedFrame]:
        with self._cursor(offset) as cursor:
            group = next(_groups(cursor.advance(self._journal.end)))
        return [frame for frame in group if self.is_data(frame)]

    def _cursor(self, start: Offset) -> closing[Cursor]:
        return closing(Cursor(self._journal.view, start, EVERYTHING))

    @contextmanager
    def _writing(self) -> Iterator[NodeWriter]:
        writer = self._storage.open_unnoted()
        try:
            yield writer
        finally:
            with suppress(TailraceError):
                writer.close()

    def recall(self) -> None:
        """Ask the database what it remembers."""
        with self._writing() as writer:
            found = writer.recalled(LATEST)
        self.latest_us = None if found is None else int(found)

    def _quarantine(self, conflict: Conflict) -> None:
        with self._writing() as writer:
            writer.quarantine([conflict])
            writer.commit(Offset(max(0, self.next_offset - 1)))

    def _write(self, writer: NodeWriter, messages: Messages, rivalry: Rivalry) -> int:
        """Write what the policy of the table lets through; says how many messages."""
        if not len(messages) or not messages.key:
            return put(writer, messages)
        policy = self._policies.of(messages.namespace)
        if messages.origin == self._journal.node:
            return self._write_newer(writer, messages, writer.judge(messages), Policy.LAST_WRITE, rivalry)
        match policy:
            case Policy.RECEIVE_VIEW:
                writer.note_versions(messages)
                return put(writer, messages)
            case Policy.LAST_WRITE:
                judged = writer.judge(messages)
                found = list(writer.clashes(messages, judged))
                if found:
                    writer.quarantine([told(messages, clash, policy, newer(clash)) for clash in found])
                return self._write_newer(writer, messages, judged, policy, rivalry)
        return self._write_unless_in_conflict(writer, messages, policy, rivalry)

    def _write_unless_in_conflict(
        self, writer: NodeWriter, messages: Messages, policy: Policy, rivalry: Rivalry
    ) -> int:
        """Write what is in no conflict. About the others somebody decides, then or now; one that is left out did not
        happen here, so what its writer did next is judged anew."""
        count = 0
        while len(messages):
            judged = writer.judge(messages)
            clash = next(writer.clashes(messages, judged), None)
            if clash is None:
                return count + self._write_newer(writer, messages, judged, policy, rivalry)
            good = messages.slice(0, clash.at)
            if len(good):
                count += self._write_newer(writer, good, writer.judge(good), policy, rivalry)
            conflict = told(messages, clash, policy, None)
            decision = decided(writer, conflict)
            if decision is Keep.THEIRS:
                count += self._write_decided(writer, messages.slice(clash.at, 1), policy, rivalry)
            else:
                writer.quarantine([conflict])
            messages = messages.slice(clash.at + 1, len(messages) - clash.at - 1)
        return count

    def _write_decided(self, writer: NodeWriter, message: Messages, policy: Policy, rivalry: Rivalry) -> int:
        kept, left_out = rivalry.settle(writer, message, policy)
        writer.note_versions(_but(message, left_out), always=True)
        return put(writer, kept)

    def _write_newer(
        self, writer: NodeWriter, messages: Messages, judged: Judgement, policy: Policy, rivalry: Rivalry
    ) -> int:
        """Write what is newer than what is there."""
        is_left = [move and may for move, may in zip(judged.is_move, judged.may_move, strict=True)]
        is_wanted = [newer or left for newer, left in zip(judged.is_newer, is_left, strict=True)]
        wanted = _settled(messages, judged).filter(pa.array(is_wanted, pa.bool_()))
        kept, left_out = rivalry.settle(writer, wanted, policy)
        writer.note_versions(_but(messages, left_out))
        return put(writer, kept)

    def _unapplied(self, writer: NodeWriter, wanted: Iterable[_Wanted]) -> Iterator[Messages]:
        """What the database does not have yet."""
        for as_of, frame in wanted:
            messages = messages_of(frame)
            applied = writer.applied(messages.namespace)
            if applied is None:
                yield messages
            elif as_of is None:
                yield messages.after(applied)
            elif applied < as_of:
                yield messages

    def replay(self, writer: NodeWriter, stream: Iterable[Messages]) -> int:
        """Write messages that were left out before, as far as they are newer than the rows that are there; says how
        many."""
        rivalry = Rivalry(put)
        return sum(self._write(writer, messages, rivalry) for messages in stream)

    def is_data(self, frame: SelectedFrame) -> bool:
        """Whether a frame has rows of tables that are replicated."""
        head = frame.head
        is_ours = head.origin == LOCAL or head.namespace.startswith(RESERVED)
        return not is_ours and self._wants(head.namespace)


def put(writer: NodeWriter, messages: Messages) -> int:
    """Write messages, whatever is there. Columns are as these messages have them: stores of several kinds write one
    table, and what holds the values of all of them would be text."""
    if len(messages):
        write(writer, pa.schema(list(messages.data.type)), messages)
    return len(messages)


def _but(messages: Messages, lsns: set[int]) -> Messages:
    if not lsns:
        return messages
    given: list[Any] = messages.rows.column("lsn").to_pylist()
    return messages.filter(pa.array([lsn not in lsns for lsn in given], pa.bool_()))


def _groups(frames: Iterator[SelectedFrame]) -> Iterator[list[SelectedFrame]]:
    group: list[SelectedFrame] = []
    for frame in frames:
        group.append(frame)
        if frame.head.closes_group:
            yield group
            group = []


def _is_captured_here(group: list[SelectedFrame]) -> bool:
    """Whether this node wrote a group itself: then it says beside it how far it has captured. What a node gets back of
    its own, because it had lost it, comes without."""
    return any(frame.head.origin == LOCAL for frame in group)


def _settled(messages: Messages, judged: Judgement) -> Messages:
    """Moves of which only one half may happen, as that half: the row leaves its key, or it comes to the other one."""
    before = messages.before
    if before is None or not any(judged.is_move):
        return messages
    stays = [at if may else None for at, may in enumerate(judged.may_move)]
    only_leaves = [move and not newer for move, newer in zip(judged.is_move, judged.is_newer, strict=True)]
    rows = pa.concat_arrays([messages.data, before.cast(messages.data.type)])
    places = [at + len(messages) if leaves else at for at, leaves in enumerate(only_leaves)]
    ops = [int(Op.DELETE) if leaves else op for op, leaves in zip(messages.ops().to_pylist(), only_leaves, strict=True)]
    settled = messages.with_column("data", rows.take(pa.array(places, pa.int64())))
    settled = settled.with_column("before", before.take(pa.array(stays, pa.int64())))
    return settled.with_column("op", pa.array(ops, pa.int8()))
