"""Pace: how much is sent at once to a copy, by how fast it takes that.

Large pieces cost little, but whoever hears nothing for a while gives its source up: a piece must be there before that,
also where the way is slow.
"""

from __future__ import annotations

from typing import Final

from tailrace.limits import KIB, MIB
from tailrace.relay.heartbeat import SILENCE

PIECE_BYTES_MIN: Final = 128 * KIB
PIECE_BYTES_FIRST: Final = MIB
PIECE_BYTES_MAX: Final = 8 * MIB
_GROW_AFTER: Final = 8 * MIB
"""So much must have been taken quickly, more than buffers on the way swallow, before pieces get larger."""
_QUICK: Final = 1 / 8
_SLOW: Final = SILENCE / 2
"""Beats. Not sooner: who is only busy for a moment would be sent many small pieces, and be busier."""


class Pace:
    """Of one connection. `piece_bytes` are sent next."""

    def __init__(self, beat_s: float) -> None:
        """Something should be heard of every `beat_s`."""
        self.piece_bytes = PIECE_BYTES_FIRST
        self._beat_s = beat_s
        self._quick_bytes = 0

    def note(self, taken_bytes: int, took_s: float) -> None:
        """So much was taken after so long."""
        self._quick_bytes = self._quick_bytes + taken_bytes if took_s < _QUICK * self._beat_s else 0
        if self._quick_bytes >= _GROW_AFTER:
            self._quick_bytes = 0
            self.piece_bytes = min(2 * self.piece_bytes, PIECE_BYTES_MAX)
        elif took_s > _SLOW * self._beat_s:
            self.piece_bytes = max(self.piece_bytes // 2, PIECE_BYTES_MIN)
