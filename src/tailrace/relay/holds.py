"""Holds: the log is kept for readers that are no nodes of the cluster, for as long as they are heard of.

Each is a consumer with a time to live. When it was last heard of is the age of a file, so it outlasts a restart.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.limits import HOLD_S
from tailrace.log.consumers import State

if TYPE_CHECKING:
    from tailrace.log.consumers import Consumers
    from tailrace.message import Offset

ANONYMOUS: Final = "anonymous-"
"""Of the consumers of anonymous replicas."""
PIPELINE: Final = "pipeline-"
"""Of the consumers of pipelines."""
REPLICA: Final = "replica-"
"""Of the consumers of copies."""
_PREFIXES: Final = (ANONYMOUS, PIPELINE, REPLICA)
_SHOW_EVERY_S: Final = 10.0


def anonymous_name(node: int) -> str:
    return f"{ANONYMOUS}{node:016x}"


def pipeline_name(consumer: str) -> str:
    return f"{PIPELINE}{consumer}"


@dataclass(frozen=True, slots=True)
class Held:
    """A reader for which the log is kept."""

    name: str
    age_s: float
    """How long ago it was last heard of."""


class Holds:
    """What is held of one log in this way."""

    def __init__(self, consumers: Consumers, ttl_s: float = HOLD_S) -> None:
        self.ttl_s = ttl_s
        self._consumers = consumers
        self._shown_s: dict[str, float] = {}

    def keep(self, name: str, start: Offset) -> None:
        """From now on the log is kept for a reader, from an offset on; from an earlier one if it already was."""
        if name in self._consumers.names():
            if self._consumers.get(name).state is State.INVALIDATED:
                self._consumers.delete(name, "what it needed is gone; it begins again")
            else:
                self._consumers.agree_on(name, self.ttl_s)
        self._consumers.register(name, start=start, ttl_s=self.ttl_s, exist_ok=True)
        self._consumers.show_life(name)

    def show_life(self, name: str) -> None:
        """The reader was heard of."""
        if time.monotonic() - self._shown_s.get(name, 0.0) >= min(_SHOW_EVERY_S, self.ttl_s / 3):
            self._shown_s[name] = time.monotonic()
            with suppress(TailraceError):  # one that is gone is told so when it asks for rows
                self._consumers.show_life(name)

    def release(self, name: str, reason: str) -> None:
        """The log need not be kept for a reader any more, unless it uses it at this moment."""
        self._shown_s.pop(name, None)
        with suppress(TailraceError):
            self._consumers.delete(name, reason)

    def all(self) -> list[Held]:
        found = (each for each in self._consumers.all() if each.name.startswith(_PREFIXES))
        return [Held(each.name, max(0.0, self._consumers.clock() - each.seen_s)) for each in found]

    def sweep(self) -> list[str]:
        """Let go of what is held for readers that were not heard of for so long; says of which."""
        old = [held.name for held in self.all() if held.age_s > self.ttl_s]
        gone = [name for name in old if not self._consumers.is_in_use(name)]
        for name in gone:
            self.release(name, f"not heard of for {self.ttl_s:g} seconds")
        return gone
