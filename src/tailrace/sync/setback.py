"""Nodes that were set back to an older copy of their database, or are treated as if they were.

Such a node lacks what others believe it has, and would never get it. So what it was known to have is unknown from then
on; both sides say what they still have, and only the rest travels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tailrace.sync import counts, trackers
from tailrace.sync.counts import Counts
from tailrace.sync.database import Link
from tailrace.sync.names import Dialect
from tailrace.sync.shape import Shape


def notice(link: Link, dialect: Dialect, shapes: Iterable[Shape], node: int, count: int) -> None:
    """A node has counted no further than this, and more was heard of it."""
    for shape in shapes:
        trackers.open_again(link, shape, node)
    counts.begin_again(link, dialect, node, counts.find(link, dialect, node)._replace(heard=count))


def start_over(link: Link, dialect: Dialect, shapes: Collection[Shape], nodes: Iterable[int]) -> None:
    """Compare everything with some nodes again. They will do so, too: it looks to them as if this one was set back."""
    for node in nodes:
        for shape in shapes:
            trackers.open_again(link, shape, node)
        counts.begin_again(link, dialect, node, Counts())
    counts.welcome_own(link, dialect)
