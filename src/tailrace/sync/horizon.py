"""The horizon: how far ahead of a node's clock a row may have been changed.

An edit is later than all that its node knew of the row. After one from the far future all others would be from there,
too, and in the end none could follow. So no node takes such a row; triggers see to it that no application makes one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.sync import postgresddl, sqliteddl
from tailrace.sync.database import Link
from tailrace.sync.names import Dialect
from tailrace.sync.shape import Shape
from tailrace.units import show_seconds


@dataclass(frozen=True, slots=True)
class Horizon:
    """Up to when rows are taken."""

    latest_ms: int
    ahead_s: float

    @classmethod
    def of(cls, link: Link, shape: Shape, ahead_s: float) -> Horizon:
        """By the clock with which rows are stamped here, which is the database's."""
        now = postgresddl.now(shape) if shape.dialect is Dialect.POSTGRES else sqliteddl.NOW
        return cls(link.value(f"SELECT {now}") + int(ahead_s * 1000), ahead_s)

    def why_not(self, time_ms: int) -> str:
        """For people."""
        ahead = f"more than {show_seconds(self.ahead_s)} ahead of this node's clock"
        return f"{time_ms} as the time of its change is {ahead}; set the clock that it is of"
