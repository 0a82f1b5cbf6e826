"""Live: looks at what runs, keeps the last hour, and tells open pages which of their sections have changed.

Nobody looks more often than is needed: every few seconds for the history, faster only while a page is open, and slower
where looking costs much, so that the node keeps nearly all of its time for its work.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from tailrace.errors import TailraceError
from tailrace.limits import WEB_PAGES_MAX
from tailrace.observe.history import SAMPLE_S, History
from tailrace.observe.model import Overview
from tailrace.web.html import Markup
from tailrace.web.sections import SIGHT, Sections, sight_lost

OPEN_S: Final = 1.0
"""So often an open page gets news."""
SHARE_MAX: Final = 0.015
"""Of the time of one core, for looking."""
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """A page about everything, as it was at one look."""

    overview: Overview
    sections: dict[str, Markup]
    known: str
    """Which look that was: what came later is news."""


class Listener:
    """An open page that waits for news. For the loop's own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        """Whether there may be news."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def wake(self) -> None:
        """From any thread."""
        with suppress(RuntimeError):  # the server has ended, and its loop with it
            self._loop.call_soon_threadsafe(self._news.set)


class Live:
    """`start`, then any number of readers, then `stop`."""

    def __init__(self, look: Callable[[], Overview]) -> None:
        self._look = look
        self._turn = threading.Lock()
        self._begun = self._done = 0
        self._lock = threading.Condition()
        self._history = History()
        self._sections = Sections()
        self._stopping = False
        self._listeners: set[Listener] = set()
        self._opened = False
        self._overview: Overview | None = None
        self._error: TailraceError | None = None
        self._run_name = secrets.token_hex(4)
        """Tells the looks of this process from those of the one before it."""
        self._number = 0
        self._shown: dict[str, tuple[int, Markup]] = {}
        """By section: since which look it is as it is."""
        self._told: tuple[int, int, str] = (0, 0, "")
        self._thread = threading.Thread(target=self._run, name="tailrace-page", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
            self._wake()
        if self._thread.is_alive():
            self._thread.join()

    def overview(self) -> Overview:
        """How it is now, with rates. Raises what keeps it from being seen."""
        return self._fresh()

    def shown(self) -> Shown:
        """How it is now, and the sections of a page about it."""
        overview = self._fresh()
        with self._lock:
            self._render()
            sections = {name: inner for name, (_, inner) in self._shown.items()}
            return Shown(overview, sections, f"{self._run_name}-{self._number}")

    @property
    def is_well(self) -> bool:
        """Whether the last look went well, and saw something that runs."""
        return self._error is None and self._overview is not None and self._overview.is_running is True

    @property
    def is_stopping(self) -> bool:
        """Whether there will be no more news."""
        return self._stopping

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """A page is open within the block; the first one does not wait. Raises `web.busy` when there are too many."""
        listener = Listener()
        with self._lock:
            if len(self._listeners) >= WEB_PAGES_MAX:
                what = f"{WEB_PAGES_MAX} pages are open already"
                raise TailraceError("web.busy", what, hint="close some of them; what is shown can be loaded again")
            self._opened = self._opened or not self._listeners
            self._listeners.add(listener)
            self._lock.notify_all()
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def news(self, known: str) -> tuple[str, str]:
        """What is known then, and as JSON the sections that have changed since; nothing when none has."""
        run_name, _, number = known.partition("-")
        since = int(number) if run_name == self._run_name and number.isdecimal() else 0
        with self._lock:
            if since >= self._number:
                return known, ""
            if self._told[:2] != (since, self._number):
                changed = {name: inner for name, (at, inner) in self._shown.items() if at > since}
                self._told = (since, self._number, json.dumps(changed))
            return f"{self._run_name}-{self._number}", self._told[2]

    def _run(self) -> None:
        sampled_s = -SAMPLE_S
        while True:
            began_s, spent_s = time.monotonic(), time.thread_time()
            is_sample = began_s - sampled_s >= SAMPLE_S
            with suppress(TailraceError):  # it is told
                found = self._fresh()
                if is_sample:
                    sampled_s = began_s
                    with self._lock:
                        self._history.add(found)
            with self._lock:
                if self._listeners:
                    self._render()
                    self._wake()
                wait_s = max(OPEN_S if self._listeners else SAMPLE_S, (time.thread_time() - spent_s) / SHARE_MAX)
                self._opened = False
                self._lock.wait_for(lambda: self._stopping or self._opened, wait_s)
                if self._stopping:
                    return

    def _fresh(self) -> Overview:
        """A look that begins after this was called; those who call meanwhile share the next one."""
        wanted = self._begun + 1
        with self._turn:
            if self._done < wanted:
                self._begun += 1
                self._take()
                self._done = self._begun
            error, overview = self._error, self._overview
        if error is not None or overview is None:
            raise (error or _unseen()).with_traceback(None)
        return overview

    def _take(self) -> None:
        try:
            found = self._look()
        except TailraceError as error:
            self._error = error
        except Exception:  # the page lives on, and says so
            _LOGGER.exception("what runs cannot be looked at")
            self._error = _unseen()
        else:
            with self._lock:
                self._overview = self._history.rated(found)
            self._error = None

    def _render(self) -> None:
        """Note what has changed since the last time."""
        error, overview = self._error, self._overview
        if overview is None:
            return
        made = {SIGHT: sight_lost(error, overview.at_s) if error is not None else Markup("")}
        made |= self._sections.of(overview, self._history)
        number = self._number + 1
        changed = {
            name: (number, inner) for name, inner in made.items() if self._shown.get(name, (0, None))[1] != inner
        }
        if changed:
            self._shown = {name: changed.get(name) or self._shown[name] for name in made}
            self._number = number

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.wake()


def _unseen() -> TailraceError:
    what = "what runs cannot be looked at, in a way that nobody thought of"
    return TailraceError("web.failed", what, hint="look into the log of the process, and report it")
