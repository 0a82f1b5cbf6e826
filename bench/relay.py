"""What nodes cost each other: a join against bare Arrow Flight, following, the delay of one row, further followers,
and the snapshot of a real Tarantool.

Every source is a process of its own. `--quick` takes about a minute; `--only` names parts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import tarantool
from figures import Figures, seconds
from log import rows as some_rows
from processes import ENVIRONMENT
from pyarrow import ipc

from tailrace.adaptor.sqlite.options import SqliteReaderOptions
from tailrace.log.batch import Batch, decode_body
from tailrace.log.commitlog import CommitLog
from tailrace.message import Lsn, NodeId
from tailrace.node.identity import Identity, enter
from tailrace.node.load import load_node
from tailrace.node.node import Node
from tailrace.node.status import read_status
from tailrace.relay import flight
from tailrace.relay.applier import Applier, Source
from tailrace.relay.flight import Call, RelayServer
from tailrace.relay.joining import PARALLEL, Joining
from tailrace.relay.journal import Journal
from tailrace.relay.request import Finish, Join, Joined, Subscribe
from tailrace.relay.service import Service
from tailrace.relay.vclock import Vclock

CLUSTER = str(uuid.UUID(int=1))
TOKEN = "a token of this bench"
SPAWN = multiprocessing.get_context("spawn")
COLUMNS = (
    "id INTEGER PRIMARY KEY, customer INTEGER, amount REAL, rate REAL, name TEXT, city TEXT,"
    " is_paid INTEGER, at TEXT, day TEXT, note TEXT"
)
ROWS = (
    "INSERT INTO orders WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {})"
    " SELECT n, n % 9973, n * 1.25, 1.0 / (n + 1), 'Customer number ' || n, 'City ' || n % 97, n % 2,"
    " '2026-01-01T00:00:' || n % 60, '2026-01-' || n % 28, 'a note about ' || n FROM g"
)


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    join_rows: int
    log_rows: int
    samples: int
    followed_rows: int
    tarantool_rows: int


FULL = Size(join_rows=2_000_000, log_rows=5_000_000, samples=1_000, followed_rows=1_000_000, tarantool_rows=1_000_000)
QUICK = Size(join_rows=200_000, log_rows=500_000, samples=200, followed_rows=100_000, tarantool_rows=200_000)


def main() -> None:
    jobs: dict[str, Callable[[Figures, Path, Size], None]] = {
        "join": join,
        "subscribe": subscribe,
        "latency": latency,
        "followers": followers,
        "tarantool": lambda figures, _, size: tarantool.run(figures, size.tarantool_rows),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute: less data")
    parser.add_argument("--only", default="", help=f"run only these, separated by commas: {', '.join(jobs)}")
    options = parser.parse_args()
    chosen = [name for name in options.only.split(",") if name] or list(jobs)
    figures = Figures("relay")
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        for name in chosen:
            place = Path(directory, name)
            place.mkdir()
            jobs[name](figures, place, QUICK if options.quick else FULL)
            shutil.rmtree(place)
    figures.print()


# A join: node to node, and what Flight alone takes for the same batches.


def join(figures: Figures, place: Path, size: Size) -> None:
    """Chunks are fetched as a newcomer does it, four at a time, into files. Bare Flight reads the same pieces of the
    same view with the same reader, sends them as they are, and its client writes them to files, too."""
    with closing(sqlite3.connect(place / "a.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"CREATE TABLE orders ({COLUMNS})")
        database.execute(ROWS.format(size.join_rows))
    with served(place, "a") as location:
        source = Source("a", location, TOKEN)
        with source.client() as client:
            join_ratio(figures, place, size, source, client)
        (place / "b.yml").write_text(node_text("b", "sources", location.removeprefix("grpc://")))
        with closing(sqlite3.connect(place / "b.db")) as database:
            database.execute("PRAGMA journal_mode = WAL")
        began = time.monotonic()
        with Node(load_node(str(place / "b.yml")), lambda _: None) as node:
            while node.identity.cluster is None:
                time.sleep(0.02)
            whole_s = time.monotonic() - began
    figures.add("join_whole", size.join_rows / whole_s, "rows/s, from an empty node to all rows in its SQLite store")


def join_ratio(figures: Figures, place: Path, size: Size, source: Source, client: fl.FlightClient) -> None:
    joined: list[Joined] = []
    view_s = seconds(lambda: joined.append(ask_to_join(client)))
    figures.add("join_view", view_s, "s until the view is there")
    (view,) = (place / "a" / "joins").glob("*/view.db")
    with ExitStack() as stack:
        read, held = (stack.enter_context(bare_flight(view, is_held=is_held)) for is_held in (False, True))
        fetchers: dict[str, Callable[[Path], None]] = {
            "ours": lambda into: Joining(source, Identity(NodeId(5)), str(into))._fetch(client, joined[0]),
            "bare": lambda into: fetch_bare(read, into),
            "held": lambda into: fetch_bare(held, into),
        }
        taken, sizes = fetched(place, fetchers, rounds=3)
    flight.ask(client, Call.FINISH, Finish(session=joined[0].session), TOKEN)
    ours_s = statistics.median(taken["ours"])
    figures.add("join_rate", size.join_rows / ours_s, "rows/s, all chunks into files")
    figures.add("join_bytes", sizes["bare"] / ours_s, f"MB/s of rows as Arrow; {sizes['ours']:.0f} MB on the wire")
    against = "x bare Flight that reads the same pieces of the same view, into files"
    figures.add("join_chunks", ratio(taken["ours"], taken["bare"]), against, at_most=1.5)
    against = "x bare Flight with the same batches ready in memory, so without reading the database"
    figures.add("join_chunks_memory", ratio(taken["ours"], taken["held"]), against)


def ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def fetched(
    place: Path, fetchers: dict[str, Callable[[Path], None]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each in turn, in each round, and how many MB its files have. The first round warms up."""
    taken: dict[str, list[float]] = {name: [] for name in fetchers}
    sizes: dict[str, float] = {}
    for _ in range(rounds + 1):
        for name, fetch in fetchers.items():
            into = place / "fetched"
            into.mkdir()
            taken[name].append(seconds(partial(fetch, into)))
            sizes[name] = sum(file.stat().st_size for file in into.iterdir()) / 1e6
            shutil.rmtree(into)
    return {name: found[1:] for name, found in taken.items()}, sizes


