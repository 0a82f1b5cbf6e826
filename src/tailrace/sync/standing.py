"""How sync in a database is doing: its tables, the other nodes, and what is in quarantine."""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.sync import room, waiting
from tailrace.sync.backlog import Backlog, backlogs
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
    waiting: int = 0
    """Rows that came, and wait here for others."""


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
    oldest_ms: int | None = None
    """When the oldest of them was changed, in milliseconds since 1970 by this machine's clock."""

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
    unseen = link.value("SELECT count(*) FROM ChangeLog")
    entities = [_entity_status(link, shape) for shape in shapes]
    held = room.held_by_sender(link)
    full = [node for node, each in held.items() if limit.is_reached(each)]
    return SyncStatus(oneself, unseen, dict(nodes), entities, dict(kinds), held, full)


def standings(link: Link, shapes: Iterable[Shape]) -> list[Standing]:
    """All other nodes; those for whom most is waiting first."""
    pending: defaultdict[int, Backlog] = defaultdict(Backlog)
    for shape in shapes:
        for node, found in backlogs(link, shape).items():
            pending[node] = pending[node].and_also(found)
    shift_ms = link.value("SELECT clockShift FROM DoorSelf")
    known = link.rows("SELECT nodeId, calledAs, rel, lastSeen FROM DoorNode ORDER BY nodeId")
    all_nodes = [_standing(node, name, rel, seen_ms, pending[node], shift_ms) for node, name, rel, seen_ms in known]
    return sorted(all_nodes, key=lambda each: -each.waiting)


def _standing(node: int, name: str | None, rel: int, seen_ms: int, found: Backlog, shift_ms: int) -> Standing:
    oldest_ms = None if found.oldest_ms is None else found.oldest_ms - shift_ms
    return Standing(node, name, bool(rel & CALLS_US), seen_ms, found.rows, oldest_ms)


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
        {node: found.rows for node, found in backlogs(link, shape).items()},
        waiting.count(link, shape),
    )
