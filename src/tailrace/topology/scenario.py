"""What is simulated, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tailrace.errors import TailraceError

NODES_MAX: Final = 10_000_000
FANOUT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """Nodes arrive, settle, and some of them end at one moment; then everybody finds its way again."""

    nodes: int
    """Replicas; the source comes besides."""
    fanout: int = 8
    churn: float = 0.1
    """The part of the replicas that end at once."""
    seed: int = 0
    arrive_s: float = 60.0
    """All replicas come within this time."""
    settle_s: float = 60.0
    """From the last arrival to the end of some."""
    notice_s: float = 5.0
    """Within this time a replica notices that its source has ended."""
    connect_s: float = 1.0
    """What it costs to try a node that has ended."""
    latency_s: float = 0.02
    """The most that one call or connection takes between two nodes."""
    write_bytes_s: float = 1_000_000.0
    """How fast the log grows at the source."""
    heal_max_s: float = 600.0
    """The simulation ends when it has healed, and after this time in any case."""
    watch_s: float = 60.0
    """From then on it is watched for so long."""

    def __post_init__(self) -> None:
        times = (self.arrive_s, self.settle_s, self.notice_s, self.connect_s, self.latency_s, self.write_bytes_s)
        in_range = 1 <= self.nodes <= NODES_MAX and 1 <= self.fanout <= FANOUT_MAX and 0 <= self.churn < 1
        if not in_range or not all(0 < value < 1e9 for value in (*times, self.heal_max_s, self.watch_s)):
            hint = f"1 to {NODES_MAX} nodes, a fan-out of 1 to {FANOUT_MAX}, a churn below 1, times above 0"
            raise TailraceError("input.invalid", "that cannot be simulated", hint=hint)

    @property
    def kill_at_s(self) -> float:
        return self.arrive_s + self.settle_s


@dataclass(frozen=True, slots=True)
class Spread:
    """How something is spread over the nodes."""

    mean: float
    median: int
    most: int
    counts: dict[int, int]
    """How many nodes have each value."""

    @classmethod
    def of(cls, values: Iterable[int]) -> Spread:
        found = sorted(values) or [0]
        counts: dict[int, int] = {}
        for value in found:
            counts[value] = counts.get(value, 0) + 1
        return cls(round(sum(found) / len(found), 4), found[len(found) // 2], found[-1], counts)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a scenario. The same seed gives the same outcome, but for the time that it took."""

    nodes: int
    fanout: int
    killed: int
    cut_off: int
    """Live replicas that the killed ones cut off from the source."""
    settled_s: float | None
    """From the last arrival until everybody had a source; None if that was not before some were killed."""
    heal_s: float | None
    """From the kill until every live node reaches the source through live nodes; None if that did not happen."""
    cut_off_by_second: tuple[int, ...]
    """Replicas that the source does not reach, for each second after the kill."""
    depth_before: Spread
    depth_after: Spread
    load_after: Spread
    """Replicas per node that has any."""
    children_max: int
    """The most replicas that any node ever had."""
    calls: dict[str, int]
    calls_per_s_mean: float
    calls_per_s_peak: int
    calls_by_second: tuple[int, ...]
    refusals: dict[str, int]
    moves: int
    root_bytes: int
    total_bytes: int
    simulated_s: float
    took_s: float
    registry_took_s: float
    """The part of that which the registry itself took."""
