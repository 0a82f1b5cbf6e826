"""What sync costs: a new node, a thousand devices, and a round in which there is nothing to do.

Nodes are processes that talk HTTP. What a new node gets is compared with a bare copy of the same rows by `executemany`.
`--quick` takes about a minute; `--only` names parts.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from devices import TABLE_ID, Device, rounds, waiting_rows
from figures import Figures, seconds
from processes import cpu_s, rss_mb

from tailrace.sync.address import PeerAddress
from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.content import JSON
from tailrace.sync.database import open_database
from tailrace.sync.entity import Entity, Sql
from tailrace.sync.garbage import collect_seldom
from tailrace.sync.httppeer import HttpPeer
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import SyncStore

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.servers.postgres import PostgresServer

SETTINGS = {"fsync": "on", "autovacuum": "on", "shared_buffers": "512MB", "max_wal_size": "8GB", "timezone": "UTC"}
SQLITE_ROWS = """CREATE TABLE rows(id INTEGER PRIMARY KEY, customer INTEGER, amount TEXT, rate REAL, name TEXT,
    city TEXT, is_paid BOOLEAN, at TEXT, day TEXT, note TEXT, changed INTEGER)"""
POSTGRES_ROWS = """CREATE TABLE rows(id bigint PRIMARY KEY, customer integer, amount numeric(12,2),
    rate double precision, name text, city varchar(40), is_paid boolean, at timestamptz, day date,
    note jsonb, changed bigint)"""
FILL = """INSERT INTO rows SELECT g, g % 9973, g * 1.25, 1.0 / (g + 1), 'Customer number ' || g, 'City ' || g % 97,
    g % 2 = 0, timestamptz '2026-01-01' + g * interval '1 second', date '2026-01-01' + (g % 365)::int,
    jsonb_build_object('n', g, 'text', 'a note about ' || g), 1767225600000 + g FROM generate_series(1, {rows}) g"""
SELECT = (
    "SELECT id, customer, amount::text, rate, name, city, is_paid, at::text, day::text, note::text, changed FROM rows"
)
INSERT = f"INSERT INTO rows VALUES ({', '.join('?' * 11)})"
PIECE = 1_000
DEVICE_ROWS = "CREATE TABLE rows(id bigint PRIMARY KEY, device bigint, body text, changed bigint)"
ENTITIES = {
    "all": Entity("rows", TABLE_ID, "changed"),
    "devices": Entity("rows", TABLE_ID, "changed", audience=Sql("rows.device = :nodeId")),
}


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    rows: int
    rounds: int
    devices: int
    device_rows: int
    tracked: int
    idle_rounds: int


FULL = Size(rows=100_000, rounds=3, devices=1_000, device_rows=1_000, tracked=1_000_000, idle_rounds=500)
QUICK = Size(rows=20_000, rounds=1, devices=50, device_rows=200, tracked=50_000, idle_rounds=100)
AT_ONCE = 8
"""So many devices sync at the same time."""


def main() -> None:
    jobs: dict[str, Callable[[Figures, Path, Size], None]] = {
        "new_node_sqlite": new_node_sqlite,
        "new_node_postgres": new_node_postgres,
        "devices": devices,
        "idle_sqlite": idle_sqlite,
        "idle_postgres": idle_postgres,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(jobs), default=list(jobs))
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    collect_seldom()  # as the commands do
    if options.serve:
        serve(*options.serve)
        return
    figures = Figures("sync")
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="tailrace-sync-") as place:
            jobs[name](figures, Path(place), QUICK if options.quick else FULL)
    figures.print()


# A node that serves, in a process of its own.


def serve(address: str, entity: str) -> None:
    """Until stdin ends."""
    database = open_database(address)
    store = SyncStore.install(database, [ENTITIES[entity]])
    with SyncServer(store, options=ServerOptions(Accept.ANYONE)) as server:
        print(server.url, flush=True)
        sys.stdin.read()
    database.close()


@contextlib.contextmanager
def served(address: str, entity: str = "all") -> Iterator[tuple[str, int]]:
    """Its address and its process."""
    command = [sys.executable, __file__, "--serve", address, entity]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.stdin.close()


@contextlib.contextmanager
def postgres() -> Iterator[PostgresServer]:
    started = PostgresServer(settings=SETTINGS)
    started.start()
    try:
        yield started
    finally:
        started.remove()


def fill_postgres(server: PostgresServer, rows: int) -> str:
    with server.connect() as connection:
        connection.execute(POSTGRES_ROWS)
        connection.execute(FILL.format(rows=rows).encode())
        connection.execute("VACUUM ANALYZE rows")
        connection.execute("CHECKPOINT")
    return server.url()


def fill_sqlite(path: Path, rows: int) -> str:
    """The same rows as in PostgreSQL."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(SQLITE_ROWS)
        connection.executemany(INSERT, map(made_row, range(1, rows + 1)))
    connection.close()
    return str(path)


