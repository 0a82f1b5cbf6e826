"""Other processes: a piece of Python that runs beside the test and tells by lines how far it is."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

DEADLINE_S = 120.0
PROJECT = Path(__file__).parents[2]


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail when it does not for two minutes."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited for two minutes"
        time.sleep(0.005)


class Child:
    """A Python process. Leaving the context kills it if it is still there."""

    def __init__(self, code: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """The next line it prints; fails when it ends without one."""
        line = self._lines.get(timeout=DEADLINE_S)
        assert line is not None, f"the child ended with status {self._process.wait()}"
        return line

    def rest(self) -> list[str]:
        """All lines until it ends, which it must do without a failure."""
        lines = self.lines()
        assert self._process.wait(DEADLINE_S) == 0
        return lines

    def lines(self) -> list[str]:
        """All lines until it ends, however it does."""
        lines = []
        while (line := self._lines.get(timeout=DEADLINE_S)) is not None:
            lines.append(line)
        return lines

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End it as a power cut would, as far as a process can tell."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)
