"""The promises that all adaptors make, kept by SQLite in all forms of its tables."""

from pathlib import Path
from typing import ClassVar

import pytest

from tests.adaptor.contract import ChangingReaderContract, KeyedWriterContract
from tests.adaptor.sqlite.databases import SqliteDestination, SqliteSource


class TestReader(ChangingReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SqliteSource:
        return SqliteSource(str(tmp_path / "shop.db"))


class TestReaderWithRollbackJournal(ChangingReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SqliteSource:
        return SqliteSource(str(tmp_path / "shop.db"), journal="DELETE")


class TestReaderWithoutRowid(ChangingReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SqliteSource:
        form = "CREATE TABLE {}(id INT PRIMARY KEY, name TEXT, amount REAL) WITHOUT ROWID"
        return SqliteSource(str(tmp_path / "shop.db"), form)


class TestReaderWithCompositeKey(ChangingReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SqliteSource:
        form = "CREATE TABLE {}(a TEXT DEFAULT 'x', id INT, name TEXT, amount REAL, PRIMARY KEY(a, id)) WITHOUT ROWID"
        return SqliteSource(str(tmp_path / "shop.db"), form)


class TestReaderWithoutPrimaryKey(ChangingReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SqliteSource:
        return SqliteSource(str(tmp_path / "shop.db"), "CREATE TABLE {}(id INT UNIQUE, name TEXT, amount REAL)")


class TestReaderWithoutTypes(ChangingReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> SqliteSource:
        return SqliteSource(str(tmp_path / "shop.db"), "CREATE TABLE {}(id PRIMARY KEY, name, amount)")


class TestWriter(KeyedWriterContract):
    stored: ClassVar = {
        "bool": 1,
        "int8": -8,
        "int64": -(2**63),
        "uint32": 2**32 - 1,
        "float32": 0.5,
        "float64": 1e300,
        "infinite": float("-inf"),
        "text": "grüße \0 日本 'quoted'",
        "empty": "",
        "large_text": "large",
        "binary": b"\x00\xff",
        "fixed": b"abc",
        "decimal": "12345678901234567890.10",
        "moment": "2024-02-29T12:30:01.000005Z",
        "local": "2024-02-29T12:30:00.000",
        "date": "1969-12-31",
        "time": "23:59:59.000001",
        "duration": "PT1.5S",
        "list": "[1, null, 3]",
        "struct": '{"a": 1, "b": "x"}',
        "map": '{"k": 1}',
        "dictionary": "red",
        "null": None,
    }

    @pytest.fixture
    def destination(self, tmp_path: Path) -> SqliteDestination:
        return SqliteDestination(str(tmp_path / "copy.db"))
