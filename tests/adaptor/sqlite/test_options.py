"""What a user may say about a SQLite database."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from tailrace.adaptor import registry
from tailrace.adaptor.sqlite import sqlite
from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions
from tailrace.errors import TailraceError
from tests.adaptor.sqlite.databases import run


def test_the_registry_knows_it() -> None:
    adaptor = registry.find("sqlite")
    assert (adaptor.reader, adaptor.writer) == (SqliteReaderOptions, SqliteWriterOptions)
    assert dict(sqlite("shop.db", busy="5s").options) == {"path": "shop.db", "busy": "5s"}


def test_paths_mean_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SqliteReaderOptions(path="shop.db").where() == str(tmp_path / "shop.db")


@pytest.mark.parametrize("path", ["", ":memory:", "a\0b"])
def test_what_is_no_file(path: str) -> None:
    with pytest.raises(ValidationError):
        SqliteReaderOptions(path=path)


@pytest.mark.parametrize("name", ["a b.db", "a?mode=memory", "a#b.db", "100%25.db", "ü;'\".db", "file:x.db"])
def test_hostile_file_names(tmp_path: Path, name: str) -> None:
    """A name is only a name, though SQLite reads it out of a URI."""
    path = tmp_path / name
    run(path, "CREATE TABLE t(id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    reader = SqliteReaderOptions(path=str(path)).open()
    (table,) = reader.tables()
    batches = [batch for piece in reader.plan_copy(table) for batch in reader.read_copy(table.namespace, piece)]
    assert sum(map(len, batches)) == 1
    assert [found.name for found in tmp_path.iterdir()] == [name]


def test_constructing_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    reader = SqliteReaderOptions(path=str(path)).open()
    SqliteWriterOptions(path=str(path)).open().close()
    assert not path.exists()
    with pytest.raises(TailraceError) as caught:
        reader.tables()
    assert caught.value.code == "source.unreachable"
    assert not path.exists()