def ask_to_join(client: fl.FlightClient) -> Joined:
    (answer,) = flight.ask(client, Call.JOIN, Join(node=5, is_anonymous=True), TOKEN)
    return Joined.read(answer)


Bare = tuple[fl.FlightClient, int]
"""A connection to a server of bare batches, and how many pieces it has."""


class BareServer(fl.FlightServerBase):
    """Sends the pieces of a database as they are read, or as they were read when it began."""

    def __init__(self, options: SqliteReaderOptions, *, is_held: bool) -> None:
        super().__init__("grpc://127.0.0.1:0")
        with closing(options.open()) as reader:
            (table,) = [table for table in reader.tables() if table.namespace == "main.orders"]
            self.pieces = reader.plan_copy(table)
            self._held = [_batches(reader, piece) for piece in self.pieces] if is_held else None
        self._options = options

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        number = int(ticket.ticket)
        if self._held is not None:
            return fl.RecordBatchStream(pa.Table.from_batches(self._held[number]))
        piece = self.pieces[number]
        with closing(self._options.open()) as reader:
            batches = (batch.rows for batch in reader.read_copy("main.orders", piece))
            first = next(batches)
            return fl.GeneratorStream(first.schema, chained(first, batches))


def _batches(reader: Any, piece: Any) -> list[pa.RecordBatch]:
    return [batch.rows for batch in reader.read_copy("main.orders", piece)]


def chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def serve_bare(view: str, is_held: bool, pipe: Any) -> None:
    server = BareServer(SqliteReaderOptions(path=view), is_held=is_held)
    pipe.send((server.port, len(server.pieces)))
    pipe.recv()
    server.shutdown()


@contextmanager
def bare_flight(view: Path, *, is_held: bool) -> Iterator[Bare]:
    with process(serve_bare, str(view), is_held) as pipe:
        port, chunks = pipe.recv()
        with fl.connect(f"grpc://127.0.0.1:{port}") as client:
            yield client, chunks
        pipe.send("end")


