"""How much memory something takes, as Python's allocator and the libraries beside it see it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak_bytes(do: Callable[[], object]) -> int:
    """The most that was allocated at a time, beside what was there before."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
