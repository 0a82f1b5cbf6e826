"""Back-off: how long to leave a node alone that could not be reached."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

FIRST_S: Final = 1.0
MAX_S: Final = 60.0


class Backoff:
    """Twice as long each time, up to a minute; between half of that and all of it, so that not all come at once."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        """`chance` gives numbers from 0 to 1."""
        self._chance = chance
        self._full_s = FIRST_S

    def next_s(self) -> float:
        """After one more failure."""
        full_s, self._full_s = self._full_s, min(self._full_s * 2, MAX_S)
        return full_s * (0.5 + self._chance() / 2)

    def reset(self) -> None:
        """It went well."""
        self._full_s = FIRST_S
