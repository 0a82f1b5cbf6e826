"""What a pipeline costs, against the limit measured in the same run.

Five jobs: a big copy into Parquet, JSON lines from file to file, steady changes to two writers, a cold start, and one
to sixteen writers. Everything runs through `python -m tailrace run`, as a user would.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from figures import Figures
from processes import running, tailrace_run, timed, write_pipeline

COLUMNS = (
    "id INTEGER PRIMARY KEY, customer INTEGER, amount REAL, rate REAL, name TEXT, city TEXT, is_paid INTEGER,"
    " at TEXT, note TEXT, code INTEGER"
)
FROM_SQLITE = """pipeline: bench
log: log
read:
  sqlite: {path: source.db}
write:
"""
BARE_SESSION = """
import time, pyarrow as pa
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
spark.range(1).mapInArrow(lambda batches: (b for b in batches), "id long").collect()
spark.stop()
"""
LIMIT = """
import sys, adbc_driver_sqlite.dbapi as adbc, pyarrow.parquet as pq
with adbc.connect(sys.argv[1]) as connection, connection.cursor() as cursor:
    cursor.execute("SELECT * FROM rows")
    reader = cursor.fetch_record_batch()
    with pq.ParquetWriter(sys.argv[2], reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute: smaller data, fewer rounds")
    parser.add_argument("--only", default="", help="run only these, by name, separated by commas")
    options = parser.parse_args()
    jobs = {"copy": copy, "lines": lines, "steady": steady, "cold": cold, "writers": writers}
    chosen = [name for name in options.only.split(",") if name] or (["cold", "copy"] if options.quick else list(jobs))
    figures = Figures("pipeline")
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        for name in chosen:
            place = Path(directory, name)
            place.mkdir()
            jobs[name](figures, place, options.quick)
            shutil.rmtree(place)
    figures.print()


def copy(figures: Figures, place: Path, quick: bool) -> None:
    """SQLite → log → Parquet in one `run --once`, without the session's start, which is measured by an empty table."""
    sizes = (200_000, 400_000) if quick else (1_000_000, 5_000_000)
    start_s = _copy(place / "empty", 1)[0]
    rates = []
    for rows in sizes:
        seconds, _, peak_mb, limit_s = _copy(place / str(rows), rows)
        net = max(seconds - start_s, 0.001)
        rates.append((rows, net))
        figures.add(f"copy_{rows}_rate", rows / net, unit="rows/s without the session's start")
        figures.add(f"copy_{rows}_ratio", net / limit_s, at_most=2.5, unit="x ADBC SQLite to Parquet, one process")
        figures.add(f"copy_{rows}_peak_rss", peak_mb, at_most=4096, unit="MB, driver and workers")
    (small, small_s), (big, big_s) = rates
    figures.add("copy_growth", (big_s / small_s) / (big / small), at_most=1.15, unit="x linear")


def _copy(place: Path, rows: int) -> tuple[float, float, float, float]:
    source = place / "source.db"
    write_pipeline(place, FROM_SQLITE + "  - {name: lake, lake: {path: lake}}\n")
    make_rows(source, rows)
    command = [sys.executable, "-c", LIMIT, str(source), str(place / "limit.parquet")]
    limit_s = timed(command)[0]
    seconds, cpu, peak_mb = tailrace_run(place, "--once")
    shutil.rmtree(place)
    return seconds, cpu, peak_mb, limit_s


def make_rows(path: Path, rows: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"CREATE TABLE rows ({COLUMNS})")
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)"
            " INSERT INTO rows SELECT i, i % 9973, i * 1.25, 1.0 / (i + 1), 'Customer ' || i, 'City ' || (i % 97),"
            " i % 2, '2026-11-' || printf('%02d', 1 + i % 28) || 'T12:00:00Z', 'a note about ' || (i * 7919), i * 31"
            " FROM n",
            (rows,),
        )


def lines(figures: Figures, place: Path, quick: bool) -> None:
    """JSON lines from file to file with the log on, the session's start included."""
    rows = 100_000 if quick else 1_000_000
    source = place / "source.jsonl"
    with open(source, "w", encoding="utf-8") as file:
        for number in range(rows):
            file.write(json.dumps(_document(number)) + "\n")
    (place / "change.py").write_text(
        "def transform(message):\n    data = message['data']\n    data['total'] = data['price'] * data['quantity']\n"
        "    return message\n"
    )
    for name, function in (("omit", "omit: [email]"), ("python", "python: {file: ../change.py}")):
        directory = place / name
        text = (
            f"pipeline: lines\nlog: log\nread:\n  files: {{path: ../source.jsonl, tail: false}}\n"
            f"write:\n  - files: {{path: out.jsonl}}\n    name: out\n    through:\n      - {function}\n"
        )
        write_pipeline(directory, text)
        seconds, cpu, peak_mb = tailrace_run(directory, "--once")
        target = None if quick else 20.0
        figures.add(f"lines_{name}", seconds, at_most=target, unit=f"s for {rows} rows of 200 bytes, start included")
        figures.add(f"lines_{name}_cpu", cpu, unit="CPU s of the driver's process")
        figures.add(f"lines_{name}_peak_rss", peak_mb, unit="MB")
        with open(directory / "out.jsonl", "rb") as out:
            written = sum(1 for _ in out)
        if written != rows:
            raise SystemExit(f"{written} of {rows} lines arrived")


def _document(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"Customer number {number}",
        "email": f"customer{number}@example.org",
        "city": f"City {number % 97}",
        "price": number % 1000 + 0.25,
        "quantity": number % 7,
        "is_paid": number % 2 == 0,
        "at": "2026-11-15T12:00:00Z",
        "note": f"a note about {number * 7919}",
    }


