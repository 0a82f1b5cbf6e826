"""Files read into a log: every row is there once, whatever appears when."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.files.options import FilesReaderOptions
from tailrace.log.commitlog import CommitLog
from tailrace.message import Op
from tailrace.source import capture as capturing
from tailrace.source.capture import Capture
from tests.adaptor.capturing import messages_in, run_here
from tests.adaptor.files.material import append_lines, write_lines


@contextmanager
def captured(directory: Path, log: Path, said: list[str] | None = None, **options: Any) -> Iterator[Capture]:
    """A run of the pipeline's first half."""
    with CommitLog.open(log) as opened:
        source = FilesReaderOptions.model_validate({"path": str(directory), **options})
        said = [] if said is None else said
        stop = threading.Event()
        capture = Capture(source, re.compile("files"), opened, run_here, stop=stop, report=said.append, once=True)
        capture.open()
        try:
            yield capture
        finally:
            capture.close()


def rows(log: Path) -> list[Any]:
    return [dict(message.data or {}) for message in messages_in(log) if message.op is Op.INSERT]


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


def test_columns_that_come_with_another_file_do_not_end_a_copy(tmp_path: Path) -> None:
    """The first file tells the columns of a namespace; one that comes before it in the middle of a copy has others."""
    source, log = tmp_path / "in", tmp_path / "log"
    source.mkdir()
    options: dict[str, Any] = {"namespace": "files.all", "piece_bytes": 50}
    write_lines(source / "b.jsonl", [{"n": number} for number in range(100)])
    with captured(source, log, **options) as capture:
        capture.turn()
    assert 0 < len(rows(log)) < 100
    write_lines(source / "a.jsonl", [{"n": 100, "other": 1}])
    said: list[str] = []
    with captured(source, log, said, **options) as capture:
        turns(capture, 50)
    assert sorted(row["n"] for row in rows(log)) == list(range(101))
    assert said == ["files.all: new column other"]


def test_what_is_said_of_new_files_is_true(tmp_path: Path) -> None:
    """Their rows are changes, so nothing is copied."""
    source, log = tmp_path / "in", tmp_path / "log"
    source.mkdir()
    write_lines(source / "a.jsonl", [{"n": 0}])
    said: list[str] = []
    with captured(source, log, said) as capture:
        turns(capture)
    write_lines(source / "b.jsonl", [{"n": 1}])
    with captured(source, log, said) as capture:
        turns(capture)
        assert capture.progress.tables["files.b"].copied == 0
    assert said == ["files.b: new, its rows come as changes"]
    assert sorted(row["n"] for row in rows(log)) == [0, 1]