def fetch_bare(bare: Bare, into: Path) -> None:
    client, chunks = bare

    def fetch(number: int) -> None:
        reader: Any = client.do_get(fl.Ticket(str(number).encode()))
        with open(into / str(number), "wb") as file, ipc.new_stream(file, reader.schema) as stream:
            for chunk in reader:
                stream.write_batch(chunk.data)

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(fetch, range(chunks)))


# Following: one log into another.


def subscribe(figures: Figures, place: Path, size: Size) -> None:
    """From the moment that a node begins to follow until its own log has everything, durably."""
    for per_group, target in ((1_000, 200_000), (20, None)):
        rows = size.log_rows if target else size.log_rows // 50
        with source_of(place / f"a-{per_group}", rows, per_group) as (pipe, location, vclock):
            with journal(place / f"b-{per_group}", CLUSTER) as (identity, followed):
                applier = Applier(Source("a", location, TOKEN), identity, followed)
                began = time.monotonic()
                applier.start()
                while not vclock <= followed.vclock:
                    if applier.progress.error is not None:
                        raise SystemExit(str(applier.progress.error))
                    time.sleep(0.005)
                taken = time.monotonic() - began
                applier.stop()
            pipe.send("end")
        key = "subscribe" if target else "subscribe_small"
        unit = f"rows/s in transactions of {per_group}, into the log of another node"
        figures.add(key, rows / taken, unit, at_least=target)


# The delay of one row.


class TimedJournal(Journal):
    """Knows when groups came."""

    def __init__(self, log: CommitLog, node: NodeId) -> None:
        super().__init__(log, node)
        self.delays_s: list[float] = []

    def append_groups(self, groups: Any) -> int:
        count = super().append_groups(groups)
        came = time.monotonic_ns()
        for _, body in chain.from_iterable(groups):
            data: Any = decode_body(body).column("data")
            self.delays_s += [(came - sent) / 1e9 for sent in data.field("sent").to_pylist()]
        return count


def latency(figures: Figures, place: Path, size: Size) -> None:
    """From right before a row is appended to one log until it is durable in the other."""
    with source_of(place / "a", 0, 1) as (pipe, location, _), ExitStack() as stack:
        identity = enter(str(made(place / "b")), CLUSTER)
        log = stack.enter_context(CommitLog.open(place / "b" / "log"))
        followed = TimedJournal(log, identity.node)
        applier = Applier(Source("a", location, TOKEN), identity, followed)
        applier.start()
        stack.callback(applier.stop)
        pipe.send(("one by one", size.samples))
        pipe.recv()
        while len(followed.delays_s) < size.samples:
            time.sleep(0.01)
        pipe.send("end")
    delays = sorted(followed.delays_s)
    figures.add("row_p50", 1000 * statistics.median(delays), "ms from append to durable at the other node", at_most=10)
    figures.add("row_p99", 1000 * delays[int(len(delays) * 0.99)], "ms")


# What a further follower costs the source.


