"""Candidates: which of the sources that are known are tried now, and in which order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any

from tailrace.relay.applier import Source
from tailrace.topology.knobs import Knobs


class Candidates:
    """Of one replica; for one thread."""

    def __init__(
        self,
        knobs: Knobs,
        clock: Callable[[], float] = time.monotonic,
        shuffle: Callable[[MutableSequence[Any]], None] = random.shuffle,
    ) -> None:
        self._knobs = knobs
        self._clock = clock
        self._shuffle = shuffle
        self._failed_s: dict[str, float] = {}
        """By place: when it was last tried in vain."""

    def failed(self, source: Source) -> None:
        """It could not be followed, or not any longer."""
        self._failed_s[source.location] = self._clock()

    def now(self, sources: Sequence[Source]) -> list[Source]:
        """Those that may be tried: not before the penalty is over for one that failed."""
        since_s = self._clock() - self._knobs.seconds("physrep_reconnect_penalty")
        self._failed_s = {place: at_s for place, at_s in self._failed_s.items() if at_s > since_s}
        found = [source for source in sources if source.location not in self._failed_s]
        if self._knobs.is_on("physrep_shuffle_host_list"):
            self._shuffle(found)
        return found
