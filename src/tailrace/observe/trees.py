"""A topology as the status model has it: the node that serves its registry tells of it in a file, others read that."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.node.status import leave
from tailrace.observe.model import Health, TreeNode, Wrong
from tailrace.topology.answers import Row
from tailrace.topology.drawing import Told
from tailrace.topology.member import State
from tailrace.units import show_seconds

NAME: Final = "topology.json"
_FAILURE: Final = "topology-failure.json"
"""Why it is not told of now; gone when it is."""
TREE_S: Final = 5.0
"""So often a topology is told of: it may have thousands of nodes, which are heard of every few seconds."""
_SHARE: Final = 100
"""And not before it has rested so many times as long as telling took."""
_HEALTH: Final = {State.PENDING: Health.WAITING, State.ACTIVE: Health.GOOD, State.INACTIVE: Health.BAD}


class TreeTelling:
    """Tells of a topology, again and again."""

    def __init__(self, ask: Callable[[], Sequence[Row]], directory: str) -> None:
        self._ask = ask
        self._path, self._failure = (os.path.join(directory, name) for name in (NAME, _FAILURE))
        self._next_s = 0.0

    def tell(self) -> None:
        """Say how it is, unless that was said a moment ago."""
        began_s = time.monotonic()
        if began_s < self._next_s:
            return
        try:
            rows = self._ask()
        except TailraceError as error:  # what was told before stays, and grows old
            leave(error.encode(), self._failure)
        else:
            if rows or os.path.exists(self._path):
                leave([asdict(node) for node in tree_of(rows)], self._path)
            with suppress(FileNotFoundError):
                os.remove(self._failure)
        self._next_s = time.monotonic() + max(TREE_S, _SHARE * (time.monotonic() - began_s))


class TreeLook:
    """What was told of a topology, looked at again and again."""

    def __init__(self, directory: str) -> None:
        self._path, self._failure = (os.path.join(directory, name) for name in (NAME, _FAILURE))
        self._told_ns = 0
        self._found: tuple[TreeNode, ...] = ()

    def read(self) -> tuple[TreeNode, ...]:
        """The same tuple until there is news; what is not told any more grows old. Empty when nothing was told."""
        try:
            with open(self._path, encoding="utf-8") as stream:
                told_ns = os.fstat(stream.fileno()).st_mtime_ns
                if told_ns != self._told_ns or os.path.exists(self._failure):
                    age_s = _age_s(told_ns)
                    self._found = tuple(_read(each, age_s) for each in json.load(stream))
                    self._told_ns = told_ns
        except (FileNotFoundError, ValueError):  # the next one that is told mends it
            self._found = ()
        return self._found

    def wrong(self) -> Wrong | None:
        """Why nothing is told any more, and how old is what was told."""
        try:
            with open(self._failure, encoding="utf-8") as stream:
                failed = Wrong.of(json.load(stream))
        except (FileNotFoundError, ValueError):
            return None
        if failed is None:
            return None
        old = f", what is shown of it is {show_seconds(_age_s(self._told_ns))} old" if self._found else ""
        return replace(failed, what=f"the topology cannot be told of{old}: {failed.what}")


def tree_of(rows: Sequence[Row]) -> Iterator[TreeNode]:
    """The nodes of a topology, those at the top first."""
    told = Told(rows)
    known = {row.site for row in rows}
    for row in sorted(rows, key=lambda row: (row.tier is None, row.tier or 0, row.site)):
        yield TreeNode(
            str(row.site),
            str(row.source) if row.source in known else None,
            row.site.database,
            row.tier,
            "source" if row.is_source else str(row.state),
            _health(row),
            told.of(row),
            row.age_s,
        )


def _health(row: Row) -> Health:
    """One that is not heard of any more is as bad as one that has no way up, until it is back or forgotten."""
    if row.is_orphan:
        return Health.BAD
    return Health.WAITING if row.is_stopped else _HEALTH[row.state]


def _age_s(at_ns: int) -> float:
    return max(0.0, time.time() - at_ns / 1e9)


def _read(said: Mapping[str, Any], age_s: float) -> TreeNode:
    node = TreeNode(**said)
    seen_s_ago = None if node.seen_s_ago is None else node.seen_s_ago + age_s
    return replace(node, health=Health(node.health), seen_s_ago=seen_s_ago)
