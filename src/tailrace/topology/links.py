"""The links of a simulation: who is really connected to whom, whatever the registry believes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

ROOT: Final = 0
NOBODY: Final = -1


class Links:
    """Nodes by number; the source of all is number 0 and has been there from the beginning."""

    def __init__(self, nodes: int, write_bytes_s: float) -> None:
        self.is_alive = [False] * nodes
        self.is_alive[ROOT] = True
        self.source = [NOBODY] * nodes
        self.arrived = 0
        self.broken = 0
        """Live replicas without a live source."""
        self.children_max = 0
        self._children: list[set[int]] = [set() for _ in range(nodes)]
        self._has_until = [0.0] * nodes
        """A node that is not connected has what was written until then; one that is has all, from its link's start."""
        self._write_bytes_s = write_bytes_s
        self._root_bytes = 0.0
        self._total_bytes = 0.0

    def arrive(self, number: int, now: float) -> None:
        self.is_alive[number] = True
        self._has_until[number] = now
        self.arrived += 1
        self.broken += 1

    def connect(self, number: int, source: int) -> None:
        """From now on it is sent what it does not have."""
        self.source[number] = source
        self._children[source].add(number)
        self.children_max = max(self.children_max, len(self._children[source]))
        self.broken -= 1

    def disconnect(self, number: int, now: float) -> None:
        """It has what was written until now, or until its source ended."""
        source = self.source[number]
        if self.is_alive[source]:
            self._count(number, now)
            self.broken += 1
        self.source[number] = NOBODY
        self._children[source].discard(number)

    def kill(self, numbers: Iterable[int], now: float) -> list[int]:
        """End nodes at once. Gives the live ones whose source has ended."""
        for number in (ended := list(numbers)):
            if not self.is_alive[number]:
                continue
            if self.source[number] == NOBODY or not self.is_alive[self.source[number]]:
                self.broken -= 1  # it was cut off already, and now nobody misses it
            self._count(number, now)
            self.is_alive[number] = False
            self.broken += sum(self.is_alive[child] for child in self._children[number])
        for number in ended:
            for child in self._children[number]:
                self._count(child, now)
            if self.source[number] != NOBODY:
                self._children[self.source[number]].discard(number)
        return [child for number in ended for child in sorted(self._children[number]) if self.is_alive[child]]

    def position(self, number: int) -> int:
        """What a node that is not connected has of the log."""
        return int(self._has_until[number] * self._write_bytes_s)

    def depths(self) -> list[int]:
        """How far from the source the nodes are that it reaches."""
        return [depth for depth, numbers in enumerate(self._levels()) for _ in numbers if depth]

    def unreached(self) -> int:
        """Live replicas that the source does not reach."""
        reached = sum(len(numbers) for numbers in self._levels())
        return sum(self.is_alive) - reached

    def loads(self) -> Iterator[int]:
        """How many replicas each live node has."""
        return (len(found) for found, alive in zip(self._children, self.is_alive, strict=True) if alive)

    def bytes_sent(self, now: float) -> tuple[int, int]:
        """What the source of all has sent, and what all have sent together."""
        for number, source in enumerate(self.source):
            if source != NOBODY and self.is_alive[source] and self.is_alive[number]:
                self._count(number, now)
        return int(self._root_bytes), int(self._total_bytes)

    def _levels(self) -> Iterator[list[int]]:
        level = [ROOT]
        while level:
            yield level
            level = [child for number in level for child in self._children[number] if self.is_alive[child]]

    def _count(self, number: int, now: float) -> None:
        """Its source has sent it what was written since it last had all."""
        source = self.source[number]
        if source == NOBODY or now <= self._has_until[number]:
            return
        sent = (now - self._has_until[number]) * self._write_bytes_s
        self._has_until[number] = now
        self._total_bytes += sent
        if source == ROOT:
            self._root_bytes += sent
