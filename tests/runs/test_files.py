"""Files through whole pipelines, as `tailrace run` runs them: every format in, the console, files and a lake out."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import parquet

from tailrace.pipeline.failures import Failures
from tailrace.pipeline.load import load
from tailrace.pipeline.run import Running, Until, Watcher, run
from tailrace.pipeline.status import WriterState, status
from tests.cli.process import RunProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
pipeline: files
log: log
read: {files: {path: in}}
write:
  - {name: console, console: {format: json}}
  - {name: rows, files: {path: out}}
  - {name: lake, lake: {path: lake}}
  - {name: blocked, files: {path: blocked/all.avro, with_envelope: true}, namespace: lines}
"""
DAY = dt.date(2024, 2, 29)
MOMENT = dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC)
LINES = [{"n": number, "s": f"text {number}"} for number in range(3)]


class Listener(Watcher):
    """Lets a run end when the failures of an earlier one are forgotten."""

    def __init__(self, log: str) -> None:
        self.said: list[str] = []
        self.over = threading.Event()
        self._failures = Failures(log)
        self._give_up_s = time.monotonic() + 100

    def say(self, text: str) -> None:
        self.said.append(text)

    def look(self, running: Running) -> None:
        assert time.monotonic() < self._give_up_s, "what was mended is still told as failed"
        if not self._failures.read():
            self.over.set()


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def make_source(directory: Path) -> None:
    """A file of every kind; one of them is not complete."""
    directory.mkdir()
    (directory / "lines.jsonl.gz").write_bytes(gzip.compress(json_lines(LINES)))
    (directory / "half.jsonl.gz").write_bytes(gzip.compress(json_lines([{"n": 7}]))[:-9])
    with pa.CompressedOutputStream(str(directory / "table.csv.zst"), "zstd") as out:
        out.write(b"id,code\n1,007\n2,008\n")
    columns: dict[str, Any] = {
        "id": pa.array([1], pa.int32()),
        "day": pa.array([DAY]),
        "price": pa.array([Decimal("1.50")]),
    }
    parquet.write_table(pa.table(columns), directory / "typed.parquet")
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ]
    with (directory / "typed2.avro").open("wb") as out:
        rows = [{"at": MOMENT, "price": Decimal("2.25")}]
        fastavro.writer(out, {"type": "record", "name": "row", "fields": fields}, rows)


def printed(text: str) -> dict[str, list[Any]]:
    """What the console has printed, by namespace."""
    found: dict[str, list[Any]] = {}
    for line in text.splitlines():
        message = json.loads(line)
        assert message["op"] == "insert"
        found.setdefault(message["namespace"], []).append(message["data"])
    return found


def written(directory: Path) -> dict[str, list[Any]]:
    """What is in files, by namespace."""
    return {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in directory.glob("*.jsonl")
    }


def test_every_format_on_spark(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    make_source(tmp_path / "in")
    (tmp_path / "blocked").write_text("a file in place of a directory")
    (tmp_path / "files.yml").write_text(PIPELINE)
    expected = {
        "files.lines": LINES,
        "files.table": [{"id": 1, "code": "007"}, {"id": 2, "code": "008"}],
        "files.typed": [{"id": 1, "day": "2024-02-29", "price": 1.5}],
        "files.typed2": [{"at": "2024-02-29T12:30:00.000000Z", "price": 2.25}],
    }

    with RunProcess(tmp_path, "run", "files.yml", "--once") as process:
        assert process.wait() == 3, process.lines
        assert printed(process.out) == expected
        assert process.times_said("half.jsonl.gz' is not complete yet") == 1
        assert process.times_said("error destination.unreachable: a file stands where") == 1

    assert written(tmp_path / "out") == expected
    lake = {name: ds.dataset(tmp_path / "lake" / name / "current").to_table().to_pylist() for name in expected}
    assert lake["files.typed"] == [{"id": 1, "day": DAY, "price": Decimal("1.50")}]
    assert lake["files.typed2"] == [{"at": MOMENT, "price": Decimal("2.25")}]
    spec = load(str(tmp_path / "files.yml"))
    found = status(spec)
    states = [(writer.name, writer.state) for writer in found.writers if writer.failure is not None]
    assert states == [("blocked", WriterState.STOPPED)]
    assert found.reader.failure is found.failure is None

    # the file is completed, and the destination is mended
    (tmp_path / "in" / "half.jsonl.gz").write_bytes(gzip.compress(json_lines([{"n": 7}])))
    (tmp_path / "blocked").unlink()
    listener = Listener(spec.log)
    summary = run(spec, Until.CAUGHT_UP, watcher=listener, session=lambda: spark, not_before=listener.over)
    assert summary.errors == []
    assert "files.half: new, its rows come as changes" in listener.said
    assert printed(capsys.readouterr().out) == {"files.half": [{"n": 7}]}
    assert written(tmp_path / "out") == {**expected, "files.half": [{"n": 7}]}
    with (tmp_path / "blocked" / "all.avro").open("rb") as stream:
        rows = [row for row in fastavro.reader(stream) if isinstance(row, dict)]
    assert [(row["_namespace"], row["_op"], row["n"], row["s"]) for row in rows] == [
        ("files.lines", "insert", row["n"], row["s"]) for row in LINES
    ]
    assert [writer.failure for writer in status(spec).writers] == [None] * 4
