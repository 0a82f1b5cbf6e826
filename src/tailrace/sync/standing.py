"""How sync in a database is doing: its tables, the other nodes, and what is in quarantine."""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.sync import room
from tailrace.sync.database import Link
from tailrace.sync.nodes import CALLS_US
from tailrace.sync.room import Held, RoomLimit
from tailrace.sync.shape import Shape


@dataclass(frozen=True, slots=True)
class EntityStatus:
    """How an entity is doing."""

    table: str
    table_id: int
    rows: int
    tombstones: int
    pending: dict[int, int]
    """By node: how many rows it should get."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far another node is."""

    node: int
    name: str | None
    """What it is called where it is called."""
    calls_us: bool
    seen_ms: int
    """When it was last heard of, in milliseconds since 1970; 0: never."""
    waiting: int
    """Rows that it should get."""

    def told(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "node": str(self.node)}


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """How sync in a database is doing."""

    node: int
    changes: int
    """Lines of the ChangeLog that nobody has looked at yet."""
    nodes: dict[int, int]
    """When each other node was last heard of, in milliseconds since 1970; 0: never."""
    entities: list[EntityStatus]
    quarantine: dict[str, int]
    held: dict[int, Held]
    """By node: what is in quarantine because of it."""
    full: list[int]
    """The nodes for which there is no more room in quarantine."""


def status(link: Link, oneself: int, shapes: Iterable[Shape], limit: RoomLimit) -> SyncStatus:
    """How sync of some tables is doing."""
    nodes = link.rows("SELECT nodeId, lastSeen FROM DoorNode ORDER BY nodeId")
    kinds = link.rows("SELECT qKind, count(*) FROM DoorQuarantine GROUP BY qKind")
    waiting = link.value("SELECT count(*) FROM ChangeLog")
    entities = [_entity_status(link, shape) for shape in shapes]
    held = room.held_by_sender(link)
    full = [node for node, each in held.items() if limit.is_reached(each)]
    return SyncStatus(oneself, waiting, dict(nodes), entities, dict(kinds), held, full)


def standings(link: Link, shapes: Iterable[Shape]) -> list[Standing]:
    """All other nodes; those for whom most is waiting first."""
    waiting: Counter[int] = Counter()
    for shape in shapes:
        waiting.update(_pending(link, shape))
    known = link.rows("SELECT nodeId, calledAs, rel, lastSeen FROM DoorNode ORDER BY nodeId")
    found = [Standing(node, name, bool(rel & CALLS_US), seen_ms, waiting[node]) for node, name, rel, seen_ms in known]
    return sorted(found, key=lambda each: -each.waiting)


def _entity_status(link: Link, shape: Shape) -> EntityStatus:
    gone = shape.own("stDeleted")
    truth = "true" if shape.schema else "1"
    counted = link.rows(f"SELECT {gone} = {truth}, count(*) FROM {shape.stamp} GROUP BY 1")
    rows = {bool(is_gone): count for is_gone, count in counted}
    return EntityStatus(
        shape.entity.table,
        shape.table_id,
        rows.get(False, 0),
        rows.get(True, 0),
        _pending(link, shape),
    )


def _pending(link: Link, shape: Shape) -> dict[int, int]:
    """By node: how many rows of an entity it should get."""
    node, processed = shape.own("trkrDestinationNode"), shape.own("trkrProcessed")
    is_open = f"NOT {processed}" if shape.schema else f"{processed} = 0"
    return dict(link.rows(f"SELECT {node}, count(*) FROM {shape.tracker} WHERE {is_open} GROUP BY {node}"))
