"""A real `tailrace run`, watched line by line."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, Self

DEADLINE_S: Final = 200.0

SHOP: Final = """
pipeline: shop
log: log
read: {sqlite: {path: shop.db}}
write:
  - {name: copy, sqlite: {path: copy.db}}
  - {name: second, sqlite: {path: second.db}}
"""


class RunProcess:
    """A process that runs a pipeline. Leaving the context kills it if it is still there."""

    def __init__(self, directory: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.lines: list[str] = []
        """What it has said so far."""
        self._out = directory / "stdout"
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tailrace", *arguments],
                cwd=directory,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        self._watchdog = threading.Timer(DEADLINE_S, self._process.kill)
        self._watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._stderr.close()
        self._watchdog.cancel()

    @property
    def _stderr(self) -> IO[str]:
        assert self._process.stderr is not None
        return self._process.stderr

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def out(self) -> str:
        return self._out.read_text()

    def wait_for(self, text: str) -> str:
        """The next line that has this text in it."""
        for line in self._stderr:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return line
        raise AssertionError(f"the process ended without saying {text!r}: {self.lines}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit status; what it says until then is in `lines`."""
        self.lines += [line.rstrip("\n") for line in self._stderr]
        return self._process.wait()

    def times_said(self, text: str) -> int:
        """How many lines have this text in them."""
        return sum(text in line for line in self.lines)


@contextlib.contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """A database; what is done is committed in the end."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def rows(path: Path) -> list[tuple[object, ...]]:
    """The orders in a database."""
    with database(path) as connection:
        return connection.execute("SELECT id, price FROM orders ORDER BY id").fetchall()


def make_shop(directory: Path, orders: int = 100) -> None:
    """A pipeline file and its source."""
    (directory / "shop.yml").write_text(SHOP)
    with database(directory / "shop.db") as shop:
        shop.execute("PRAGMA journal_mode=WAL")
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL)")
        shop.executemany("INSERT INTO orders VALUES (?, ?)", [(number, number / 2) for number in range(orders)])
