"""Knobs: the tunables of one node, as they hold for it now.

What its own file says counts first, then what the registry says since it was heard, then what holds without both. A
registry that is away changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tailrace.topology.answers import Answer, Tuning
from tailrace.topology.tunables import TUNABLES, Tunables, Value

if TYPE_CHECKING:
    import threading

_LOOK_S: Final = 1.0
"""Whoever waits notices within this time that it is to wait longer or shorter."""


_DEFAULTS: Final[Mapping[str, Value]] = {name: tunable.default for name, tunable in TUNABLES.items()}


class Knobs:
    """Of one node. Threads may share it: one learns, all read."""

    def __init__(
        self,
        said: Mapping[str, Value] | None = None,
        unheard: Mapping[str, Value] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`said` is what the node's file says; `unheard` holds instead of a default until the registry is heard."""
        self._said = dict(said or {})
        self._heard: Mapping[str, Value] = {**_DEFAULTS, **(unheard or {})}
        self._clock = clock
        self.version = ""
        """Of what the registry said last."""
        self.turned: Callable[[dict[str, Value]], None] = lambda _: None
        """Told what holds from now on, of those that have changed."""

    def heed(self, answer: Answer, ask: Callable[[], Tuning]) -> None:
        """Ask the registry for its values if its answer says that they are others."""
        if answer.tunables_version != self.version:
            self.learn(ask())

    def learn(self, found: Tuning) -> None:
        """The registry says what holds for this log."""
        before = self._heard
        self._heard = {tunable.name: value for tunable, value in Tunables(found.values)}
        self.version = found.version
        changed = {
            name: value for name, value in self._heard.items() if value != before[name] and name not in self._said
        }
        if changed:
            self.turned(changed)

    def get(self, name: str) -> Value:
        return self._said[name] if name in self._said else self._heard[name]

    def number(self, name: str) -> int:
        return int(self.get(name))

    def seconds(self, name: str) -> float:
        return float(self.get(name))

    def is_on(self, name: str) -> bool:
        return bool(self.get(name))

    def pause(self, name: str, stopping: threading.Event, part: float = 1.0) -> bool:
        """Wait for as long as a tunable says, or a part of it, also when it is changed meanwhile; True when all is
        over."""
        begun = self._clock()
        while (rest := begun + part * self.seconds(name) - self._clock()) > 0:
            if stopping.wait(min(rest, _LOOK_S)):
                return True
        return stopping.is_set()

    def tracing(self, switch: str, report: Callable[[str], None]) -> Callable[[str], None]:
        """Tells what it is given while a switch is on."""

        def trace(text: str) -> None:
            if self.is_on(switch):
                report(f"{switch}: {text}")

        return trace


def shown(values: Mapping[str, Value]) -> str:
    """Some tunables for people."""
    return ", ".join(f"{name}={TUNABLES[name].show(value)}" for name, value in values.items())