def followers(figures: Figures, place: Path, size: Size) -> None:
    """CPU time of the source's process for each million rows that it has sent to all."""
    costs: dict[int, float] = {}
    with source_of(place / "a", size.followed_rows, 1_000, heartbeat_s=60.0) as (pipe, location, vclock):
        for count in (1, 8, 32):
            pipe.send("cpu")
            before = pipe.recv()
            with process(take_all, location, count, vclock.total // 1_000) as taking:
                taking.recv()
                pipe.send("cpu")
                costs[count] = (pipe.recv() - before) / (vclock.total / 1e6)
                taking.send("end")
        pipe.send("end")
    for count, cost in costs.items():
        figures.add(f"source_cpu_{count}", cost, f"CPU s of the source for each million rows, {count} followers")
    for count in (8, 32):
        further = (costs[count] - costs[1]) / (count - 1) / costs[1]
        figures.add(f"further_follower_{count}", further, f"x the CPU of the first, each of {count - 1} more")


def take_all(location: str, count: int, frames: int, pipe: Any) -> None:
    """So many followers that only count what they get."""

    def take(number: int) -> None:
        with fl.connect(location) as client:
            wish = Subscribe(node=1_000 * count + number, cluster=CLUSTER, vclock=Vclock(), is_anonymous=True)
            reader = client.do_get(fl.Ticket(wish.packed()), flight.options(TOKEN))
            got = 0
            while got < frames:
                chunk: Any = reader.read_chunk()
                got += 0 if chunk.data is None else len(chunk.data)
            reader.cancel()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send("done")
    pipe.recv()


# Sources: nodes without a store, and one with a store as its user runs it.


def serve_log(place: str, rows: int, per_group: int, heartbeat_s: float, pipe: Any) -> None:
    with journal(Path(place), CLUSTER) as (identity, served_journal):
        batch = Batch("shop.orders", some_rows(per_group))
        for _ in range(rows // per_group):
            served_journal.append_local([batch])
        service = Service(identity, served_journal)
        server = RelayServer(service, location="grpc://127.0.0.1:0", tokens={"all": TOKEN}, heartbeat_s=heartbeat_s)
        pipe.send((server.port, dict(served_journal.vclock.items())))
        while (asked := pipe.recv()) != "end":
            if asked == "cpu":
                used = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send(used.ru_utime + used.ru_stime)
            else:
                append_one_by_one(service, asked[1])
                pipe.send("done")
        server.stop()


def append_one_by_one(service: Service, count: int) -> None:
    while not service.following:
        time.sleep(0.01)
    for _ in range(count):
        time.sleep(0.03)
        service.journal.append_local([Batch("shop.times", sent_row())])


def sent_row() -> pa.RecordBatch:
    row = some_rows(1)
    data = pa.StructArray.from_arrays([pa.array([time.monotonic_ns()])], ["sent"])
    return row.set_column(row.schema.get_field_index("data"), "data", data)


@contextmanager
def source_of(place: Path, rows: int, per_group: int, heartbeat_s: float = 1.0) -> Iterator[tuple[Any, str, Vclock]]:
    with process(serve_log, str(made(place)), rows, per_group, heartbeat_s) as pipe:
        port, lsns = pipe.recv()
        vclock = Vclock({NodeId(origin): Lsn(lsn) for origin, lsn in lsns.items()})
        yield pipe, f"grpc://127.0.0.1:{port}", vclock


@contextmanager
def process(work: Callable[..., None], *arguments: object) -> Iterator[Any]:
    """A process that is ours to end; gives the pipe to it."""
    here, there = SPAWN.Pipe()
    started = SPAWN.Process(target=work, args=(*arguments, there))
    started.start()
    try:
        yield here
        started.join(60)
    finally:
        if started.is_alive():
            started.kill()


@contextmanager
def journal(place: Path, cluster: str) -> Iterator[tuple[Identity, Journal]]:
    identity = enter(str(made(place)), cluster)
    with CommitLog.open(place / "log") as log:
        yield identity, Journal(log, identity.node)


@contextmanager
def served(place: Path, name: str) -> Iterator[str]:
    """A node with the database `NAME.db`, in a process of its own."""
    (place / f"{name}.yml").write_text(node_text(name, "founder", ""))
    command = [sys.executable, "-m", "tailrace", "serve", str(place / f"{name}.yml")]
    with open(place / "talk", "ab") as talk:
        started = subprocess.Popen(command, stdout=talk, stderr=talk, env=ENVIRONMENT)
    try:
        while not (place / name / "status.json").exists():
            if started.poll() is not None:
                raise SystemExit((place / "talk").read_text())
            time.sleep(0.05)
        yield f"grpc://127.0.0.1:{read_status(str(place / name))['port']}"
    finally:
        started.terminate()
        started.wait()


def node_text(name: str, role: str, address: str) -> str:
    lines = [f"node: {name}", f"data: {name}", "listen: 127.0.0.1:0", f"tokens: {{all: {TOKEN!r}}}"]
    lines.append(f"store: {{sqlite: {{path: {name}.db}}}}")
    if role == "founder":
        return "\n".join([*lines, "founder: true"])
    return "\n".join([*lines, f"sources: [{{name: source, address: {address!r}, token: {TOKEN!r}}}]"])


def made(place: Path) -> Path:
    place.mkdir(exist_ok=True)
    return place


if __name__ == "__main__":
    main()
