"""Progress of sync, on stderr: a bar for each peer on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from tailrace.cli.progress import LINE_EVERY_S
from tailrace.cli.show import printable

if TYPE_CHECKING:
    from tailrace.sync.address import PeerAddress
    from tailrace.sync.peerloop import PeerStatus
    from tailrace.sync.round import Progress

_ON_THE_WAY: Final = ("connecting", "syncing")


@contextmanager
def sync_progress(stream: TextIO | None = None) -> Iterator[Shown]:
    """Where progress is shown. Any number of threads may tell."""
    shown = Shown(stream or sys.stderr)
    try:
        yield shown
    finally:
        shown.close()


class Shown:
    """What is shown of sync."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}
        self._line_s: dict[str, float] = {}
        self._tasks: dict[str, Any] = {}
        self._bars: Any = _bars(stream) if stream.isatty() else None

    def tell(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            if self._bars is not None:
                self._bars.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
            else:
                print(printable(text), file=self._stream, flush=True)

    def moved(self, address: PeerAddress, table: str, progress: Progress) -> None:
        """A batch was exchanged."""
        self._show(address.name, f"{table}, {shown_progress(progress)}")

    def changed(self, status: PeerStatus) -> None:
        """Something is new about a peer. Where it stands is told when it is another place than before."""
        if status.state in _ON_THE_WAY:
            self._show(status.name, shown_progress(status.total))
            return
        line = f"{status.name}: {status.state}"
        if status.state == "offline" and status.last_error is not None:
            line += f": {status.last_error}"
        line = "\n  ".join((line, *status.total.warnings))
        with self._lock:
            is_news = self._last.get(status.name) != line
            self._last[status.name] = line
        if is_news:
            self.tell(line)
        self._show(status.name, shown_progress(status.total))

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()

    def _show(self, name: str, text: str) -> None:
        with self._lock:
            if self._bars is not None:
                if name not in self._tasks:
                    self._tasks[name] = self._bars.add_task(name, total=None, shown="")
                self._bars.update(self._tasks[name], shown=text)
                return
            now_s = time.monotonic()
            if now_s - self._line_s.setdefault(name, now_s) < LINE_EVERY_S or self._last.get(f"{name} line") == text:
                return
            self._line_s[name], self._last[f"{name} line"] = now_s, text
        self.tell(f"{name}: {text}")


def shown_progress(progress: Progress) -> str:
    """What was exchanged, for people."""
    more = f", {progress.refused:,} refused" if progress.refused else ""
    more += f", {progress.older:,} older than what was there" if progress.older else ""
    more += f", {progress.left:,} left where they are" if progress.left else ""
    return f"{progress.fetched:,} rows fetched, {progress.sent:,} sent{more}"


def _bars(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[shown]}"))
    bars = Progress(*columns, console=Console(file=stream))
    bars.start()
    return bars
