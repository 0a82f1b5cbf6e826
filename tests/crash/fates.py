"""What a power cut does to the things that were not durable: nothing, everything, or what chance decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tests.crash.simdisk import SECTOR, Bind, Truncate, Write

_EACH_MAX: Final = 6
"""Of a file with more writes than this that are not durable, the first few were kept: one choice instead of many."""


def torn(write: Write, size: int, kept: int) -> list[tuple[int, bytes]]:
    """The first `kept` bytes of a write. A sector that was there before is written whole or not at all."""
    end = write.at + kept
    if end < size:
        end = max(write.at, end // SECTOR * SECTOR)
    return [(write.at, write.data[: end - write.at])]


def sectors(write: Write) -> list[tuple[int, bytes]]:
    """A write cut at the disk's sectors."""
    first = SECTOR - write.at % SECTOR
    starts = [0, *range(first, len(write.data), SECTOR)]
    return [
        (write.at + start, write.data[start:end])
        for start, end in zip(starts, [*starts[1:], len(write.data)], strict=True)
        if start < end
    ]


class KeepAll:
    """The power cut does no harm: what a killed process leaves."""

    def keeps_bind(self, bind: Bind, later: int) -> bool:
        return True

    def keeps_truncate(self, truncate: Truncate) -> bool:
        return True

    def pieces(self, write: Write, size: int, later: int) -> list[tuple[int, bytes]]:
        return [(write.at, write.data)]


class LoseAll:
    """Nothing that was not synced is there."""

    def keeps_bind(self, bind: Bind, later: int) -> bool:
        return False

    def keeps_truncate(self, truncate: Truncate) -> bool:
        return False

    def pieces(self, write: Write, size: int, later: int) -> list[tuple[int, bytes]]:
        return []


class NamesOnly(KeepAll):
    """The journal was written, the data was not: files have their names and lengths, and hold zeros."""

    def pieces(self, write: Write, size: int, later: int) -> list[tuple[int, bytes]]:
        return _grown(write, size, bytes)


class DataOnly(KeepAll):
    """The data was written, the journal was not: new names are lost."""

    def keeps_bind(self, bind: Bind, later: int) -> bool:
        return False


class RandomFates:
    """Anything may happen. Names are lost in the order in which a journal loses them, or in any other."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names_lost = rng.choice([None, 0, 0, 1, 2, 3, 5, 1000])
        """How many of the last changes of names are lost; None when each has its own fate."""
        self._kept: dict[int, int | None] = {}
        """How many of its last writes each file loses; None when each has its own fate."""

    def keeps_bind(self, bind: Bind, later: int) -> bool:
        if self._names_lost is None:
            return self._rng.random() < 0.5
        return later >= self._names_lost

    def keeps_truncate(self, truncate: Truncate) -> bool:
        return self._rng.random() < 0.5

    def pieces(self, write: Write, size: int, later: int) -> list[tuple[int, bytes]]:
        if write.node not in self._kept:
            self._kept[write.node] = self._plan(later + 1)
        lost = self._kept[write.node]
        if lost is None:
            return self._damaged(write, size)
        if later == lost - 1:
            return torn(write, size, self._rng.randint(0, len(write.data)))
        return [(write.at, write.data)] if later >= lost else []

    def _plan(self, writes: int) -> int | None:
        match self._rng.randint(0, 3):
            case 0:
                return 0
            case 1:
                return writes + 1
            case 2 if writes <= _EACH_MAX:
                return None
            case _:
                return self._rng.randint(0, writes)

    def _damaged(self, write: Write, size: int) -> list[tuple[int, bytes]]:
        match self._rng.randint(0, 5):
            case 0:
                return []
            case 1:
                return torn(write, size, self._rng.randint(0, len(write.data)))
            case 2:
                return [piece for piece in sectors(write) if self._rng.random() < 0.5]
            case 3:
                return [*_grown(write, size, bytes), *(piece for piece in sectors(write) if self._rng.random() < 0.5)]
            case 4:
                return _grown(write, size, self._rubbish)
            case _:
                return [(write.at, write.data)]

    def _rubbish(self, size: int) -> bytes:
        return random.Random(self._rng.randint(0, 255)).randbytes(size)


def _grown(write: Write, size: int, filling: Callable[[int], bytes]) -> list[tuple[int, bytes]]:
    """The file has become longer, but what was written is not in it."""
    start, end = max(write.at, size), write.at + len(write.data)
    return [(start, filling(end - start))] if start < end else []
