"""Files read into a log: every row is there once, whatever appears when."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.files.options import FilesReaderOptions
from tailrace.log.commitlog import CommitLog
from tailrace.log.reader import LogReader
from tailrace.message import Offset, Op
from tailrace.source import capture as capturing
from tailrace.source.capture import Capture
from tests.adaptor.files.material import append_lines, write_lines


class Done:
    """What tasks have told, when they run right here."""

    def __init__(self, receipts: list[Mapping[str, Any]]) -> None:
        self._receipts = receipts

    def all(self) -> list[Mapping[str, Any]]:
        return self._receipts


def run_here(work: Any, items: list[Any]) -> Any:
    return Done([work(item) for item in items])


@contextmanager
def captured(directory: Path, log: Path, **options: Any) -> Iterator[Capture]:
    """A run of the pipeline's first half."""
    with CommitLog.open(log) as opened:
        source = FilesReaderOptions.model_validate({"path": str(directory), **options})
        quiet: Any = {"stop": threading.Event(), "report": lambda line: None}
        capture = Capture(source, re.compile("files"), opened, run_here, once=True, **quiet)
        capture.open()
        try:
            yield capture
        finally:
            capture.close()


def rows(log: Path) -> list[Any]:
    reader = LogReader(str(log))
    entries = reader.entries(Offset(0), reader.next_offset)
    return [dict(entry.message.data or {}) for entry in entries if entry.message.op is Op.INSERT]


def turns(capture: Capture, count: int = 3) -> None:
    """Turns that do not wait for work."""
    for _ in range(count):
        capture.turn()


@pytest.mark.parametrize("discover_every_s", [0.0, 1000.0], ids=["found at once", "found at the next start"])
def test_nothing_comes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, discover_every_s: float) -> None:
    monkeypatch.setattr(capturing, "DISCOVER_EVERY_S", discover_every_s)
    source, log = tmp_path / "in", tmp_path / "log"
    source.mkdir()
    write_lines(source / "a.jsonl", [{"n": 0}, {"n": 1}])
    with captured(source, log) as capture:
        turns(capture)
        write_lines(source / "b.jsonl", [{"n": 2}])
        turns(capture, 1)
        append_lines(source / "a.jsonl", [{"n": 3, "new column": True}])
        turns(capture)
    write_lines(source / "c.jsonl", [{"n": 4}])
    append_lines(source / "b.jsonl", [{"n": 5, "another": None}])
    with captured(source, log) as capture:
        turns(capture)
        write_lines(source / "d.jsonl", [{"n": 6}])
        turns(capture)
    assert sorted(row["n"] for row in rows(log)) == list(range(7))


def test_file_that_appears_between_the_start_and_the_first_turn(tmp_path: Path) -> None:
    source, log = tmp_path / "in", tmp_path / "log"
    source.mkdir()
    write_lines(source / "a.jsonl", [{"n": 0}])
    with captured(source, log) as capture:
        write_lines(source / "b.jsonl", [{"n": 1}])
        append_lines(source / "a.jsonl", [{"n": 2}])
        turns(capture)
    assert sorted(row["n"] for row in rows(log)) == [0, 1, 2]


def test_crash_in_the_middle_of_the_copy(tmp_path: Path) -> None:
    """What was planned is copied later, without what was added meanwhile."""
    source, log = tmp_path / "in", tmp_path / "log"
    source.mkdir()
    write_lines(source / "a.jsonl", [{"n": number} for number in range(100)])
    with captured(source, log, piece_bytes=50) as capture:
        capture.turn()
    assert 0 < len(rows(log)) < 100
    append_lines(source / "a.jsonl", [{"n": 100}])
    with captured(source, log, piece_bytes=50) as capture:
        turns(capture, 50)
    assert sorted(row["n"] for row in rows(log)) == list(range(101))


def test_without_tail_new_files_wait_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "DISCOVER_EVERY_S", 0.0)
    source, log = tmp_path / "in", tmp_path / "log"
    source.mkdir()
    write_lines(source / "a.jsonl", [{"n": 0}])
    with captured(source, log, tail=False) as capture:
        write_lines(source / "b.jsonl", [{"n": 1}])
        turns(capture)
    assert [row["n"] for row in rows(log)] == [0]
    with captured(source, log, tail=False) as capture:
        turns(capture)
    assert [row["n"] for row in rows(log)] == [0, 1]
