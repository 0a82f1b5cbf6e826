"""Vector clocks: how far a node has come, for each origin of messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tailrace.limits import U64_MAX
from tailrace.message import Lsn, NodeId
from tailrace.relay.refusal import malformed

LOCAL: Final = NodeId(0)
"""The origin of what is nobody else's business: never sent, and no part of a clock."""
COMPONENTS_MAX: Final = 100_000
"""A clock that comes from outside may have so many."""
_LSN_MAX: Final = (1 << 63) - 1
_NODE_ID: Final = re.compile(r"[0-9]{1,20}")


class Vclock(Mapping[NodeId, Lsn]):
    """For each origin the lsn of its last message that is here; those before it are here, too (I8).

    An origin that is not mentioned has nothing here. Clocks have a partial order: of two, each may have what the other
    lacks.
    """

    __slots__ = ("_lsns",)

    def __init__(self, lsns: Mapping[NodeId, Lsn] | None = None) -> None:
        self._lsns = {origin: lsn for origin, lsn in sorted((lsns or {}).items()) if lsn > 0 and origin != LOCAL}

    def __getitem__(self, origin: NodeId) -> Lsn:
        return self._lsns.get(origin, Lsn(0))

    def __contains__(self, origin: object) -> bool:
        return origin in self._lsns

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._lsns)

    def __len__(self) -> int:
        return len(self._lsns)

    def __eq__(self, other: object) -> bool:
        return self._lsns == other._lsns if isinstance(other, Vclock) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._lsns.items()))

    def __le__(self, other: Vclock) -> bool:
        """Whether all that is here is there."""
        return all(lsn <= other[origin] for origin, lsn in self._lsns.items())

    def __repr__(self) -> str:
        return f"Vclock({self._lsns})"

    def __str__(self) -> str:
        """For people, as Tarantool writes it."""
        return "{" + ", ".join(f"{origin}: {lsn}" for origin, lsn in self._lsns.items()) + "}"

    @property
    def total(self) -> int:
        """How many messages are here."""
        return sum(self._lsns.values())

    def advanced(self, origin: NodeId, lsn: Lsn) -> Vclock:
        """The clock when an origin's messages up to `lsn` are here, too. It never goes back."""
        return Vclock({**self._lsns, origin: max(lsn, self[origin])})

    def joined(self, other: Vclock) -> Vclock:
        """What is here or there."""
        return Vclock({origin: max(self[origin], other[origin]) for origin in {*self, *other}})

    def met(self, other: Vclock) -> Vclock:
        """What is here and there."""
        return Vclock({origin: min(self[origin], other[origin]) for origin in self if origin in other})

    def encode(self) -> dict[str, int]:
        """Plain JSON, whose keys are text."""
        return {str(origin): lsn for origin, lsn in self._lsns.items()}


def decode_vclock(told: Any) -> Vclock:
    """The inverse of `Vclock.encode`, for what comes from outside."""
    if not isinstance(told, dict) or len(told) > COMPONENTS_MAX:
        raise malformed("a vector clock cannot be read: it is no map, or one with too many entries")
    lsns: dict[NodeId, Lsn] = {}
    for origin, lsn in told.items():
        if not isinstance(origin, str) or _NODE_ID.fullmatch(origin) is None or int(origin) > U64_MAX:
            raise malformed(f"a vector clock cannot be read: {str(origin)[:40]!r} is no node id")
        if isinstance(lsn, bool) or not isinstance(lsn, int) or not 0 <= lsn <= _LSN_MAX:
            raise malformed(f"a vector clock cannot be read: the entry of {origin} is no lsn")
        lsns[NodeId(int(origin))] = Lsn(lsn)
    return Vclock(lsns)
