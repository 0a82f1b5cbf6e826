"""Which messages are wanted: frames are chosen by their heads, and messages by their columns."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.conforming import op_names
from tailrace.limits import U64_MAX
from tailrace.log.contents import Contents
from tailrace.log.frame import Head
from tailrace.log.selection import Selection
from tailrace.namespace import RESERVED

NUMBERS: Final = ("offset", "timestamp", "origin", "lsn")
TEXTS: Final = ("namespace", "op", "mode")
"""The columns that conditions are about. They have no nulls."""
_LAST_TEXT: Final = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Within:
    """A number from `low` to `high`, both included."""

    column: str
    low: int = 0
    high: int = U64_MAX

    def allows(self, low: Any, high: Any) -> bool:
        """Whether one of the values from `low` to `high` can be right."""
        return bool(self.low <= high and low <= self.high)

    def mask(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """Which values are right."""
        numbers = values.to_numpy(zero_copy_only=False)
        return pa.array((numbers >= self.low) & (numbers <= self.high))


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some values; when `is_excluded`, none of them."""

    column: str
    values: frozenset[Any]
    is_excluded: bool = False

    def allows(self, low: Any, high: Any) -> bool:
        """Whether one of the values from `low` to `high` can be right."""
        if low == high:
            return (low in self.values) != self.is_excluded
        return self.is_excluded or any(low <= value <= high for value in self.values)

    def mask(self, values: pa.Array[Any]) -> pa.Array[Any]:
        """Which values are right."""
        known: Any = pa.array(sorted(self.values), values.type)
        found = pc.is_in(values, value_set=known)
        return pc.invert(found) if self.is_excluded else found


Condition = Within | OneOf


@dataclass(frozen=True, slots=True)
class Wanted(Selection):
    """Which messages are wanted, by what frames say before their bodies as far as that goes."""

    name: str | None = None
    """The one namespace that is wanted."""
    hides_internal: bool = True
    conditions: tuple[Condition, ...] = ()

    @property
    def is_everything(self) -> bool:
        return False

    def wants(self, head: Head) -> bool:
        """Whether a frame can hold a wanted message."""
        return (
            not head.is_hole
            and self.wants_namespace(head.namespace)
            and all(condition.allows(*_span(head, condition.column)) for condition in self.conditions)
        )

    def wants_namespace(self, namespace: str) -> bool:
        if self.name is not None:
            return namespace == self.name
        if self.hides_internal and namespace.startswith(RESERVED):
            return False
        if self.namespace is not None and self.namespace.search(namespace) is None:
            return False
        return all(c.allows(namespace, namespace) for c in self.conditions if c.column == "namespace")

    def wants_of(self, contents: Contents) -> bool:
        """Whether a sealed segment can hold a wanted message."""
        spans = {"timestamp": [(0, contents.latest)], "origin": [(origin, origin) for origin in contents.origins]}
        return any(map(self.wants_namespace, contents.namespaces)) and all(
            any(condition.allows(*span) for span in spans[condition.column])
            for condition in self.conditions
            if condition.column in spans
        )

    def open_conditions(self, head: Head) -> list[Condition]:
        """What a wanted frame's head leaves open: each of its messages is to be asked."""
        spans = ((condition, _span(head, condition.column)) for condition in self.conditions)
        return [condition for condition, (low, high) in spans if low != high]


def mask(conditions: Sequence[Condition], rows: pa.RecordBatch, offsets: pa.Array[Any]) -> pa.Array[Any] | None:
    """Which rows are right by all conditions; None when there is none."""
    masks = [condition.mask(_values(condition.column, rows, offsets)) for condition in conditions]
    return functools.reduce(pc.and_, masks) if masks else None


def _span(head: Head, column: str) -> tuple[Any, Any]:
    """The lowest and the highest value that a frame can hold of a column."""
    match column:
        case "offset":
            return head.offset, head.end - 1
        case "timestamp":
            return 0, head.timestamp  # a frame's is that of its latest message
        case "lsn":
            return head.first_lsn, head.last_lsn
        case "origin":
            return head.origin, head.origin
        case "namespace":
            return head.namespace, head.namespace
        case "mode":
            return head.mode.name.lower(), head.mode.name.lower()
        case _:
            return ("", _LAST_TEXT) if head.op is None else (head.op.name.lower(), head.op.name.lower())


def _values(column: str, rows: pa.RecordBatch, offsets: pa.Array[Any]) -> pa.Array[Any]:
    """The values that conditions on a column compare."""
    if column == "offset":
        return offsets
    if column == "op":
        return op_names().take(rows.column("op"))
    return rows.column("timestamp").view(pa.int64()) if column == "timestamp" else rows.column(column)
