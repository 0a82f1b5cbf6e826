"""What the registry answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tailrace.errors import TailraceError
from tailrace.topology.member import Report, State
from tailrace.topology.site import Site


class Reason(StrEnum):
    """Why there is no source, or not that one."""

    NO_SOURCE = "no_source"
    """No live node of this log is known."""
    FULL = "full"
    """Every slot is taken."""
    PENDING = "pending"
    """Every node with a free slot has as many Pending replicas as it may have."""
    NO_OVERLAP = "no_overlap"
    """No node's log reaches back to the position of the one that asks."""
    GENERATION = "generation"
    """Every node is of an earlier generation."""
    CYCLE = "cycle"
    """The node would replicate from itself."""
    NOT_A_SOURCE = "not_a_source"
    """That node is unknown, or may not be replicated from now."""
    STOPPED = "stopped"
    """An operator wants the node that asks not to replicate."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Not now. Nothing has changed by asking."""

    reason: Reason
    what: str
    retry_after_s: float

    def error(self) -> TailraceError:
        """The refusal for somebody who cannot go on without."""
        hint = f"ask again in {self.retry_after_s:g} s"
        return TailraceError("topology.refused", f"{self.what} ({self.reason})", hint=hint)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node from which one may replicate."""

    site: Site
    tier: int
    load: int


@dataclass(frozen=True, slots=True)
class Offer:
    """The nodes to try, best first. At the first one a slot is reserved for as long as the lease lasts."""

    candidates: tuple[Candidate, ...]
    lease_s: float

    @property
    def reserved(self) -> Site:
        return self.candidates[0].site


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The node replicates from that source, and counts there while it keeps alive."""

    tier: int | None
    lease_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a keepalive is answered."""

    is_known: bool
    """False: register, nobody counts with you."""
    move: Site | None = None
    """Replicate from that node, where a slot is reserved, and confirm it."""
    is_stopped: bool = False
    """An operator wants you not to replicate."""
    tunables_version: str = ""
    """Another one than before: ask for the tunables."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The tunables as they hold for one log."""

    version: str
    """The same for the same values."""
    values: Mapping[str, str]
    """By name, as one would write them."""


@dataclass(frozen=True, slots=True)
class Move:
    """A replica that would be nearer to the source elsewhere."""

    replica: Site
    source: Site
    from_tier: int
    to_tier: int


@dataclass(frozen=True, slots=True)
class Needed:
    """The part of a log that live replicas below a node still need: what is at this offset and after it."""

    is_known: bool
    """False when a live replica has not told how far it is: then all of it may be needed."""
    offset: int | None
    """The lowest position that was told; None when there is none."""
    replicas: int


@dataclass(frozen=True, slots=True)
class Row:
    """One node in the topology."""

    site: Site
    source: Site | None
    tier: int | None
    state: State
    is_source: bool
    is_orphan: bool
    """It has no way up to a source."""
    is_stopped: bool
    load: int
    age_s: float | None
    """Since it was last heard of."""
    reserved: Site | None
    report: Report
