"""A pipeline whose processes are killed, again and again, while its source is being written.

A ledger at both ends: every row of the source carries a number that grows with each change. Nothing may be lost, the
order of each row's changes must stay, and both destinations, which know their own offsets, must have nothing twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

PIPELINE: Final = """
pipeline: ledger
log: log
read:
  sqlite: {path: source.db, piece_rows: 500}
write:
  - name: table
    sqlite: {path: table.db}
  - name: lines
    files: {path: lines.jsonl, with_envelope: true}
"""
DEADLINE_S: Final = 240.0


class Feeder(threading.Thread):
    """Writes to the source until it is stopped; every change gets the next number."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._random = random.Random(seed)
        self._stop_asked = threading.Event()
        self.number = 0

    def run(self) -> None:
        with closing(sqlite3.connect(self._path, timeout=60)) as connection:
            while not self._stop_asked.wait(0.02):
                with connection:
                    for _ in range(self._random.randint(1, 8)):
                        self._change(connection)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()

    def _change(self, connection: sqlite3.Connection) -> None:
        self.number += 1
        row = self._random.randint(0, 3000)
        if self._random.random() < 0.1:
            connection.execute("DELETE FROM ledger WHERE id = ?", (row,))
        else:
            connection.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?)", (row, self.number))


def make_source(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE ledger (id INTEGER PRIMARY KEY, number INTEGER)")
        connection.executemany("INSERT INTO ledger VALUES (?, 0)", [(row,) for row in range(2000)])


@contextmanager
def pipeline(directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`tailrace run` in a process group of its own, which ends with the block."""
    with open(directory / "run.log", "ab") as talk:
        process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", "run", str(directory / "pipeline.yml"), *options],
            stdout=talk,
            stderr=talk,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def talk(directory: Path) -> str:
    return (directory / "run.log").read_text()[-4000:]


def wait_for(goal: int, process: subprocess.Popen[bytes], directory: Path) -> None:
    """Until so many lines are delivered."""
    give_up_s = time.monotonic() + DEADLINE_S
    while delivered(directory) < goal:
        assert process.poll() is None, f"the pipeline ended by itself:\n{talk(directory)}"
        assert time.monotonic() < give_up_s, f"no progress:\n{talk(directory)}"
        time.sleep(0.05)


def delivered(directory: Path) -> int:
    """How many lines the second destination has."""
    path = directory / "lines.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    """The Python workers of a pipeline: what the daemon under its JVM has forked."""
    children: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
                commands[int(entry.name)] = Path(entry.path, "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry.name))
    below, found = [process.pid], []
    while below:
        pid = below.pop()
        for child in children.get(pid, []):
            below.append(child)
            if "daemon" in commands.get(pid, "") and "daemon" in commands.get(child, ""):
                found.append(child)
    return found


def check(directory: Path) -> None:
    """Both ends agree, and the way between them kept the order."""
    with closing(sqlite3.connect(directory / "source.db")) as source:
        rows = dict(source.execute("SELECT id, number FROM ledger"))
    with closing(sqlite3.connect(directory / "table.db")) as table:
        assert dict(table.execute("SELECT id, number FROM ledger")) == rows
    lines = [json.loads(line) for line in (directory / "lines.jsonl").read_text().splitlines()]
    offsets = [line["offset"] for line in lines]
    assert offsets == sorted(set(offsets)), "an offset came twice or too early"
    state: dict[int, int] = {}
    for line in lines:
        if line["op"] == "delete":
            state.pop(line["data"]["id"], None)
        else:
            state[line["data"]["id"]] = line["data"]["number"]
    assert state == rows


def kill_in_a_loop(directory: Path, kills: int, seed: int) -> None:
    """Kill a worker, then the driver, after as much progress as the seed says; at the end let it finish."""
    chosen = random.Random(seed)
    (directory / "pipeline.yml").write_text(PIPELINE)
    make_source(directory / "source.db")
    feeder = Feeder(directory / "source.db", seed)
    feeder.start()
    try:
        for _ in range(kills):
            with pipeline(directory) as process:
                wait_for(delivered(directory) + chosen.randint(1, 1500), process, directory)
                for worker in chosen.sample(workers := workers_of(process), min(2, len(workers))):
                    os.kill(worker, signal.SIGKILL)
                wait_for(delivered(directory) + chosen.randint(1, 200), process, directory)
                process.kill()
    finally:
        feeder.stop()
    with pipeline(directory, "--once") as process:
        assert process.wait(DEADLINE_S) == 0, talk(directory)
    assert feeder.number > 0
    check(directory)


@pytest.mark.crash
@pytest.mark.timeout(900)
def test_killed_a_few_times(tmp_path: Path) -> None:
    kill_in_a_loop(tmp_path, kills=2, seed=1)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(3))
def test_killed_many_times(tmp_path: Path, seed: int) -> None:
    kill_in_a_loop(tmp_path, kills=20, seed=seed)
