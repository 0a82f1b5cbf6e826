"""What the log does, shown on data made here."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from tailrace.cli.progress import progress
from tailrace.cli.show import as_block
from tailrace.cli.stat import print_stat
from tailrace.errors import Place, TailraceError
from tailrace.limits import MIB
from tailrace.log.batch import Batch, batch_of
from tailrace.log.commitlog import CommitLog, LogConfig, Pending
from tailrace.log.compaction import By, compact
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.session import ConsumerSession
from tailrace.log.stat import stat
from tailrace.message import Micros, Mode, Op
from tailrace.units import show_bytes

_ROWS: Final = 10_000
_KEYS: Final = 50_000
_NAMESPACES: Final = ("shop.orders", "shop.customers", "shop.items")
_SEGMENT_BYTES: Final = 8 * MIB
_CITIES: Final = ("Zürich", "Bern", "Basel", "Genève")


def run(messages: int, directory: str | None) -> None:
    """The whole demonstration; leaves nothing behind unless a directory is given."""
    if directory is not None:
        if os.path.isdir(directory) and os.listdir(directory):
            raise TailraceError("input.invalid", f"{directory} is not empty", hint="name a new directory with --log")
        _run(messages, directory)
        print(f"\nThe log is in {directory}. Look at it with: tailrace log stat --log {directory}")
        return
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as scratch:
        _run(messages, os.path.join(scratch, "log"))


def _run(messages: int, directory: str) -> None:
    _step(f"1. Write {messages} messages, every commit group synced to disk before it is acknowledged")
    _timed(messages, lambda: _write(messages, directory))
    _step("2. Read them back, every checksum checked")
    _timed(messages, lambda: _read(messages, directory))
    _step("3. A consumer has had everything, so compaction keeps only the last message of every key")
    _compact(directory)
    _step("4. The log now")
    print_stat(stat(directory))
    print()
    reader = LogReader(directory)
    newest = reader.next_offset - 1
    for entry in reader.entries(newest, newest + 1):
        print(as_block(entry), end="")


def _write(messages: int, directory: str) -> None:
    with (
        CommitLog.open(directory, LogConfig(segment_bytes=_SEGMENT_BYTES)) as log,
        progress("writing", str) as report,
    ):
        pending: Pending | None = None
        for batch in _batches(messages):
            pending = log.append_soon([batch])
            report(pending.range.end, messages)
        if pending is not None:
            pending.wait()


def _read(messages: int, directory: str) -> None:
    read = 0
    with progress("reading", str) as report:
        for frame in LogReader(directory).frames():
            read += frame.rows().num_rows
            report(read, messages)
    if read != messages:
        what = f"{messages} messages were written but {read} came back"
        raise TailraceError("log.corrupt", what, place=Place(directory), hint="tailrace log verify")


def _compact(directory: str) -> None:
    consumers = Consumers(directory)
    consumers.register("warehouse")
    with ConsumerSession(consumers, "warehouse") as session:
        session.commit(LogReader(directory).next_offset - 1)
    with progress("compacting", show_bytes) as report:
        result = compact(directory, by=By.KEY, progress=report)
    before = sum(segment.bytes_before for segment in result.segments)
    after = sum(segment.bytes_after for segment in result.segments)
    removed = sum(segment.messages_before - segment.messages_after for segment in result.segments)
    print(f"   {removed} messages removed, {show_bytes(before)} became {show_bytes(after)}")


def _batches(messages: int) -> Iterator[Batch]:
    for number, start in enumerate(range(0, messages, _ROWS)):
        rows = range(start, min(start + _ROWS, messages))
        ids = [row % _KEYS for row in rows]
        data = pa.RecordBatch.from_pydict(
            {
                "id": pa.array(ids, pa.int64()),
                "customer": [f"customer-{row % 997}" for row in rows],
                "city": [_CITIES[row % len(_CITIES)] for row in rows],
                "price": pa.array([row % 10_000 / 100 for row in rows], pa.float64()),
                "note": [None if row % 3 else f"note {row}" for row in rows],
            }
        )
        yield batch_of(
            _NAMESPACES[number % len(_NAMESPACES)],
            data,
            op=Op.INSERT if start < _KEYS else Op.UPDATE,
            timestamp=Micros(time.time_ns() // 1000),
            mode=Mode.SYNC,
            first_lsn=start + 1,
            key=("id",),
        )


def _step(title: str) -> None:
    print(title, flush=True)


def _timed(messages: int, work: Callable[[], None]) -> None:
    started = time.perf_counter()
    work()
    took_s = time.perf_counter() - started
    print(f"   {took_s:.1f} s, {messages / took_s:,.0f} messages a second", flush=True)
    sys.stdout.flush()
