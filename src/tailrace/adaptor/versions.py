"""Versions: which message wrote each row of a node's store last, and what a new message is against them.

Of two messages that were written at the same time, by nodes that did not know of each other, the later one stays,
everywhere. A row that is gone has a version too, so that an older change does not bring it back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.rowkeys import keys_of
from tailrace.deliver.messages import Messages

VersionRow = tuple[str, str, int, str, int]
"""Namespace, key, timestamp, origin and lsn. Origins have 64 bits, and databases' numbers a sign, so they are text."""
Mark = tuple[int, str, int]
"""Timestamp, origin and lsn: of two messages the one with the greater mark is newer, for every node."""
_NEVER: Final[Mark] = (-1, "", 0)
_ORIGIN_DIGITS: Final = 20


Find = Callable[[Collection[str]], Mapping[str, Mark]]
"""Gives what is known of rows with these keys."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of each message of a batch."""

    is_newer: list[bool] = field(default_factory=list)
    """Whether it is newer than the row that it writes."""
    is_move: list[bool] = field(default_factory=list)
    """Whether it moves a row to another key."""
    may_move: list[bool] = field(default_factory=list)
    """Whether it is newer than the row that it moves away from."""
    is_foreign: list[bool] = field(default_factory=list)
    """Whether a node other than its own last wrote a row that it writes or moves away from."""


def judge(messages: Messages, key: Sequence[str], find: Find) -> Judgement:
    """What each message is against the rows that are there, and against those before it."""
    new, old = keys_of(messages, key)
    seen = dict(find({*new, *old}))
    made = Judgement()
    for mine, there, was in zip(marks(messages), new, old, strict=True):
        written, left = seen.get(there, _NEVER), seen.get(was, _NEVER)
        made.is_newer.append(mine > written)
        made.is_move.append(was != there)
        made.may_move.append(was == there or mine > left)
        made.is_foreign.append(any(mark != _NEVER and mark[1] != mine[1] for mark in (written, left)))
        seen[there] = max(mine, written)
        seen[was] = max(mine, left)
    return made


def beaten(messages: Messages, key: Sequence[str], find: Find, is_known: Callable[[int, int], bool]) -> list[bool]:
    """Of each message: whether its rows have been written by newer ones of other nodes, of which `is_known` says by
    their origin and number that they were there before it."""
    new, old = keys_of(messages, key)
    known = find({*new, *old})

    def is_beaten(mine: Mark, place: str) -> bool:
        there = known.get(place, _NEVER)
        return there > mine and there[1] != mine[1] and is_known(int(there[1]), there[2])

    pairs = zip(marks(messages), new, old, strict=True)
    return [is_beaten(mine, there) and is_beaten(mine, was) for mine, there, was in pairs]


def marks(messages: Messages) -> Iterator[Mark]:
    """One for each message."""
    times: list[Any] = messages.rows.column("timestamp").view(pa.int64()).to_pylist()
    lsns: list[Any] = messages.rows.column("lsn").to_pylist()
    origin = f"{messages.origin:0{_ORIGIN_DIGITS}d}"
    return ((at, origin, lsn) for at, lsn in zip(times, lsns, strict=True))


def newest(messages: Messages, key: Sequence[str], *, always: bool = False) -> dict[str, Mark]:
    """By key: the newest of the messages that write a row or move it away; or always the last one."""
    new, old = keys_of(messages, key)
    found: dict[str, Mark] = {}
    for mine, there, was in zip(marks(messages), new, old, strict=True):
        for each in (there, was):
            found[each] = mine if always else max(mine, found.get(each, _NEVER))
    return found


class Versions(ABC):
    """The versions in one database, inside the transaction of whoever uses it."""

    def judge(self, messages: Messages, key: Sequence[str]) -> Judgement:
        """What each message is against the rows that are there."""
        return judge(messages, key, lambda keys: self.find(messages.namespace, keys))

    def beaten(self, messages: Messages, key: Sequence[str], is_known: Callable[[int, int], bool]) -> list[bool]:
        """Which messages newer ones have beaten that are known."""
        return beaten(messages, key, lambda keys: self.find(messages.namespace, keys), is_known)

    def note(self, messages: Messages, key: Sequence[str], *, always: bool = False) -> None:
        """These messages were written, or lost against newer ones. What is older than what is known counts only if it
        is said so."""
        found = newest(messages, key, always=always)
        self.write([(messages.namespace, each, *mark) for each, mark in found.items()], always=always)

    @abstractmethod
    def put(self, rows: Iterable[VersionRow]) -> None:
        """What a source knows of rows that the node has got from there."""

    @abstractmethod
    def find(self, namespace: str, keys: Collection[str]) -> dict[str, Mark]:
        """What is known of rows with these keys."""

    @abstractmethod
    def write(self, rows: Sequence[VersionRow], *, always: bool) -> None:
        """Keep versions of different rows, where they are newer or always."""