def made_row(g: int) -> tuple[Any, ...]:
    at = time.strftime("%Y-%m-%d %H:%M:%S+00", time.gmtime(1767225600 + g))
    amount = f"{g * 125 // 100}.{g * 125 % 100:02}"
    note = f'{{"n": {g}, "text": "a note about {g}"}}'
    who = f"Customer number {g}", f"City {g % 97}", g % 2 == 0
    return g, g % 9973, amount, 1 / (g + 1), *who, at, at[:10], note, 1767225600000 + g


# A new node.


def new_node_sqlite(figures: Figures, place: Path, size: Size) -> None:
    source = fill_sqlite(place / "source.db", size.rows)

    def rows() -> Iterator[list[tuple[Any, ...]]]:
        with contextlib.closing(sqlite3.connect(source)) as connection:
            cursor = connection.execute("SELECT * FROM rows")
            while piece := cursor.fetchmany(PIECE):
                yield piece

    pushes(figures, place, size, source)
    copies(figures, place, size, "sqlite", source, rows)


def new_node_postgres(figures: Figures, place: Path, size: Size) -> None:
    with postgres() as server:
        source = fill_postgres(server, size.rows)

        def rows() -> Iterator[list[tuple[Any, ...]]]:
            with psycopg.connect(source) as connection, connection.cursor() as cursor:
                cursor.execute(SELECT)
                while piece := cursor.fetchmany(PIECE):
                    yield piece

        copies(figures, place, size, "postgres", source, rows)


def copies(
    figures: Figures,
    place: Path,
    size: Size,
    kind: str,
    source: str,
    rows: Callable[[], Iterator[list[tuple[Any, ...]]]],
) -> None:
    """A new node fetches everything, with either form of rows, and a bare copy is made, in turn."""
    taken_s: dict[str, list[float]] = {"json": [], "arrow": [], "bare": [], "pieces": []}
    used_s: dict[str, list[float]] = {"json": [], "arrow": []}
    with served(source) as (url, pid):
        for number in range(size.rounds):
            bare, pieces = place / f"bare-{number}.db", place / f"pieces-{number}.db"
            taken_s["bare"].append(seconds(partial(bare_copy, bare, rows())))
            taken_s["pieces"].append(seconds(partial(bare_copy, pieces, rows(), is_one=False)))
            for form in ("json", "arrow"):
                to = place / f"{form}-{number}.db"
                before_s = cpu_s(pid) + time.process_time()
                taken_s[form].append(fetched(to, url, form, size.rows))
                used_s[form].append(cpu_s(pid) + time.process_time() - before_s)
                check_equal(bare, to)
    bare_s = statistics.median(taken_s["bare"])
    for form in ("json", "arrow"):
        ours_s = statistics.median(taken_s[form])
        figures.add(f"new_node_{kind}_{form}", size.rows / ours_s, "rows/s to a new SQLite node")
        unit = "x a bare executemany of the same rows in one transaction"
        figures.add(f"new_node_{kind}_{form}_ratio", ours_s / bare_s, unit, at_most=3)
        figures.add(f"new_node_{kind}_{form}_cpu", statistics.median(used_s[form]), "s of CPU of both nodes' processes")
    figures.add(f"bare_{kind}", size.rows / bare_s, "rows/s with bare executemany in one transaction")
    pieces_s = statistics.median(taken_s["pieces"])
    figures.add(f"bare_{kind}_pieces", size.rows / pieces_s, f"rows/s with a transaction for each {PIECE} rows")


