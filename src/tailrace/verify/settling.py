"""Settling: a pipeline that runs is always a little behind, which must not look like a difference.

What differs is looked at again after the writer has passed what the log held at that time. A key that differs at every
look while its row in the destination stays the same is a difference; one whose row there keeps changing is on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tailrace.verify.differences import Differences

TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class Settled:
    """What is left after looking again."""

    differences: Differences
    moving: int = 0
    """Keys that changed at every look, so that nobody knows."""


def settled(look: Callable[[], Differences], wait: Callable[[], bool] | None, tries: int = TRIES) -> Settled:
    """Look up to `tries` times, and `wait` for the writer between, which tells whether looking again is of use. Without
    `wait` look once."""
    found = look()
    moving: set[int] = set()
    for _ in range(tries - 1):
        if wait is None or not found.total or not wait():
            break
        before = {key.hash: key.stored for key in found.keys}
        now = look()
        if not (found.is_whole and now.is_whole):
            found = now
            continue
        found = now.only({key.hash for key in now.keys if key.hash in before})
        moving |= {key.hash for key in found.keys if key.stored != before[key.hash]}
    if not moving:
        return Settled(found)
    still = {key.hash for key in found.keys}
    return Settled(found.only(still - moving), len(still & moving))
