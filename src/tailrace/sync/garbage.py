"""Garbage: rows are many small objects that are in no cycle, and Python looks for cycles after every few hundred."""

from __future__ import annotations

import gc
from typing import Final

_OBJECTS: Final = 20_000
_TIMES: Final = 20


def collect_seldom() -> None:
    """Look for garbage less often, in a process of which sync is the main work. It takes a third of its time off."""
    gc.set_threshold(_OBJECTS, _TIMES, _TIMES)