def fetched(to: Path, url: str, form: str, rows: int) -> float:
    """A new file, and all rows in it: seconds from the first request to the end of the round."""
    with new_file(to) as node:
        began_s = time.perf_counter()
        with node.meeting(PeerAddress.of(url)) as (peer, _):
            done = node.round(in_form(node, peer, form))
        taken_s = time.perf_counter() - began_s
    if done.fetched != rows:
        raise SystemExit(f"{done.fetched} rows came, and not {rows}")
    return taken_s


def pushes(figures: Figures, place: Path, size: Size, source: str) -> None:
    """The other direction: who has the rows calls a node that has none."""
    taken_s = []
    for number in range(size.rounds):
        copy, to = place / f"sender-{number}.db", place / f"receiver-{number}.db"
        shutil.copy(source, copy)
        new_file(to).close()
        with SyncNode(str(copy), [ENTITIES["all"]]) as node, served(str(to)) as (url, _):
            taken_s.append(seconds(partial(node.sync_with, url)))
        check_equal(copy, to)
    figures.add("new_node_sqlite_pushed", size.rows / statistics.median(taken_s), "rows/s sent to a new SQLite node")


def new_file(path: Path) -> SyncNode:
    with sqlite3.connect(path) as connection:
        connection.execute(SQLITE_ROWS)
    connection.close()
    return SyncNode(str(path), [ENTITIES["all"]])


def in_form(node: SyncNode, peer: HttpPeer, form: str) -> HttpPeer:
    """The same peer, and rows travel in one form."""
    if form == "arrow":
        return peer
    plain = frozenset({JSON})  # for acknowledgements, too, as with a node of Door
    return HttpPeer(peer.link, node.store.shape, replace(peer.greeting, formats=plain, ack_formats=plain))


