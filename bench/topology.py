"""What replicas in tiers cost, against the targets of the issue.

- Catching up: a replica that gets a whole log from another process, checked and synced, against a plain copy of the
  same files that is synced, too, and against rsync, which also has two processes and checksums, if it is installed.
- The root: its CPU time and the bytes it sends, with 1, 8 and 64 leaves and a fan-out of 8. 1 and 8 leaves copy the
  root itself; 64 are behind 8 replicas that do. The root writes the same, at the same pace, each time, and is measured
  until its own replicas have it all. What has to stay constant is 64 against 8 leaves: in both cases it has 8 replicas
  of its own.
- Registering 1,000 nodes, with a registry in a process of its own that keeps each answer in SQLite before it gives it.
- A simulation of 100,000 nodes; more of these are in topology_scale.py.

`--quick` takes about a minute: a smaller log, less written, and 10,000 nodes simulated.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from figures import Figures, seconds
from log import rows as some_rows
from tiers import TOKEN, root_cost

from tailrace.log.batch import Batch
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.consumers import Consumers
from tailrace.log.standing import Standing
from tailrace.message import Offset
from tailrace.relay.applier import Source
from tailrace.relay.holds import Holds
from tailrace.topology.answers import Refusal
from tailrace.topology.copied import CopiedLog
from tailrace.topology.databasesql import DatabaseStorage
from tailrace.topology.following import Following
from tailrace.topology.member import UNKNOWN, State
from tailrace.topology.pulling import Pulling
from tailrace.topology.registry import Registry
from tailrace.topology.registryclient import RegistryClient
from tailrace.topology.registryguest import RegistryGuest
from tailrace.topology.scenario import Scenario
from tailrace.topology.serving import GuestServer, LogGuest
from tailrace.topology.simulate import simulate
from tailrace.topology.site import Site

SPAWN = multiprocessing.get_context("spawn")
BATCH_ROWS = 10_000
SEGMENT_BYTES = 64_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    figures = Figures("topology")
    is_quick: bool = arguments.quick
    with tempfile.TemporaryDirectory() as place:
        catching_up(figures, Path(place), 5_000_000 if is_quick else 20_000_000)
        fanning_out(figures, Path(place), 30 if is_quick else 200)
        registering(figures, Path(place))
    simulating(figures, 10_000 if is_quick else 100_000)
    figures.print()


def catching_up(figures: Figures, place: Path, count: int) -> None:
    log = place / "root"
    batch = Batch("main.orders", some_rows(BATCH_ROWS))
    with CommitLog.open(log, LogConfig(segment_bytes=SEGMENT_BYTES)) as made:
        for _ in range(count // BATCH_ROWS):
            made.append_soon([batch])
    size = sum(path.stat().st_size for path in log.glob("*.log"))
    ours_s, ratios, to_rsync = [], [], []
    with served(log) as port:
        for _ in range(5):
            peer_s = seconds(lambda: copy_plainly(log, place / "plain"))
            ours_s.append(seconds(lambda: copy_ours(place / "copy", port)))
            ratios.append(ours_s[-1] / peer_s)
            if shutil.which("rsync") is not None:
                to_rsync.append(ours_s[-1] / seconds(lambda: copy_by_rsync(log, place / "rsync")))
                shutil.rmtree(place / "rsync")
            print(f"{size / ours_s[-1] / 1e6:.0f} MB/s, plain {size / peer_s / 1e6:.0f} MB/s", file=sys.stderr)
            for path in log.glob("*.log"):
                if (place / "copy" / path.name).read_bytes() != path.read_bytes():
                    raise SystemExit(f"{path.name} differs")
            shutil.rmtree(place / "copy")
            shutil.rmtree(place / "plain")
    figures.add("catch_up_mb_s", size / statistics.median(ours_s) / 1e6, "MB/s")
    figures.add("catch_up", statistics.median(ratios), "x a plain copy", at_most=1.5)
    if to_rsync:
        figures.add("catch_up_rsync", statistics.median(to_rsync), "x rsync", at_most=1.5)


def fanning_out(figures: Figures, place: Path, groups: int) -> None:
    costs = {}
    for leaves in (1, 8, 64):
        directory = place / f"tree{leaves}"
        directory.mkdir()
        costs[leaves] = cost = root_cost(directory, leaves, groups)
        shutil.rmtree(directory)
        figures.add(f"root_cpu_{leaves}_leaves", cost.cpu_s, "s")
        figures.add(f"root_sent_{leaves}_leaves", cost.sent_bytes / 1e6, "MB")
    figures.add("root_cpu_64_to_8_leaves", costs[64].cpu_s / costs[8].cpu_s, "x", at_most=1.2)
    figures.add("root_sent_64_to_8_leaves", costs[64].sent_bytes / costs[8].sent_bytes, "x", at_most=1.2)


def registering(figures: Figures, place: Path, nodes: int = 1_000) -> None:
    """One after the other, as one replica after the other would: each asks, and says that it is connected."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=serve_registry, args=(str(place / "registry.db"), theirs), daemon=True)
    process.start()
    client = RegistryClient(Source("registry", f"grpc://127.0.0.1:{ours.recv()}", TOKEN))
    client.reset_nodes([Site("orders", "root:4700")], State.ACTIVE)

    def come() -> None:
        for number in range(nodes):
            site = Site("orders", f"node{number}:4700")
            offer = client.register_replicant(site, UNKNOWN)
            if isinstance(found := client.update_registry(site, offer.candidates[0].site), Refusal):
                raise SystemExit(found.what)

    took_s = seconds(come)
    ours.send("end")
    process.join()
    figures.add("registering_1000_nodes", took_s, "s")
    figures.add("registering_calls", 2 * nodes / took_s, "calls/s")


def serve_registry(path: str, pipe: Connection) -> None:
    registry = Registry(DatabaseStorage(path))
    guest = RegistryGuest(registry, lambda _: True)
    server = GuestServer([guest], location="grpc://127.0.0.1:0", tokens={"bench": TOKEN})
    pipe.send(server.port)
    pipe.recv()
    server.stop()
    registry.close()


def simulating(figures: Figures, nodes: int) -> None:
    found = simulate(Scenario(nodes))
    figures.add(f"simulated_{nodes}_nodes", found.took_s, "s", at_most=120)
    figures.add(f"simulated_{nodes}_nodes_most_replicas", found.children_max, "replicas", at_most=8)


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


def copy_by_rsync(log: Path, directory: Path) -> None:
    """Whole files, each of them synced."""
    files = sorted(str(path) for path in log.glob("*.log"))
    subprocess.run(["rsync", "--whole-file", "--fsync", *files, f"{directory}/"], check=True)


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
