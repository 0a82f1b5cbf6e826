"""Nodes in the order in which they are offered: by tier, then by load."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator

from tailrace.topology.member import Member, ShelfKey


class Shelf:
    """Putting and taking one costs the same however many there are; so does each one that is looked at."""

    def __init__(self) -> None:
        self._boards: dict[ShelfKey, OrderedDict[Member, None]] = {}
        self._keys: list[ShelfKey] = []

    def put(self, key: ShelfKey, member: Member) -> None:
        """File a node that is not filed."""
        board = self._boards.get(key)
        if board is None:
            board = self._boards[key] = OrderedDict()
            insort(self._keys, key)
        board[member] = None

    def take(self, key: ShelfKey, member: Member) -> None:
        """Remove a node from where it is filed."""
        board = self._boards[key]
        del board[member]
        if not board:
            del self._boards[key]
            del self._keys[bisect_left(self._keys, key)]

    def __iter__(self) -> Iterator[Member]:
        """The shallowest first, of these the least loaded, of these the one that has waited longest."""
        for key in self._keys:
            yield from self._boards[key]

    def deepest_first(self) -> Iterator[Member]:
        """The other way round."""
        for key in reversed(self._keys):
            yield from self._boards[key]

    def __bool__(self) -> bool:
        return bool(self._keys)