def bare_copy(to: Path, pieces: Iterator[Sequence[tuple[Any, ...]]], *, is_one: bool = True) -> None:
    with contextlib.closing(sqlite3.connect(to, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(SQLITE_ROWS)
        connection.execute("BEGIN")
        for piece in pieces:
            connection.executemany(INSERT, piece)
            if not is_one:
                connection.execute("COMMIT")
                connection.execute("BEGIN")
        connection.execute("COMMIT")


def check_equal(one: Path, other: Path) -> None:
    with contextlib.closing(sqlite3.connect(one)) as connection:
        connection.execute("ATTACH ? AS other", (str(other),))
        for left, right in (("main", "other"), ("other", "main")):
            query = f"SELECT count(*) FROM (SELECT * FROM {left}.rows EXCEPT SELECT * FROM {right}.rows)"
            if (found := connection.execute(query).fetchone()) != (0,):
                raise SystemExit(f"{found[0]} rows of {one.name} and {other.name} differ")


# Many devices.


def devices(figures: Figures, _: Path, size: Size) -> None:
    """Half of each device's rows wait for it at a PostgreSQL node, the other half it sends there."""
    all_of_them = [Device(number, size.device_rows) for number in range(size.devices)]
    with postgres() as server:
        with server.connect() as connection:
            connection.execute(DEVICE_ROWS)
            with connection.cursor() as cursor, cursor.copy("COPY rows FROM STDIN") as copy:
                for row in waiting_rows(all_of_them):
                    copy.write_row(row)
            connection.execute("CREATE INDEX ON rows(device)")
            connection.execute("VACUUM ANALYZE rows")
        with served(server.url(), "devices") as (url, pid):
            first_rounds(figures, url, pid, all_of_them)
            idle_s = rounds(url, all_of_them, AT_ONCE, lambda _: None)
            add_percentiles(figures, "devices_idle_round", idle_s, "with nothing to do, with a new connection")
        check_devices(server, all_of_them)
    figures.add("devices_lost_rows", 0, "rows lost, given to another device or left waiting", at_most=0)


def first_rounds(figures: Figures, url: str, pid: int, all_of_them: list[Device]) -> None:
    count = len(all_of_them)
    memory_mb = {0: rss_mb(pid)}

    def each(done: int) -> None:
        if done in (count // 10, count // 2, count):
            memory_mb[done] = rss_mb(pid)

    began_s = time.perf_counter()
    taken_s = rounds(url, all_of_them, AT_ONCE, each)
    all_s = time.perf_counter() - began_s
    rows = sum(device.rows for device in all_of_them)
    add_percentiles(figures, "devices_round", taken_s, f"of {all_of_them[0].rows} rows, {AT_ONCE} devices at a time")
    figures.add("devices_rows", rows / all_s, f"rows/s, {count} devices of {all_of_them[0].rows} rows")
    for done, found_mb in memory_mb.items():
        figures.add(f"devices_memory_{round(100 * done / count)}", found_mb, "MB of the serving process at so many %")
    growth = memory_mb[count] / memory_mb[count // 2]
    figures.add("devices_memory_growth", growth, "x its memory at half of them, at the end", at_most=1.1)


def check_devices(server: PostgresServer, all_of_them: list[Device]) -> None:
    """Each row is there once, as its device has made it, and nothing waits for anybody."""
    with server.connect() as connection:
        found = connection.execute("SELECT device, count(*), min(id), max(id) FROM rows GROUP BY device").fetchall()
        expected = {(each.node, each.rows, each.keys[0], each.keys[-1]) for each in all_of_them}
        if set(found) != expected:
            raise SystemExit(f"the node has other rows than were sent: {len(found)} devices")
        for query in (
            "SELECT count(*) FROM rowsreplicate WHERE NOT trkrprocessed",
            "SELECT count(*) FROM rows WHERE NOT body LIKE '%no. ' || id",
        ):
            if connection.execute(query.encode()).fetchone() != (0,):
                raise SystemExit(f"not 0: {query}")
        rows = sum(each.rows for each in all_of_them)
        if connection.execute("SELECT count(*) FROM rowsreplicate").fetchone() != (rows,):
            raise SystemExit("there are not as many trackers as rows")


def add_percentiles(figures: Figures, key: str, taken_s: list[float], unit: str, at_most: float | None = None) -> None:
    ordered = sorted(taken_s)
    figures.add(f"{key}_p50", 1000 * statistics.median(ordered), f"ms for a round {unit}", at_most=at_most)
    figures.add(f"{key}_p99", 1000 * ordered[int(len(ordered) * 0.99)], "ms")


# A round in which there is nothing to do.


def idle_sqlite(figures: Figures, place: Path, size: Size) -> None:
    idle(figures, place, size, "sqlite", fill_sqlite(place / "source.db", size.tracked))


def idle_postgres(figures: Figures, place: Path, size: Size) -> None:
    with postgres() as server:
        idle(figures, place, size, "postgres", fill_postgres(server, size.tracked))


def idle(figures: Figures, place: Path, size: Size, kind: str, source: str) -> None:
    """After all rows were synced, so that each has its tracker at both nodes."""
    with ExitStack() as stack:
        url, _ = stack.enter_context(served(source))
        node = stack.enter_context(new_file(place / "device.db"))
        done = node.sync_with(url)
        if done.fetched != size.tracked:
            raise SystemExit(f"{done.fetched} rows came, and not {size.tracked}")
        with node.meeting(PeerAddress.of(url)) as (peer, _):
            taken_s = [seconds(lambda: node.round(peer)) for _ in range(size.idle_rounds)]
        with_greeting_s = [seconds(lambda: node.sync_with(url)) for _ in range(size.idle_rounds // 10)]
    unit = f"with nothing to do, {size.tracked:,} rows tracked at both nodes"
    add_percentiles(figures, f"idle_{kind}_round", taken_s, unit, at_most=5)
    add_percentiles(figures, f"idle_{kind}_meeting", with_greeting_s, "and the meeting before it")


if __name__ == "__main__":
    main()
