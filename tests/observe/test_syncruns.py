"""What a run of sync says of itself, and what others make of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.node.status import leave
from tailrace.observe.syncruns import SyncRun, SyncTelling, read_run, state_directory

TOLD: dict[str, Any] = {"node": "3", "url": None, "error": None, "peers": [], "known": None}


@contextmanager
def telling(directory: Path, told: dict[str, Any], say: Callable[[str], None]) -> Iterator[SyncTelling]:
    with SyncTelling(str(directory), "3", lambda: dict(told), say) as found:
        yield found


def read(directory: Path) -> SyncRun:
    found = read_run(str(directory), "3")
    assert found is not None
    return found


def test_where_it_is(tmp_path: Path) -> None:
    assert state_directory("laptop.yml", None) == os.path.join(os.getcwd(), "laptop.yml.state")
    assert state_directory("laptop.yml", str(tmp_path)) == str(tmp_path)
    assert read_run(str(tmp_path), "3") is None


def test_it_runs_until_it_ends(tmp_path: Path) -> None:
    told, said = {**TOLD}, list[str]()
    with telling(tmp_path / "state", told, said.append) as run:
        assert (read(tmp_path / "state").runs_as or "").startswith(f"process {os.getpid()} ")
        told["error"] = {"code": "x"}
        run.tell()
        assert read(tmp_path / "state").told == told
    assert read(tmp_path / "state").runs_as is None
    assert read(tmp_path / "state").told == told
    assert said == []
    assert read_run(str(tmp_path / "state"), "4") is None, "another database of the same file has not run"


def test_one_without_news_writes_nothing_and_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "3.json"
    with telling(tmp_path, TOLD, print) as run:
        written = path.stat().st_ino
        os.utime(path, (0, 0))
        run.tell()
        assert path.stat().st_mtime == 0, "it was told a moment ago"
        monkeypatch.setattr("tailrace.observe.syncruns.time.monotonic", lambda: float("inf"))
        run.tell()
        assert path.stat().st_mtime > 0
        assert path.stat().st_ino == written
        path.unlink()
        run.tell()
        assert read(tmp_path).told == TOLD, "somebody had removed it"


def test_two_that_sync_one_database(tmp_path: Path) -> None:
    said: list[str] = []
    with telling(tmp_path, TOLD, print), telling(tmp_path, {**TOLD, "url": "other"}, said.append) as second:
        second.tell()
        assert read(tmp_path).told == TOLD
    assert len(said) == 1
    assert f"process {os.getpid()}" in said[0]


def test_sync_goes_on_where_nothing_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no directory")
    said: list[str] = []
    with telling(tmp_path / "state", TOLD, said.append) as run:
        run.tell()
    assert len(said) == 1
    assert "`state`" in said[0]


def test_a_disk_that_is_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def full(_told: object, _path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tailrace.observe.syncruns.leave", full)
    with telling(tmp_path, TOLD, said.append) as run:
        run.tell()
        assert len(said) == 1
        monkeypatch.setattr("tailrace.observe.syncruns.leave", leave)
        run.tell()
        assert read(tmp_path).told == TOLD


def test_half_a_file_is_none(tmp_path: Path) -> None:
    (tmp_path / "3.json").write_text("{")
    assert read_run(str(tmp_path), "3") is None
