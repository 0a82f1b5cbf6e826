"""Room: so many of something at a time, in all and for each caller. One caller cannot shut out the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.errors import TailraceError


class Room:
    """The places for one kind of thing."""

    def __init__(self, what: str, *, each_max: int, all_max: int) -> None:
        self._what = what
        self._each_max = each_max
        self._all_max = all_max
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, caller: str, *, is_known: bool = False) -> None:
        """A place for a caller; what is known already has one in any case."""
        with self._lock:
            if not is_known and self._taken[caller] >= self._each_max:
                raise self._full(f"{self._taken[caller]} of its own")
            if not is_known and self._taken.total() >= self._all_max:
                raise self._full(f"{self._taken.total()} of all peers")
            self._taken[caller] += 1

    def leave(self, caller: str) -> None:
        with self._lock:
            self._taken[caller] -= 1

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """A place for as long as the body lasts."""
        self.take(caller)
        try:
            yield
        finally:
            self.leave(caller)

    def _full(self, whose: str) -> TailraceError:
        what = f"there is no room for one more of a peer's {self._what}: there are {whose}"
        return TailraceError("relay.busy", what, hint="it is tried again; end those that nobody needs")
