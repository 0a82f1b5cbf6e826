"""The limbo: synchronous transactions that are in the log and about which nobody has decided.

One node at a time, the leader of a term, may write such transactions. It says with messages of its own in the log
whether they happened. A leader of a later term says in its first message which of its predecessor's happened; all that
comes later of an earlier term did not. What the predecessor took back, and the successor did not hear of, it did not
take back.

Whatever one node does next to these messages every node does, because all have them in the same order: a leader's are
behind all that it knew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import pyarrow as pa
from pydantic import Field

from tailrace.log.batch import decode_body, message_rows
from tailrace.message import Lsn, Message, NodeId, Offset, Op, now
from tailrace.relay.names import SYNCHRO
from tailrace.relay.paper import Node, Paper
from tailrace.relay.refusal import malformed

if TYPE_CHECKING:
    from tailrace.relay.outgoing import Frame
    from tailrace.relay.vclock import Vclock

PENDING_MAX: Final = 100_000
"""Transactions about which nobody has decided."""


class Kind(StrEnum):
    """What a leader says."""

    BEGIN = "begin"
    """The messages that follow in this group wait for a decision."""
    CONFIRM = "confirm"
    ROLLBACK = "rollback"
    PROMOTE = "promote"
    """A new leader begins its term."""


class Control(Paper):
    """One message of a leader about synchronous transactions."""

    kind: Kind
    term: Annotated[int, Field(ge=0, lt=1 << 63)]
    lsn: Annotated[int, Field(ge=0)] = 0
    """Of a confirmation: all up to here happened. Of a rollback: all from here on did not. Of a promotion: of the
    predecessor's all up to here."""
    predecessor: Node = 0

    def message(self) -> Message:
        return Message(Op.COMMAND, now(), SYNCHRO, {"json": self.packed().decode()})


@dataclass(frozen=True, slots=True)
class Pending:
    """A transaction that waits for a decision."""

    origin: NodeId
    lsn: Lsn
    """Of its last message."""
    term: int
    offset: Offset
    """Where in this node's log its group begins."""
    rolled_back: Lsn = Lsn(0)
    """By which message of its leader; 0 while nobody has decided. A successor that does not know of that message may
    still let the transaction happen, until enough nodes have the message."""


@dataclass(frozen=True, slots=True)
class Limbo:
    """What is undecided at one place of a log, who leads there, and since which term."""

    term: int = 0
    leader: NodeId = NodeId(0)
    pending: tuple[Pending, ...] = ()

    def after(self, control: Control, origin: NodeId, lsn: Lsn, offset: Offset) -> tuple[Limbo, tuple[Pending, ...]]:
        """What is undecided after a message of a leader, whose group ends with `lsn`; and what it has confirmed."""
        if control.kind is Kind.PROMOTE:
            return self._promoted(control, origin)
        if control.term != self.term or origin != self.leader:
            return self, ()  # it is of an earlier term, or of nobody who leads
        mine = [each for each in self.pending if each.origin == origin]
        match control.kind:
            case Kind.BEGIN:
                if any((each.origin, each.lsn) == (origin, lsn) for each in self.pending):
                    return self, ()
                if len(self.pending) >= PENDING_MAX:
                    raise malformed(f"more than {PENDING_MAX} transactions wait for a decision")
                return replace(self, pending=(*self.pending, Pending(origin, lsn, control.term, offset))), ()
            case Kind.CONFIRM:
                confirmed = tuple(each for each in mine if each.lsn <= control.lsn and not each.rolled_back)
                known = [each for each in mine if 0 < each.rolled_back <= control.lsn]
                return self._without([*confirmed, *known]), confirmed
        is_over = {each: each in mine and each.lsn >= control.lsn and not each.rolled_back for each in self.pending}
        return replace(self, pending=tuple(replace(p, rolled_back=lsn) if is_over[p] else p for p in self.pending)), ()

    @property
    def undecided(self) -> tuple[Pending, ...]:
        """Those about which their leader has said nothing."""
        return tuple(each for each in self.pending if not each.rolled_back)

    def behind(self, vclock: Vclock) -> Limbo:
        """What is undecided where a snapshot with that clock has come since: what it has is decided."""
        return self._without([each for each in self.pending if each.lsn <= vclock[each.origin]])

    def _promoted(self, control: Control, origin: NodeId) -> tuple[Limbo, tuple[Pending, ...]]:
        if control.term <= self.term:
            return self, ()
        confirmed = tuple(
            each
            for each in self.pending
            if each.origin == control.predecessor
            and each.lsn <= control.lsn
            and not 0 < each.rolled_back <= control.lsn
        )
        return Limbo(control.term, origin), confirmed

    def _without(self, decided: Sequence[Pending]) -> Limbo:
        return replace(self, pending=tuple(each for each in self.pending if each not in decided))


def control_of(group: Sequence[Frame]) -> Control | None:
    """What a leader says at the head of a group; None in all groups that are not of this kind."""
    head, body = group[0]
    if head.namespace == SYNCHRO:
        return control_in(decode_body(body))
    if any(head.namespace == SYNCHRO for head, _ in group):
        raise malformed("what a leader says about a transaction does not stand at its head")
    return None


def control_in(rows: pa.RecordBatch) -> Control:
    """What a leader says in a batch."""
    said = list(message_rows(rows, SYNCHRO, NodeId(0)))
    text = (said[0].data or {}).get("json") if len(said) == 1 else None
    if not isinstance(text, str):
        raise malformed("what a leader says about transactions cannot be read")
    return Control.read(text.encode())


def encode_limbo(limbo: Limbo) -> str:
    """As JSON."""
    return json.dumps(asdict(limbo))


def decode_limbo(text: str | None) -> Limbo:
    """The inverse of `encode_limbo`; an empty one when nothing was ever kept."""
    if text is None:
        return Limbo()
    said = json.loads(text)
    return Limbo(said["term"], NodeId(said["leader"]), tuple(Pending(**each) for each in said["pending"]))
