"""What a source keeps for us until it is in the log: told before it fills the disk of the source."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from tailrace.limits import GIB
from tailrace.source.contract import Reader
from tailrace.units import show_bytes

HELD_BYTES: Final = GIB
"""A source that keeps more than this for us is worth a warning."""
LOOK_EVERY_S: Final = 10.0


@runtime_checkable
class HoldingReader(Protocol):
    """A reader whose source keeps changes until it is told to forget them."""

    def held_bytes(self) -> int | None:
        """How much the source keeps for us; None when it does not say."""


class HeldWatch:
    """Looks now and then. Tells when much is held, again whenever that has doubled, and when it is over."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._looked_s = 0.0
        self._told = 0

    def look(self, reader: Reader) -> None:
        if not isinstance(reader, HoldingReader) or time.monotonic() - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = time.monotonic()
        held = reader.held_bytes() or 0
        if held >= max(HELD_BYTES, 2 * self._told):
            self._report(f"the source holds back {show_bytes(held)} of its own log until we have read it")
            self._told = held
        elif self._told and held < HELD_BYTES:
            self._report(f"the source holds back only {show_bytes(held)} of its own log now")
            self._told = 0
