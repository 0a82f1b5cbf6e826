"""What peers ask of a node and what it answers, as JSON. Everything unknown or too long is refused (I10)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from tailrace.errors import TailraceError
from tailrace.limits import MIB, U64_MAX
from tailrace.message import NodeId
from tailrace.relay.refusal import malformed
from tailrace.relay.vclock import Vclock, decode_vclock

VERSION: Final = 1
"""Of the protocol. A peer that says a higher one gets what this version has."""
BYTES_MAX: Final = 4 * MIB


def _vclock(told: Any) -> Vclock:
    return told if isinstance(told, Vclock) else decode_vclock(told)


def _node(told: Any) -> int:
    if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) <= len(str(U64_MAX)):
        told = int(told)
    if isinstance(told, bool) or not isinstance(told, int) or not 0 <= told <= U64_MAX:
        raise ValueError("this is no node id")
    return told


Clock = Annotated[Vclock, BeforeValidator(_vclock), PlainSerializer(Vclock.encode)]
Node = Annotated[int, BeforeValidator(_node), PlainSerializer(str)]
"""A node id; as text, because many JSON readers round numbers of 64 bits."""
ClusterId = Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]

SessionName = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class Paper(BaseModel):
    """What travels."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    def packed(self) -> bytes:
        return self.model_dump_json().encode()

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """What a peer sent."""
        if len(raw) > BYTES_MAX:
            raise malformed(f"{cls.__name__.lower()} cannot be read: it has {len(raw)} bytes, {BYTES_MAX} are allowed")
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part)[:40] for part in first["loc"])
            raise malformed(f"{cls.__name__.lower()} cannot be read: {place}: {first['msg']}"[:300]) from error


class Ballot(Paper):
    """A node as everybody may see it."""

    node: Node
    cluster: ClusterId | None
    vclock: Clock
    version: int = VERSION
    is_loading: bool = False


class Join(Paper):
    """A newcomer wants all there is."""

    node: Node
    version: Annotated[int, Field(ge=1)] = VERSION
    is_anonymous: bool = False
    """Whether it only reads: it is not registered in the cluster, and the log is kept for it for a while only."""


class Joined(Paper):
    """The answer: what the clock of the view is, and in how many chunks its rows come."""

    session: SessionName
    vclock: Clock
    chunks: Annotated[int, Field(ge=0)]


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
    without: Annotated[list[Node], Field(max_length=10_000)] = []
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


class Heartbeat(Paper):
    """Sent at once, then regularly, also between messages."""

    vclock: Clock


class Ack(Paper):
    """What the peer has of what it was sent, durably, at the end of a transaction."""

    node: Node
    vclock: Clock


def read_wish(raw: bytes) -> Subscribe | Chunk | FinalRows:
    """Which rows a peer wants."""
    kinds: tuple[type[Subscribe | Chunk | FinalRows], ...] = (Chunk, FinalRows)
    for kind in kinds:
        try:
            return kind.read(raw)
        except TailraceError:
            continue
    return Subscribe.read(raw)
