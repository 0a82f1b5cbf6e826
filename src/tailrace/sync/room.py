"""Room in quarantine: how much is kept of what one node sends and nobody takes.

Whoever may send rows could fill the disk with such as are refused. Of what there is no room for nothing is kept, and
its sender is told that it was left: it has it, and sends it again.
"""
# ruff: noqa: S608  names cannot be bound; all of them are sync's own

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.limits import MIB
from tailrace.sync import names
from tailrace.sync.database import Link
from tailrace.sync.shape import Shape
from tailrace.units import show_bytes

ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class Held:
    """What is in quarantine because of one node."""

    rows: int
    bytes: int

    @property
    def shown(self) -> str:
        """For people."""
        return f"{self.rows:,} row{'' if self.rows == 1 else 's'}, {show_bytes(self.bytes)}"


@dataclass(frozen=True, slots=True)
class RoomLimit:
    """How much may be in quarantine because of one node."""

    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX

    def is_reached(self, held: Held) -> bool:
        return held.rows >= self.rows_max or held.bytes >= self.bytes_max


class Room:
    """What is left of it in a transaction. Transactions at the same time do not see each other, so it may be exceeded
    by what each of them brings."""

    def __init__(self, limit: RoomLimit | None) -> None:
        """None: there is room for all, since it was in quarantine before."""
        self._limit = limit
        self._held: Held | None = None

    def take(self, link: Link, shape: Shape, sender: int, size: int) -> bool:
        """Whether there is room for one more row of so many bytes. If so, it is taken."""
        if self._limit is None:
            return True
        held = self._held or held_for(link, shape, sender)
        has_room = not self._limit.is_reached(held)
        self._held = Held(held.rows + 1, held.bytes + size) if has_room else held
        return has_room

    def forget(self) -> None:
        """What was taken is given back, since it was undone."""
        self._held = None


def held_for(link: Link, shape: Shape, sender: int) -> Held:
    query = f"""SELECT count(*), CAST(coalesce(sum(qBytes), 0) AS bigint) FROM {shape.own_table(names.QUARANTINE)}
        WHERE qSender = {shape.mark(1)}"""
    return Held(*link.rows(query, (sender,))[0])


def held_by_sender(link: Link) -> dict[int, Held]:
    """By node: what is in quarantine because of it."""
    query = """SELECT qSender, count(*), CAST(coalesce(sum(qBytes), 0) AS bigint) FROM DoorQuarantine
        GROUP BY qSender ORDER BY qSender"""
    return {sender: Held(rows, size) for sender, rows, size in link.rows(query)}
