"""What waits for other nodes: how many rows of a table each of them should get, and how long the oldest waits.

Counted is what would be sent: a row that a node may not have any more (`audience`) waits for nobody.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from typing import NamedTuple

from tailrace.sync.database import Link
from tailrace.sync.names import TRACKER_NODE, equal
from tailrace.sync.shape import Shape
from tailrace.sync.templates import for_node
from tailrace.sync.trackers import is_gone, is_open, table_join, untellable


class Backlog(NamedTuple):
    """What waits for one node."""

    rows: int = 0
    oldest_ms: int | None = None
    """When the oldest of them was changed, in milliseconds since 1970, by the clock of who changed it."""

    def and_also(self, other: Backlog) -> Backlog:
        """Together with what waits of another table."""
        known = [each for each in (self.oldest_ms, other.oldest_ms) if each is not None]
        return Backlog(self.rows + other.rows, min(known, default=None))


def backlogs(link: Link, shape: Shape) -> dict[int, Backlog]:
    """By node, those for whom something of a table waits."""
    node = f"door_tr.{shape.own(TRACKER_NODE)}"
    keys = [f"door_tr.{name}" for name in shape.tracker_key]
    where = [is_open(shape, "door_tr."), *(f"NOT ({condition})" for condition in untellable(shape, keys))]
    table = table_join(shape) if shape.is_hash else ""
    if shape.entity.audience is not None:
        may_have = for_node(shape.entity.audience.of(shape.dialect), node)
        is_here = f"{shape.table}.{shape.table_key[0]} IS NOT NULL"
        where.append(f"({is_gone(shape)} OR ({is_here} AND ({may_have})))")
        table = table_join(shape)
    found = link.rows(
        f"""SELECT {node}, count(*), min(door_st.{shape.own("stTime")}) FROM {shape.tracker} AS door_tr
            JOIN {shape.stamp} AS door_st ON {equal([f"door_st.{name}" for name in shape.stamp_key], keys)} {table}
            WHERE {" AND ".join(where)} GROUP BY {node}"""
    )
    return {to: Backlog(rows, oldest_ms) for to, rows, oldest_ms in found}
