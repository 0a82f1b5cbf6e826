"""What the log costs over plain files. Run with --quick for a short look; --profile KEY says where the time goes."""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from figures import Figures, median_ratio, seconds
from pyarrow import ipc

from tailrace.limits import KIB
from tailrace.log.batch import TIMESTAMP, Batch
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.reader import LogReader
from tailrace.log.segment import FrameFile, segment_name
from tailrace.message import Offset

NAMESPACE = "shop.orders"
READERS = 10


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    rounds: int
    big_batches: int
    small_groups: int
    memory_bytes: int
    tail_groups: int


FULL = Size(rounds=9, big_batches=300, small_groups=2000, memory_bytes=5_000_000_000, tail_groups=4000)
QUICK = Size(rounds=3, big_batches=50, small_groups=300, memory_bytes=200_000_000, tail_groups=1000)


def rows(count: int, seed: int = 1) -> pa.RecordBatch:
    """Messages with ten mixed columns."""
    chance = np.random.default_rng(seed)
    choice = random.Random(seed)
    data = pa.StructArray.from_arrays(
        [
            pa.array(np.arange(count)),
            pa.array(chance.integers(0, 100, count).astype("int32")),
            pa.array(chance.random(count)),
            pa.array(chance.integers(0, 2, count).astype(bool)),
            pa.array([f"customer-{choice.randrange(100_000)}" for _ in range(count)]),
            pa.array([choice.choice(("Zürich", "Bern", "Basel")) for _ in range(count)]),
            pa.array([None if at % 3 else f"note {at} é" for at in range(count)]),
            pa.array(chance.integers(1_600_000_000_000_000, 1_700_000_000_000_000, count), pa.timestamp("us")),
            pa.array(chance.random(count) * 100),
            pa.array([f"{choice.getrandbits(32):08x}" for _ in range(count)]),
        ],
        names=["id", "quantity", "weight", "paid", "customer", "city", "note", "placed", "amount", "code"],
    )
    columns: list[pa.Array[Any]] = [
        pa.array(np.zeros(count, "int8")),
        pa.array(np.full(count, 1_700_000_000_000_000), TIMESTAMP),
        pa.array(np.arange(1, count + 1)),
        data,
    ]
    return pa.RecordBatch.from_arrays(columns, names=["op", "timestamp", "lsn", "data"])


def append_soon(directory: Path, batch: pa.RecordBatch, groups: int) -> None:
    """One commit group per batch, each synced before it is acknowledged, the next one made meanwhile."""
    shutil.rmtree(directory, ignore_errors=True)
    with CommitLog.open(directory) as log:
        for _ in range(groups):
            pending = log.append_soon([Batch(NAMESPACE, batch)])
        pending.wait()


def append(directory: Path, batch: pa.RecordBatch, groups: int) -> None:
    """The same, waiting for each group."""
    shutil.rmtree(directory, ignore_errors=True)
    with CommitLog.open(directory) as log:
        for _ in range(groups):
            log.append([Batch(NAMESPACE, batch)])


def read(directory: Path) -> int:
    """Every message decoded, every checksum checked."""
    return sum(frame.rows().num_rows for frame in LogReader(directory).frames())


def write_arrow(path: Path, batch: pa.RecordBatch, count: int) -> None:
    """The peer: one Arrow file, compressed alike, one fsync at the end."""
    path.unlink(missing_ok=True)
    options = ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as file, ipc.new_stream(file, batch.schema, options=options) as stream:
        for _ in range(count):
            stream.write_batch(batch)
    with path.open("rb") as written:
        os.fsync(written.fileno())


def read_arrow(path: Path) -> int:
    with pa.OSFile(str(path), "rb") as file, ipc.open_stream(file) as stream:
        return sum(batch.num_rows for batch in stream)


