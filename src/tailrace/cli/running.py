"""What a run says while it runs: lines as they come and how far everything is, all on stderr, all from one thread.

Whoever has something to say, be it a signal handler, only puts it into a queue.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from tailrace.cli.show import printable
from tailrace.cli.sight import Observer
from tailrace.pipeline.names import READING
from tailrace.pipeline.run import Watcher

if TYPE_CHECKING:
    from tailrace.cli.sight import Sight
    from tailrace.errors import TailraceError
    from tailrace.pipeline.run import Running, Summary

LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Said:
    """Something that somebody has said."""

    text: str
    """Without what a terminal would obey, but for new lines that are meant."""
    level: str = "info"
    part: str = "run"


class Display(Protocol):
    """Where it is shown. All calls come from one thread."""

    def tell(self, line: str, level: str = "info", part: str = "run") -> None:
        """Show a line that stays: how serious it is, and what it is about."""

    def fail(self, error: TailraceError, part: str) -> None:
        """Show an error, and what to do."""

    def show(self, sight: Sight) -> None:
        """Called every now and then."""

    def finish(self, sight: Sight | None, summary: Summary, seconds: float) -> None:
        """The run has ended; it worked for so many seconds."""

    def close(self) -> None:
        """Nothing more will be shown."""


class Talk(Watcher):
    """Tells people about a run, from entering the context to leaving it; when quiet, only what is wrong."""

    def __init__(self, display: Display, *, quiet: bool = False) -> None:
        self._display = display
        self._quiet = quiet
        self._said: queue.SimpleQueue[_Said | Summary | None] = queue.SimpleQueue()
        self._observer: Observer | None = None
        self._began_s = time.monotonic()
        self._told: dict[str, TailraceError] = {}
        """By stream, how it failed last: one that went on may fail again."""
        self._thread = threading.Thread(target=self._work, name="tailrace-talk", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._said.put(None)
        self._thread.join()

    def say(self, text: str) -> None:
        self.note(_Said(printable(text)))

    def note(self, said: _Said) -> None:
        """What may be wrong is told in any case."""
        if not self._quiet or said.level not in ("debug", "info"):
            self._said.put(said)

    def began(self, running: Running) -> None:
        self._began_s = time.monotonic()
        self._observer = Observer(running)

    def ended(self, summary: Summary) -> None:
        self._said.put(summary)

    def _work(self) -> None:
        try:
            self._talk()
            self._display.close()
        except OSError:  # nobody listens any more; the pipeline goes on
            return

    def _talk(self) -> None:
        look_s = time.monotonic() + LOOK_EVERY_S
        while True:
            try:
                said = self._said.get(timeout=max(0.0, look_s - time.monotonic()))
            except queue.Empty:
                self._look()
                look_s = time.monotonic() + LOOK_EVERY_S
                continue
            if said is None:
                return
            if isinstance(said, _Said):
                self._display.tell(said.text, said.level, said.part)
            else:
                self._finish(said)

    def _look(self) -> Sight | None:
        if self._observer is None:
            return None
        sight = self._observer.look(time.monotonic(), time.time())
        for name, turns in self._observer.running.streams.items():
            if turns.error is not None and turns.error is not self._told.get(name):
                self._told[name] = turns.error
                self._display.fail(turns.error, "reader" if name == READING else f"writer {name}")
        if not self._quiet:
            self._display.show(sight)
        return sight

    def _finish(self, summary: Summary) -> None:
        sight = self._look()
        self._observer = None
        if not self._quiet:
            self._display.finish(sight, summary, time.monotonic() - self._began_s)


class TalkHandler(logging.Handler):
    """Log records among the other lines, with all that is known of how something failed."""

    def __init__(self, talk: Talk) -> None:
        super().__init__()
        self._talk = talk

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        text = "\n".join(map(printable, f"{level}: {self.format(record)}".split("\n")))
        self._talk.note(_Said(text, level, record.name))
