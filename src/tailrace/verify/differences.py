"""What two sides of a comparison differ in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

KEYS_MAX = 100_000
"""So many differing keys of a namespace are told apart; of the others there are only counts."""


class Kind(StrEnum):
    """How a key differs."""

    MISSING = "missing"
    """The source has it, the destination does not."""
    EXTRA = "extra"
    """The destination has it, the source does not."""
    DIFFERENT = "different"
    """Both have it, with other values."""
    REPEATED = "repeated"
    """The destination has it more often than the source."""


@dataclass(frozen=True, slots=True)
class DifferingKey:
    """One key."""

    hash: int
    text: str
    """Its parts in a JSON list; where a namespace has no key, the row as a JSON object."""
    kind: Kind
    stored: tuple[int, ...] = ()
    """The hashes of its rows in the destination, which tell whether it has changed between two looks."""


@dataclass(frozen=True, slots=True)
class Differences:
    """All differences of one namespace."""

    expected_rows: int = 0
    stored_rows: int = 0
    counts: Mapping[Kind, int] = field(default_factory=dict)
    keys: tuple[DifferingKey, ...] = ()
    """In their order; the first KEYS_MAX when there are more."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def is_whole(self) -> bool:
        """Whether every differing key is told."""
        return self.total == len(self.keys)

    def only(self, hashes: set[int]) -> Differences:
        """What is left when only some keys count."""
        keys = tuple(key for key in self.keys if key.hash in hashes)
        return Differences(self.expected_rows, self.stored_rows, Counter(key.kind for key in keys), keys)
