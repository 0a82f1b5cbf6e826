"""Stopping a pipeline with signals: the first lets it finish what was begun, the second ends it at once."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.watch import Watch
from tailrace.message import Op
from tests.cli.process import DEADLINE_S, RunProcess, database, make_shop, rows

pytestmark = pytest.mark.crash


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    make_shop(tmp_path)
    return tmp_path


def command(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tailrace", *arguments], cwd=directory, capture_output=True, text=True)


def test_one_signal_drains(shop: Path) -> None:
    with RunProcess(shop, "run", "shop.yml") as run:
        run.wait_for("waiting for changes")
        found = json.loads(command(shop, "status", "shop.yml", "--json").stdout)
        assert found["running"] is not None
        assert [each["state"] for each in found["writers"]] == ["running", "running"]
        other = command(shop, "run", "shop.yml")
        assert (other.returncode, other.stdout) == (1, "")
        assert "error log.locked" in other.stderr
        for number in range(100, 600):
            with database(shop / "shop.db") as source:
                source.execute("INSERT INTO orders VALUES (?, 1)", [number])
            if number == 300:
                run.signal(signal.SIGTERM)
        assert run.wait() == 0, run.lines
    assert run.out == ""
    assert run.times_said("SIGTERM: finishing what was begun") == 1
    captured = [
        entry.message.data["id"]
        for entry in LogReader(shop / "log").entries()
        if entry.message.namespace == "main.orders" and entry.message.op is Op.INSERT and entry.message.data
    ]
    assert captured == list(range(len(captured)))  # once each, in order
    for destination in ("copy.db", "second.db"):
        assert [row[0] for row in rows(shop / destination)] == captured


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_stops_at_once(shop: Path, number: signal.Signals, status: int) -> None:
    with RunProcess(shop, "run", "shop.yml") as run:
        run.wait_for("waiting for changes")
        with locked(shop / "copy.db"):  # so that there is something to wait for
            captured = insert_and_await_capture(shop)
            run.signal(number)
            run.wait_for(f"{number.name}: finishing what was begun; once more stops at once")
            run.signal(number)
            assert run.wait() == status, run.lines
    # what was not written is not recorded either, so that the next run delivers it
    assert [row[0] for row in rows(shop / "copy.db")] == list(range(100))
    consumers = Consumers(shop / "log")
    assert consumers.position(consumers.get("copy")) < captured


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else can write to a database."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def insert_and_await_capture(shop: Path) -> int:
    """Insert an order; returns its offset in the log."""
    log = LogReader(shop / "log")
    with Watch(log.directory) as watch:
        first = log.next_offset
        with database(shop / "shop.db") as source:
            source.execute("INSERT INTO orders VALUES (1000, 1)")
        deadline_s = time.monotonic() + DEADLINE_S
        while log.next_offset == first:
            assert time.monotonic() < deadline_s
            watch.wait(1.0)
    return first
