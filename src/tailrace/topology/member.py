"""What the registry knows about one node."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.topology.site import Site

if TYPE_CHECKING:
    from tailrace.topology.shelf import Shelf

_OFFSET_MAX: Final = (1 << 63) - 1
"""The most that a column of a database holds."""


class State(StrEnum):
    """What a node is to the others."""

    PENDING = "Pending"
    """It has registered, and a slot is reserved for it."""
    ACTIVE = "Active"
    """It replicates, or is a source, and was heard of lately."""
    INACTIVE = "Inactive"
    """It may not replicate: nobody is sent to it."""


@dataclass(frozen=True, slots=True)
class Report:
    """How far a node says that it is. None is what it does not know."""

    generation: int | None = None
    first_offset: int | None = None
    """Where its log begins."""
    received: int | None = None
    """It has everything below this offset; None for a node without a log."""
    applied: int | None = None
    """It has applied everything below this offset."""
    lag_bytes: int | None = None
    lag_s: float | None = None

    def __post_init__(self) -> None:
        for number in (self.generation, self.first_offset, self.received, self.applied, self.lag_bytes):
            if number is not None and not 0 <= number <= _OFFSET_MAX:
                raise TailraceError("input.invalid", f"{number} is no offset", hint="report what the log says")
        if self.lag_s is not None and not 0 <= self.lag_s < math.inf:
            raise TailraceError("input.invalid", f"{self.lag_s} is no lag", hint="report seconds")

    def is_covered_by(self, source: Report) -> bool:
        """Whether a node that is so far can go on from that source's log."""
        return self.overlaps(source) and self.is_not_newer_than(source)

    def overlaps(self, source: Report) -> bool:
        """Whether the source still has what comes next. What is not known is tried."""
        return source.first_offset is None or self.received is None or source.first_offset <= self.received

    def is_not_newer_than(self, source: Report) -> bool:
        """Whether the source is of the same generation or a later one."""
        return source.generation is None or self.generation is None or source.generation >= self.generation


UNKNOWN: Final = Report()
ShelfKey = tuple[int, int]


@dataclass(slots=True, eq=False)
class Member:
    """One node. Only the tree changes the links and what is derived from them."""

    site: Site
    state: State = State.INACTIVE
    is_source: bool = False
    """It is in tier 0: it replicates from nobody in this topology."""
    is_stopped: bool = False
    """An operator wants it not to replicate."""
    is_doubtful: bool = False
    """Somebody could not reach it, and it has not been heard of since."""
    report: Report = UNKNOWN
    seen: float | None = None
    """When it was last heard of."""

    parent: Member | None = None
    """The one node from which it replicates, or did when it was last heard of."""
    holds_slot: bool = False
    """Whether it counts at its parent. One whose lease is over does not."""
    children: dict[Member, None] = field(default_factory=dict)
    reserved: Member | None = None
    """Where a slot is kept for it."""
    reserved_until: float = 0.0
    claims: dict[Member, None] = field(default_factory=dict)
    """Those for whom a slot is kept here."""

    load: int = 0
    """Slots that are taken or reserved."""
    tier: int | None = None
    """How many links it is away from a source; None for an orphan."""
    shelf: Shelf | None = None
    """Where it is filed."""
    key: ShelfKey = (0, 0)
    """Under which tier and load."""
    rank: int | None = None
    """The tier among whose replicas it is counted."""

    deadline: float = math.inf
    """When its lease is over, or when it is forgotten."""
    queued: float = math.inf
    """When the deadline is looked at next."""
