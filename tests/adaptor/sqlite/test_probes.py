"""What the doctor is told."""

import os
from pathlib import Path

import pytest

from tailrace.adaptor.options import Check
from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions
from tests.adaptor.sqlite.databases import ask, run


def source(path: Path) -> dict[str, Check]:
    return {check.what: check for check in SqliteReaderOptions(path=str(path)).probe()}


def destination(path: Path, *, create: bool = True) -> dict[str, Check]:
    return {check.what: check for check in SqliteWriterOptions(path=str(path), create=create).probe()}


def test_a_sound_source(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run(path, "PRAGMA journal_mode = WAL", "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    found = source(path)
    assert all(check.ok for check in found.values())
    assert found["journal mode"].found == "wal"
    assert not any(check.cure for check in found.values())
    assert ask(path, "SELECT name FROM sqlite_master") == [("t",)]


def test_tables_about_which_there_is_something_to_say(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    wide = ", ".join(f"c{number}" for number in range(1000))
    run(path, "CREATE TABLE bare(x)", 'CREATE TABLE "a/b"(id INTEGER PRIMARY KEY)', f"CREATE TABLE wide({wide})")
    run(path, "CREATE TABLE empty(id TEXT PRIMARY KEY)", "INSERT INTO empty VALUES (NULL), (NULL)")
    found = source(path)
    assert found["table bare"].ok
    assert "primary key" in found["table bare"].cure
    assert "NULL in its primary key" in found["table empty"].found
    assert not found["table a/b"].ok
    assert not found["table wide"].ok
    assert "WAL" in found["journal mode"].cure


@pytest.mark.parametrize("content", [None, b"no database at all" * 100])
def test_a_source_that_does_not_open(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.db"
    if content is not None:
        path.write_bytes(content)
    check = source(path)["database opens"]
    assert not check.ok
    assert check.cure
    assert path.exists() == (content is not None)


def test_a_source_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions are made up: whoever runs the tests may be allowed everything."""
    path = tmp_path / "a.db"
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY)")
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != path)
    check = source(path)["changes can be captured"]
    assert not check.ok
    assert str(path) in check.found


def test_destinations(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    assert all(check.ok for check in destination(path).values())
    assert not destination(path, create=False)["database exists"].ok
    assert "mkdir" in destination(tmp_path / "no" / "new.db")["directory exists"].cure
    assert not path.exists()
    path.write_text("no database at all" * 100)
    assert not destination(path)["database opens"].ok
