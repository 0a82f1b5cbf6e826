"""Conflicts: two nodes write one row, and neither knew of what the other did.

A message is in conflict with the row that it finds when another node wrote that row last, and the message's writer did
not see it so: the message is older, or the row is not what it was when the message was made. Where both say the same
there is no conflict.

Neither can stay beside a row with another key that has what must be unique: such rows are rivals, of which one stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Policy(StrEnum):
    """What happens with a message that is in conflict."""

    STOP = "stop"
    """Nothing more is applied to the store until somebody decides."""
    SKIP = "skip"
    """The row stays as it is, until somebody decides otherwise."""
    LAST_WRITE = "last_write"
    """The newer one stays, at every node."""
    RECEIVE_VIEW = "receive_view"
    """The table's receive view gets every message of other nodes, and decides itself."""


class Keep(StrEnum):
    """Which of two rows stays."""

    OURS = "ours"
    THEIRS = "theirs"


@dataclass(frozen=True, slots=True)
class Policies:
    """What happens with conflicts, table by table."""

    default: Policy = Policy.LAST_WRITE
    by_namespace: Mapping[str, Policy] = field(default_factory=dict)

    def of(self, namespace: str) -> Policy:
        return self.by_namespace.get(namespace, self.default)


@dataclass(frozen=True, slots=True)
class Clash:
    """A message in conflict with the row that is there. Rows and keys are JSON objects; None for a row that is gone."""

    at: int
    """Which message of its batch it is."""
    key: str
    left_key: str | None
    """The key that the message takes its row away from, when that is another one."""
    ours: str | None
    theirs: str | None
    is_newer: bool
    """Whether the message is newer than the row."""
    rival: str = ""
    """The key of the row that is there, when that is another one."""
    had_both: bool = False
    """Whether the message's node wrote that row, too, and before: then its table can have both."""
    with_it: tuple[int, ...] = ()
    """The messages of the batch that made the row what it is, this one the last."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A message in quarantine, with the row that it found."""

    namespace: str
    key: str
    left_key: str | None
    origin: str
    lsn: int
    at_us: int
    """When the message was made."""
    policy: Policy
    ours: str | None
    theirs: str | None
    keep: Keep | None
    """Which of them stays; None while that is open."""
    rival: str = ""
    """The key of the row that it found, when that is another one."""
    id: int = 0
    """By which it is called; the store gives it."""
