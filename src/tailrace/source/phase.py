"""How far each namespace of a source is: copied, being copied, or only followed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """What happens to a namespace."""

    COPY = "copy"
    COMPLETE = "complete"
    """Everything is copied; no change has come since."""
    SYNC = "sync"


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One namespace."""

    phase: Phase
    columns: tuple[str, ...]
    """The columns it had when its copy was planned."""
    pieces: int = 0
    done: tuple[tuple[int, int], ...] = ()
    """Which pieces are in the log, as ranges (first, last) of their numbers."""
    rows: int | None = None
    """About how many rows the copy will have."""
    copied: int = 0

    @property
    def is_copied(self) -> bool:
        return sum(last - first + 1 for first, last in self.done) >= self.pieces

    def missing(self) -> list[int]:
        """The pieces that are not in the log yet."""
        done = {number for first, last in self.done for number in range(first, last + 1)}
        return [number for number in range(self.pieces) if number not in done]

    def with_pieces(self, numbers: Iterable[int], rows: int) -> TableProgress:
        """More pieces have been copied."""
        done = {number for first, last in self.done for number in range(first, last + 1)} | set(numbers)
        return replace(self, done=tuple(_ranges(sorted(done))), copied=self.copied + rows)

    def encode(self) -> dict[str, Any]:
        return {
            "phase": self.phase.value,
            "columns": list(self.columns),
            "pieces": self.pieces,
            "done": [list(pair) for pair in self.done],
            "rows": self.rows,
            "copied": self.copied,
        }


def decode_progress(told: Mapping[str, Any]) -> TableProgress:
    """The inverse of `TableProgress.encode`."""
    return TableProgress(
        phase=Phase(told["phase"]),
        columns=tuple(told["columns"]),
        pieces=told["pieces"],
        done=tuple((first, last) for first, last in told["done"]),
        rows=told["rows"],
        copied=told["copied"],
    )


def _ranges(numbers: list[int]) -> Iterable[tuple[int, int]]:
    first = last = -1
    for number in numbers:
        if number == last + 1 and last >= 0:
            last = number
            continue
        if last >= 0:
            yield first, last
        first = last = number
    if last >= 0:
        yield first, last


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a source is."""

    position: Mapping[str, Any] | None = None
    tables: Mapping[str, TableProgress] = field(default_factory=dict)
    plans: Mapping[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """The pieces of the namespaces that are being copied."""

    def copying(self) -> list[str]:
        """The namespaces that are not copied yet."""
        return [name for name, table in self.tables.items() if table.phase is Phase.COPY]