def steady(figures: Figures, place: Path, quick: bool) -> None:
    """Changes from SQLite to two writers: 20,000 a second with little lag, and 100 a second with little delay."""
    write_pipeline(
        place,
        FROM_SQLITE
        + "  - {name: table, sqlite: {path: out.db}}\n"
        + "  - {name: lines, files: {path: out.jsonl, with_envelope: true}}\n",
    )
    source = place / "source.db"
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, at REAL, v TEXT)")
    with running(place):
        _wait_for_rows(source, place / "out.db", 1)
        _delays(source, place / "out.db", 5 if quick else 15, -1_000_000)  # a JVM is slow at first
        delays = _delays(source, place / "out.db", 10 if quick else 30, 0)
        figures.add("delay_p50", statistics.median(delays), at_most=0.7, unit="s at 100 changes/s, end to end")
        figures.add("delay_p95", sorted(delays)[int(len(delays) * 0.95)], unit="s")
        lags, rate = _load(source, place / "out.db", 10 if quick else 30)
        figures.add("sustained_rate", rate, unit="changes/s", at_least=20_000 * 0.98)
        figures.add("sustained_lag", max(lags), at_most=2.0, unit="s behind, worst after the first third")


def _wait_for_rows(source: Path, destination: Path, number: int) -> None:
    with closing(sqlite3.connect(source, timeout=60)) as connection, connection:
        connection.execute("INSERT INTO t VALUES (?, ?, 'warm')", (-number, time.time()))
    while _newest(destination, "WHERE id = ?", (-number,)) is None:
        time.sleep(0.1)


def _newest(destination: Path, where: str = "", parameters: tuple[Any, ...] = ()) -> float | None:
    if not destination.exists():
        return None
    try:
        with closing(sqlite3.connect(f"file:{destination}?mode=ro", uri=True, timeout=60)) as connection:
            found = connection.execute(f"SELECT at FROM t {where} ORDER BY id DESC LIMIT 1", parameters).fetchone()
            return None if found is None else float(found[0])
    except sqlite3.OperationalError:
        return None


def _delays(source: Path, destination: Path, seconds: float, number: int) -> list[float]:
    """One change every 10 ms, counted from `number` on; how long each takes to be seen at the other end."""
    delays: list[float] = []
    place = f"file:{destination}?mode=ro"
    with (
        closing(sqlite3.connect(source, timeout=60)) as writer,
        closing(sqlite3.connect(place, uri=True, timeout=60)) as reader,
    ):
        seen = number
        end_s = time.time() + seconds
        while (now := time.time()) < end_s:
            number += 1
            with writer:
                writer.execute("INSERT INTO t VALUES (?, ?, 'x')", (number, now))
            arrived = reader.execute("SELECT id, at FROM t WHERE id > ? AND id <= ? ORDER BY id", (seen, number))
            for row, at in arrived.fetchall():
                delays.append(time.time() - at)
                seen = row
            time.sleep(max(0.0, now + 0.01 - time.time()))
    return delays


def _load(source: Path, destination: Path, seconds: float) -> tuple[list[float], float]:
    """20,000 changes a second in transactions of 1,000; how far behind the other end is."""
    lags: list[float] = []
    written = 0
    began = time.time()
    with closing(sqlite3.connect(source, timeout=60)) as writer:
        writer.execute("PRAGMA synchronous = NORMAL")
        number = 1_000_000
        while (now := time.time()) < began + seconds:
            with writer:
                rows = [(number + at, now, "some text of a row") for at in range(1000)]
                writer.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
            number += 1000
            written += 1000
            newest = _newest(destination)
            if newest is not None and now > began + seconds / 3:
                lags.append(time.time() - newest)
            time.sleep(max(0.0, began + written / 20_000 - time.time()))
    return lags, written / (time.time() - began)


def cold(figures: Figures, place: Path, quick: bool) -> None:
    """From process start to exit: a tiny pipeline against a bare session."""
    ratios = []
    for round_ in range(1 if quick else 3):
        bare_s = timed([sys.executable, "-c", BARE_SESSION], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)[0]
        directory = place / f"round-{round_}"
        write_pipeline(directory, FROM_SQLITE + "  - {name: out, sqlite: {path: out.db}}\n")
        make_rows(directory / "source.db", 100)
        ratios.append(tailrace_run(directory, "--once")[0] / bare_s)
    figures.add("cold_start_ratio", statistics.median(ratios), at_most=1.5, unit="x a bare PySpark session")


def writers(figures: Figures, place: Path, quick: bool) -> None:
    """The same rows to one, two, … sixteen files: seconds per further writer, and the log, which must not grow."""
    rows = 50_000 if quick else 300_000
    seconds: dict[int, float] = {}
    logs: dict[int, int] = {}
    for count in (1, 4, 8, 16):
        directory = place / str(count)
        ends = [f"  - {{name: out{number}, files: {{path: out{number}.jsonl}}}}\n" for number in range(count)]
        write_pipeline(directory, FROM_SQLITE + "".join(ends))
        make_rows(directory / "source.db", rows)
        seconds[count] = tailrace_run(directory, "--once")[0]
        logs[count] = sum(path.stat().st_size for path in (directory / "log").glob("*.log"))
    for count, taken in seconds.items():
        figures.add(f"writers_{count}", taken, unit=f"s for {rows} rows, start included")
    # the first ones use cores that a single writer leaves idle, so further ones count from the fourth on
    first = (seconds[8] - seconds[4]) / 4
    last = (seconds[16] - seconds[8]) / 8
    figures.add("further_writer_ratio", last / max(first, 0.001), at_most=1.3, unit="x, writers 9-16 against 5-8")
    figures.add("log_growth", logs[16] / logs[1], at_most=1.02, unit="x the log of one writer")


if __name__ == "__main__":
    main()
