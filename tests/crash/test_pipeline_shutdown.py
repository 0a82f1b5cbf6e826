"""Stopping a pipeline with signals: the first lets it finish what was begun, the second ends it at once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.watch import Watch
from tailrace.message import Op
from tailrace.pipeline.run import Running, Watcher, run
from tailrace.pipeline.shutdown import Shutdown
from tailrace.pipeline.spec import PipelineSpec, ReadSpec, WriteSpec
from tailrace.spark.turns import Turns
from tests.cli.process import DEADLINE_S, RunProcess, database, make_shop, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.crash


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    make_shop(tmp_path)
    return tmp_path


def command(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tailrace", *arguments], cwd=directory, capture_output=True, text=True)


def test_one_signal_drains(shop: Path) -> None:
    with RunProcess(shop, "run", "shop.yml") as process:
        process.wait_for("waiting for changes")
        found = json.loads(command(shop, "status", "shop.yml", "--json").stdout)
        assert found["is_running"]
        assert [each["state"] for each in found["parts"] if each["kind"] == "writer"] == ["running", "running"]
        other = command(shop, "run", "shop.yml")
        assert (other.returncode, other.stdout) == (1, "")
        assert "error log.locked" in other.stderr
        for number in range(100, 600):
            with database(shop / "shop.db") as source:
                source.execute("INSERT INTO orders VALUES (?, 1)", [number])
            if number == 300:
                process.signal(signal.SIGTERM)
        assert process.wait() == 0, process.lines
    assert process.out == ""
    assert process.times_said("SIGTERM: finishing what was begun") == 1
    captured = [
        entry.message.data["id"]
        for entry in LogReader(shop / "log").entries()
        if entry.message.namespace == "main.orders" and entry.message.op is Op.INSERT and entry.message.data
    ]
    assert captured == list(range(len(captured)))  # once each, in order
    for destination in ("copy.db", "second.db"):
        assert [row[0] for row in rows(shop / destination)] == captured


@pytest.mark.parametrize(
    ("number", "status"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long), (signal.SIGINT, 130)]
)
def test_a_second_signal_stops_at_once(shop: Path, number: signal.Signals, status: int) -> None:
    with RunProcess(shop, "run", "shop.yml") as process:
        process.wait_for("waiting for changes")
        with locked(shop / "copy.db"):  # so that there is something to wait for
            captured = insert_and_await_capture(shop)
            process.signal(number)
            process.wait_for(f"{number.name}: finishing what was begun; once more stops at once")
            process.signal(number)
            assert process.wait() == status, process.lines
    # what was not written is not recorded either, so that the next run delivers it
    assert [row[0] for row in rows(shop / "copy.db")] == list(range(100))
    consumers = Consumers(shop / "log")
    assert consumers.position(consumers.get("copy")) < captured


def test_a_signal_while_spark_starts(shop: Path) -> None:
    """Nothing was begun, so nobody waits for Spark; here it would never be there."""
    (shop / "java").mkdir()
    java = shop / "java" / "java"
    java.write_text("#!/bin/sh\nexec cat\n")  # it ends when the one who started it does
    java.chmod(0o755)
    path = {"PATH": f"{shop / 'java'}:{os.environ['PATH']}", "JAVA_HOME": ""}
    with RunProcess(shop, "run", "shop.yml", environment=path) as process:
        process.wait_for("writer second: starts with an empty log")
        process.signal(signal.SIGTERM)
        assert process.wait() == 1, process.lines
    assert process.times_said("SIGTERM: finishing what was begun") == 1
    assert process.lines[-2].startswith("error pipeline.stopped: not everything was delivered"), process.lines


def test_what_does_not_end_is_ended(tmp_path: Path) -> None:
    """Whatever it hangs at when the time for a clean end is over."""
    program = """
import time
from tailrace.pipeline import shutdown

shutdown.CLOSING_S = 0.5
with shutdown.Shutdown().listening(lambda text: print(text, flush=True), 0.5):
    print("begun", flush=True)
    while True:
        time.sleep(1)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        said = process.stdout.read()
    assert process.returncode == 1
    assert "what was begun does not end, so it is broken off" in said


def test_spark_that_is_killed(shop: Path) -> None:
    with RunProcess(shop, "run", "shop.yml") as process:
        process.wait_for("waiting for changes")
        os.kill(jvm_of(process.pid), signal.SIGKILL)
        status = process.wait()
    assert status == 1, process.lines
    last = process.lines.index("error spark.failed: Spark's process ended")
    assert [line.partition(":")[0] for line in process.lines[last:]] == ["error spark.failed", "  next"]
    assert process.times_said("error ") == 1
    assert process.times_said("Traceback") == 0, process.lines
    (wrong,) = json.loads(command(shop, "status", "shop.yml", "--json").stdout)["wrong"]
    assert wrong["code"] == "spark.failed"


def jvm_of(pid: int) -> int:
    """The process of Spark that another one has started."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for path in children for child in path.read_text().split()]
    (jvm,) = [child for child in found if Path(f"/proc/{child}/comm").read_text().strip() == "java"]
    return jvm


def test_a_clean_end_has_its_time(shop: Path, spark: SparkSession) -> None:
    source, destination = SqliteReaderOptions(path=str(shop / "shop.db")), shop / "copy.db"
    writes = (WriteSpec("copy", "sqlite", SqliteWriterOptions(path=str(destination), busy=250)),)
    spec = PipelineSpec("shop", str(shop / "log"), ReadSpec("sqlite", source), writes, shutdown_s=1)
    shutdown, watcher = Shutdown(), Eager()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(run, spec, watcher=watcher, shutdown=shutdown, session=lambda: spark)
        running.add_done_callback(lambda _: watcher.has_caught_up.set())
        assert watcher.has_caught_up.wait(DEADLINE_S)
        assert running.running()
        with locked(destination):
            captured = insert_and_await_capture(shop)
            shutdown.asked.set()
            summary = running.result(DEADLINE_S)
    assert not summary.drained
    assert summary.errors == []
    assert any("the time for a clean end is over" in text for text in watcher.said)
    assert watcher.streams["copy"].error is None  # what was broken off did not fail
    consumers = Consumers(spec.log)
    assert consumers.position(consumers.get("copy")) < captured


class Eager(Watcher):
    """Waits until everything is delivered."""

    def __init__(self) -> None:
        self.has_caught_up = threading.Event()
        self.said: list[str] = []
        self.streams: dict[str, Turns] = {}

    def say(self, text: str) -> None:
        self.said.append(text)

    def look(self, running: Running) -> None:
        self.streams = running.streams
        end = running.log.next_offset
        is_copied = bool(running.capture.stats.messages) and running.capture.is_idle
        if is_copied and all(delivery.next_offset >= end for delivery in running.deliveries):
            self.has_caught_up.set()


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
