"""Metrics: the status model for Prometheus. Labels are the kinds and names of parts, and there are only so many."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tailrace.observe.model import Health, Overview, Part

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PARTS_MAX: Final = 200
"""So many parts of one kind have figures of their own; those of the others are added up as `_others`."""
NAMESPACES_MAX: Final = 200
OTHERS: Final = "_others"

_PART_FIGURES: Final[dict[str, tuple[str, Callable[[Part], float | None]]]] = {
    "tailrace_lag_messages": (
        "Messages that a part has not had yet.",
        lambda part: None if part.lag is None else part.lag.messages,
    ),
    "tailrace_lag_bytes": ("The same in bytes.", lambda part: None if part.lag is None else part.lag.bytes),
    "tailrace_lag_seconds": (
        "The age of the oldest of them.",
        lambda part: None if part.lag is None else part.lag.seconds,
    ),
    "tailrace_position": ("The last offset up to which a part has everything.", lambda part: part.position),
    "tailrace_rate_messages_per_second": ("Messages a second, lately.", lambda part: part.rate),
    "tailrace_seen_seconds_ago": ("The age of the last proof of life.", lambda part: part.seen_s_ago),
    "tailrace_health": (
        "0 good, 1 waiting, 2 troubled, 3 bad: it does not go on until somebody helps.",
        lambda part: list(Health).index(part.health),
    ),
    "tailrace_stuck_messages": (
        "Messages that a writer could not write.",
        lambda part: 0 if part.stuck is None else part.stuck.messages,
    ),
    "tailrace_dead_letters": (
        "Messages that were put aside.",
        lambda part: _number(part.more.get("dead letters")),
    ),
    "tailrace_invalidated": (
        "1 when what a part needs next may be gone from the log.",
        lambda part: float(part.wrong is not None and part.wrong.code == "consumer.invalidated"),
    ),
    "tailrace_slot_bytes": (
        "What a replication slot keeps from being removed at the source.",
        lambda part: _number(part.more.get("slot bytes")),
    ),
}
_SUMMED: Final = frozenset(
    {
        "tailrace_lag_messages",
        "tailrace_lag_bytes",
        "tailrace_stuck_messages",
        "tailrace_dead_letters",
        "tailrace_rate_messages_per_second",
    }
)
_LOWEST: Final = frozenset({"tailrace_position"})
"""Of these the lowest is the worst."""


class OverviewCollector(Collector):
    """Collects one look."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def collect(self) -> Iterable[GaugeMetricFamily]:
        overview = self._overview
        yield _one("tailrace_up", "Whether it runs.", float(overview.is_running is True))
        about = GaugeMetricFamily("tailrace_info", "What it is, and its name.", labels=["what", "name"])
        about.add_metric([overview.what, overview.name], 1)
        yield about
        if overview.log is not None:
            log = overview.log
            yield _one("tailrace_log_oldest_offset", "The first message that the log still has.", log.oldest)
            yield _one("tailrace_log_next_offset", "The offset that the next message gets.", log.next_offset)
            yield _one("tailrace_log_messages", "Messages in the log.", log.messages)
            yield _one("tailrace_log_bytes", "Bytes of the log.", log.bytes)
            held = GaugeMetricFamily(
                "tailrace_log_held_bytes", "Bytes that a consumer keeps from being removed.", labels=["consumer"]
            )
            for consumer, size in sorted(log.held_bytes.items(), key=lambda item: -item[1])[:PARTS_MAX]:
                held.add_metric([consumer], size)
            yield held
        namespaces = GaugeMetricFamily(
            "tailrace_namespace_messages", "Messages of a namespace that the log still has.", labels=["namespace"]
        )
        for namespace in sorted(overview.namespaces, key=lambda each: -each.messages)[:NAMESPACES_MAX]:
            namespaces.add_metric([namespace.name], namespace.messages)
        yield namespaces
        if overview.tree:
            yield from self._topology()
        yield from self._figures()

    def _topology(self) -> Iterator[GaugeMetricFamily]:
        """Counted: there may be thousands of nodes, and which of them it is stands on the page."""
        nodes = GaugeMetricFamily("tailrace_topology_nodes", "Nodes of the topology, by health.", labels=["health"])
        counted = Counter(node.health for node in self._overview.tree)
        for health in Health:
            nodes.add_metric([health], counted[health])
        yield nodes
        silent = max((node.seen_s_ago or 0.0 for node in self._overview.tree), default=0.0)
        yield _one("tailrace_topology_silent_seconds", "How long the most silent of them was not heard of.", silent)

    def _figures(self) -> Iterator[GaugeMetricFamily]:
        by_kind: dict[str, list[Part]] = defaultdict(list)
        for part in self._overview.parts:
            by_kind[part.kind].append(part)
        for name, (text, value) in _PART_FIGURES.items():
            family = GaugeMetricFamily(name, text, labels=["kind", "name"])
            add = sum if name in _SUMMED else min if name in _LOWEST else max
            for kind, parts in by_kind.items():
                figures: dict[str, list[float]] = defaultdict(list)
                for place, part in enumerate(parts):
                    if (figure := value(part)) is not None:
                        figures[part.name if place < PARTS_MAX else OTHERS].append(figure)
                for label, found in figures.items():  # a series that is there twice is none for Prometheus
                    family.add_metric([kind, label], add(found))
            if family.samples:
                yield family


def exposition(overview: Overview) -> bytes:
    """What Prometheus fetches."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(OverviewCollector(overview))
    return generate_latest(registry)


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
