"""What copies of a log cost: a replica that catches up, against a plain copy of the same files that is synced, too.

The source is a process of its own. `--quick` takes about a minute. Registry and simulations are in topology_scale.py.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from figures import Figures, seconds
from log import rows as some_rows

from tailrace.log.batch import Batch
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.consumers import Consumers
from tailrace.log.standing import Standing
from tailrace.message import Offset
from tailrace.relay.applier import Source
from tailrace.relay.holds import Holds
from tailrace.topology.copied import CopiedLog
from tailrace.topology.following import Following
from tailrace.topology.pulling import Pulling
from tailrace.topology.serving import GuestServer, LogGuest

TOKEN = "a token of this bench"
SPAWN = multiprocessing.get_context("spawn")
BATCH_ROWS = 10_000
SEGMENT_BYTES = 64_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    figures = Figures("topology")
    with tempfile.TemporaryDirectory() as place:
        catching_up(figures, Path(place), 5_000_000 if arguments.quick else 20_000_000)
    figures.print()


def catching_up(figures: Figures, place: Path, count: int) -> None:
    log = place / "root"
    batch = Batch("main.orders", some_rows(BATCH_ROWS))
    with CommitLog.open(log, LogConfig(segment_bytes=SEGMENT_BYTES)) as made:
        for _ in range(count // BATCH_ROWS):
            made.append_soon([batch])
    size = sum(path.stat().st_size for path in log.glob("*.log"))
    ours_s, ratios = [], []
    with served(log) as port:
        for _ in range(3):
            peer_s = seconds(lambda: copy_plainly(log, place / "plain"))
            ours_s.append(seconds(lambda: copy_ours(place / "copy", port)))
            ratios.append(ours_s[-1] / peer_s)
            print(f"{size / ours_s[-1] / 1e6:.0f} MB/s, plain {size / peer_s / 1e6:.0f} MB/s", file=sys.stderr)
            for path in log.glob("*.log"):
                if (place / "copy" / path.name).read_bytes() != path.read_bytes():
                    raise SystemExit(f"{path.name} differs")
            shutil.rmtree(place / "copy")
            shutil.rmtree(place / "plain")
    figures.add("catch_up_mb_s", size / statistics.median(ours_s) / 1e6, "MB/s")
    figures.add("catch_up", statistics.median(ratios), "x a plain copy", at_most=1.5)


def copy_ours(directory: Path, port: int) -> None:
    """Everything, checked and synced, as a replica does."""
    with Following(Source("root", f"grpc://127.0.0.1:{port}", TOKEN), "copy", beat_s=5.0) as following:
        extent = following.extent()
        CopiedLog.begin(str(directory), Offset(extent.first), extent.log, Standing(extent.generation))
        with CopiedLog.open(directory) as copy:
            for _ in following.pull(copy, extent, waits=False, is_over=lambda: False):
                pass
            if copy.next_offset != extent.next_offset:
                raise SystemExit("the copy is not whole")


def copy_plainly(log: Path, directory: Path) -> None:
    """The files as the operating system copies them, each of them synced."""
    directory.mkdir()
    for path in sorted(log.glob("*.log")):
        made = directory / path.name
        shutil.copyfile(path, made)
        with made.open("rb") as file:
            os.fsync(file.fileno())


@contextmanager
def served(log: Path) -> Iterator[int]:
    """A process that serves a log; gives its port."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=serve, args=(str(log), theirs), daemon=True)
    process.start()
    yield ours.recv()
    ours.send("end")
    process.join()


def serve(log: str, pipe: Connection) -> None:
    pulling = Pulling(log, Holds(Consumers(log)), fanout=lambda: 8, beat_s=5.0)
    server = GuestServer([LogGuest(pulling)], location="grpc://127.0.0.1:0", tokens={"bench": TOKEN})
    pipe.send(server.port)
    pipe.recv()
    server.stop()


if __name__ == "__main__":
    main()
