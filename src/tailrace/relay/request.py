"""What peers ask of a node and what it answers."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from tailrace.errors import TailraceError
from tailrace.message import NodeId
from tailrace.relay.inquiry import Range
from tailrace.relay.paper import Clock, ClusterId, Node, Paper, SessionName
from tailrace.relay.vclock import Vclock

VERSION: Final = 2
"""Of the protocol. A peer that says a higher one gets what this version has. 1 had no meta stage."""
META_SINCE: Final = 2
RUN: Final = secrets.token_hex(8)
"""Of this process: two that run as one node, from a directory that was copied, differ in it."""


Term = Annotated[int, Field(ge=0, lt=1 << 63)]


RunName = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class Change(Paper):
    """What happens to one row."""

    op: Literal["insert", "update", "delete"]
    namespace: Annotated[str, Field(min_length=1, max_length=255)]
    data: dict[str, Any]
    """The row as it is then; of a deleted one at least its key."""


class Ballot(Paper):
    """A node as everybody may see it."""

    node: Node
    cluster: ClusterId | None = None
    vclock: Clock
    oldest: Clock = Field(default_factory=Vclock)
    """What its log does not have any more: who has this can get the rest from it."""
    version: int = VERSION
    is_loading: bool = False
    run: RunName = RUN
    term: Term = 0


class Join(Paper):
    """A newcomer wants all there is."""

    node: Node
    version: Annotated[int, Field(ge=1)] = VERSION
    is_anonymous: bool = False
    """Whether it only reads: it is not registered in the cluster, and the log is kept for it for a while only."""
    is_passing: bool | None = None
    """Whether it wants the rows and will not follow: the log is not kept for it."""


class Meta(Paper):
    """What a newcomer must know beside rows: who leads, and since which term. No transaction waits for a decision
    then."""

    term: Term
    leader: Node


class Joined(Paper):
    """The answer: what the clock of the view is, and in how many chunks its rows come."""

    session: SessionName
    vclock: Clock
    chunks: Annotated[int, Field(ge=0)]
    meta: Meta | None = None
    """Only for peers that understand it."""


class Chunk(Paper):
    """One chunk of a join is wanted."""

    session: SessionName
    chunk: Annotated[int, Field(ge=0)]


class FinalRows(Paper):
    """What came since the view is wanted."""

    session: SessionName
    final: Literal[True] = True


class Finish(Paper):
    """The newcomer has all rows of the view."""

    session: SessionName


class Register(Paper):
    """A node of the cluster wants to follow another one than before: the log is to be kept for it from its clock on."""

    node: Node
    cluster: ClusterId
    vclock: Clock
    is_newcomer: bool = False
    """Whether it only read until now: then all nodes are to know of it."""


class Registered(Paper):
    """The answer: up to where the messages go that come in the final stage."""

    vclock: Clock


class Subscribe(Paper):
    """A peer wants what it does not have, and what comes."""

    node: Node
    """Who asks."""
    cluster: ClusterId
    vclock: Clock
    version: Annotated[int, Field(ge=1)] = VERSION
    is_anonymous: bool = False
    term: Term = 0
    """The highest that the peer knows of."""
    without: Annotated[list[Node], Field(max_length=10_000)] = Field(default_factory=list)
    """Origins whose messages it does not want."""
    namespace: Annotated[str, Field(max_length=255)] | None = None
    """A pattern; messages of other namespaces come as noops."""

    @property
    def peer(self) -> NodeId:
        return NodeId(0 if self.is_anonymous else self.node)


class Subscribed(Paper):
    """The answer: who serves, and how far it was then."""

    node: Node
    cluster: ClusterId
    vclock: Clock
    session: SessionName
    """Under which the peer acknowledges what comes."""
    heartbeat_s: Annotated[float, Field(gt=0, le=86_400)]
    """How often the peer will hear from this node at least, and this node wants to hear from the peer."""


class Heartbeat(Paper):
    """Sent at once, then regularly, also between messages."""

    vclock: Clock
    behind_bytes: Annotated[int, Field(ge=0)] = 0
    """So much of the log the peer has not acknowledged."""
    behind_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """How old the oldest message is that the peer has not acknowledged, by the clock of the node that says this."""


class Ack(Paper):
    """What the peer has of what it was sent, durably, at the end of a transaction."""

    node: Node
    session: SessionName
    """Through which it came: what is late, and belongs to a connection that has ended, says nothing about another."""
    vclock: Clock
    term: Term = 0
    """The highest that the peer knows of: a leader of an earlier one leads no more."""


class Elect(Paper):
    """A node wants to lead."""

    node: Node
    cluster: ClusterId
    term: Term
    vclock: Clock


class Elected(Paper):
    """The answer."""

    is_granted: bool
    term: Term
    """The highest that the peer knows of."""


class Commit(Paper):
    """An application wants a transaction that happens at enough nodes or not at all."""

    changes: Annotated[list[Change], Field(min_length=1, max_length=100_000)]
    acks: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """How many other nodes must have it; by default as many as the node file says."""
    timeout_s: Annotated[float, Field(gt=0, le=3600)] | None = None


class Committed(Paper):
    """The answer: the transaction happened."""

    lsn: Annotated[int, Field(ge=1)]


class Promote(Paper):
    """An operator wants the node to lead."""


class Promoted(Paper):
    """The answer: it leads, since this term."""

    term: Term


Rows = Subscribe | Chunk | FinalRows | Range


def read_wish(raw: bytes) -> Rows:
    """Which rows a peer wants."""
    kinds: tuple[type[Rows], ...] = (Chunk, FinalRows, Range)
    for kind in kinds:
        try:
            return kind.read(raw)
        except TailraceError:
            continue
    return Subscribe.read(raw)