def write_bare(path: Path, piece: bytes, count: int) -> None:
    """The limit: the same bytes with one write and one fdatasync per group."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    for _ in range(count):
        os.write(fd, piece)
        os.fdatasync(fd)
    os.close(fd)


def measure_batches(figures: Figures, scratch: Path, size: Size) -> None:
    batch, log, arrow = rows(10_000), scratch / "log", scratch / "peer.arrow"
    count = size.big_batches

    def peer() -> None:
        write_arrow(arrow, batch, count)

    for key, ours in (("append_10k_ratio", append_soon), ("append_10k_waiting_ratio", append)):
        ratio = median_ratio(size.rounds, partial(ours, log, batch, count), peer)
        figures.add(key, ratio, "x pyarrow.ipc with one fsync", at_most=1.3)
    assert read(log) == read_arrow(arrow) == count * 10_000
    ratio = median_ratio(2 * size.rounds, lambda: read(log), lambda: read_arrow(arrow))
    figures.add("read_10k_ratio", ratio, "x pyarrow.ipc", at_most=1.3)
    figures.add("read_10k_rate", count * 10_000 / seconds(lambda: read(log)) / 1e6, "million rows/s")


def measure_small_groups(figures: Figures, scratch: Path, size: Size) -> None:
    batch, log, bare = rows(100), scratch / "log", scratch / "bare"
    append(log, batch, 1)
    piece = (log / segment_name(0)).read_bytes()
    for key, ours in (("append_100_ratio", append_soon), ("append_100_waiting_ratio", append)):
        ratio = median_ratio(
            size.rounds,
            partial(ours, log, batch, size.small_groups),
            partial(write_bare, bare, piece, size.small_groups),
        )
        figures.add(key, ratio, "x write+fdatasync of the same bytes", at_most=1.5)


def measure_opening(figures: Figures, scratch: Path) -> None:
    """Opening costs time in the number of segments, not in bytes."""
    batch = rows(1000)
    logs = {"small": (scratch / "small", 1), "large": (scratch / "large", 10)}
    for directory, groups in logs.values():
        with CommitLog.open(directory, LogConfig(sync_every_s=None)) as log:
            for _ in range(200):
                log.append([Batch(NAMESPACE, batch)] * groups)
                log.roll()

    def opening(name: str) -> Callable[[], None]:
        return lambda: CommitLog.open(logs[name][0]).close()

    ratio = median_ratio(5, opening("large"), opening("small"))
    figures.add("open_200_segments_ratio", ratio, "x the same with a tenth of the bytes", at_most=1.5)
    figures.add("open_200_segments", seconds(opening("large")) * 1000, "ms")


def measure_finding(figures: Figures, scratch: Path) -> None:
    """Finding an offset reads as much in a long segment as in a short one."""
    read_bytes = {}
    for name, frames in (("short", 500), ("long", 20_000)):
        directory = scratch / name
        batch = rows(10)
        with CommitLog.open(directory, LogConfig(sync_every_s=None)) as log:
            for _ in range(frames // 100):
                log.append([Batch(NAMESPACE, batch)] * 100)
        read_bytes[name] = max(bytes_to_find(directory, at) for at in range(0, frames * 10, frames * 10 // 37))
    ratio = read_bytes["long"] / read_bytes["short"]
    figures.add("find_offset_bytes_ratio", ratio, "x bytes read in a segment with 1/40 of the frames", at_most=2.0)


def bytes_to_find(directory: Path, offset: int) -> int:
    counted = 0
    original = FrameFile.bytes_at

    def counting(self: FrameFile, position: int, size: int) -> bytes:
        nonlocal counted
        raw = original(self, position, size)
        counted += len(raw)
        return raw

    FrameFile.bytes_at = counting  # type: ignore[method-assign]
    try:
        LogReader(directory).view.find(Offset(offset))
    finally:
        FrameFile.bytes_at = original  # type: ignore[method-assign]
    return counted


def measure_memory(figures: Figures, scratch: Path, size: Size) -> None:
    command = [sys.executable, __file__, "--memory", str(scratch / "memory"), str(size.memory_bytes)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures.add(
        "memory_rss", float(answer), f"MB while appending and reading {size.memory_bytes / 1e9:g} GB", at_most=300
    )


def use_memory(directory: Path, wanted_bytes: int) -> None:
    """In a process of its own: append and read so many bytes and print the peak."""
    batch = rows(10_000)
    with CommitLog.open(directory) as log:
        while sum(file.stat().st_size for file in directory.glob("*.log")) < wanted_bytes:
            for _ in range(20):
                pending = log.append_soon([Batch(NAMESPACE, batch)])
            pending.wait()
    read(directory)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB / 1e6)


def measure_tailing(figures: Figures, scratch: Path, size: Size) -> None:
    """The appender with ten readers, each in its own process, against the appender alone.

    The readers get every frame as it comes and check its checksums. What they do with it then is their own affair:
    the second figure has them decode every message on the same two cores.
    """
    batch = rows(100)
    for key, work, target in (("ten_readers_ratio", "receive", 1.2), ("ten_readers_decoding_ratio", "decode", None)):
        if target is None and size is QUICK:
            return
        found = []
        for _ in range(1 if size is QUICK else 5):
            alone_s = seconds(partial(append, scratch / "alone", batch, size.tail_groups))
            found.append(append_with_readers(scratch / "tailed", batch, size.tail_groups, work) / alone_s)
        figures.add(key, statistics.median(found), "x the appender alone", at_most=target)


def append_with_readers(directory: Path, batch: pa.RecordBatch, groups: int, work: str) -> float:
    shutil.rmtree(directory, ignore_errors=True)
    with CommitLog.open(directory) as log:
        command = [sys.executable, __file__, "--tail", str(directory), str(groups * len(batch)), work]
        readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(READERS)]
        for reader in readers:
            assert reader.stdout is not None
            reader.stdout.readline()
        started = time.perf_counter()
        for _ in range(groups):
            log.append([Batch(NAMESPACE, batch)])
        took_s = time.perf_counter() - started
        for reader in readers:
            assert reader.wait(timeout=120) == 0
    return took_s


def tail(directory: Path, wanted: int, work: str) -> None:
    """One reader."""
    print("ready", flush=True)
    seen = 0
    for frame in LogReader(directory).tail(0):
        seen += frame.rows().num_rows if work == "decode" else frame.head.messages
        if seen >= wanted:
            return


def profile(key: str, scratch: Path, size: Size) -> None:
    """Where the time of one figure goes."""
    big, small = rows(10_000), rows(100)
    works: dict[str, Callable[[], object]] = {
        "append_10k": lambda: append(scratch / "log", big, size.big_batches),
        "append_100": lambda: append(scratch / "log", small, size.small_groups),
        "read_10k": lambda: read(scratch / "log"),
    }
    if key == "read_10k":
        append(scratch / "log", big, size.big_batches)
    profiler = cProfile.Profile()
    profiler.runcall(works[key])
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about half a minute")
    parser.add_argument("--dir", type=Path, help="where to write; by default a temporary directory")
    parser.add_argument("--profile", choices=("append_10k", "append_100", "read_10k"))
    parser.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--tail", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.memory:
        use_memory(Path(chosen.memory[0]), int(chosen.memory[1]))
        return
    if chosen.tail:
        tail(Path(chosen.tail[0]), int(chosen.tail[1]), chosen.tail[2])
        return
    size = QUICK if chosen.quick else FULL
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir=chosen.dir) as name:
        scratch = Path(name)
        if chosen.profile:
            profile(chosen.profile, scratch, size)
            return
        figures = Figures("log")
        measure_batches(figures, scratch, size)
        measure_small_groups(figures, scratch, size)
        measure_opening(figures, scratch)
        measure_finding(figures, scratch)
        measure_tailing(figures, scratch, size)
        measure_memory(figures, scratch, size)
        figures.print()


if __name__ == "__main__":
    main()
