"""The promises that all adaptors make, kept by files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pytest

from tailrace.adaptor.files.names import file_stem_of
from tailrace.adaptor.files.options import FilesReaderOptions, FilesWriterOptions
from tailrace.adaptor.options import ReaderOptions, WriterOptions
from tailrace.source.contract import Reader
from tests.adaptor.contract import (
    Destination,
    ReaderContract,
    Row,
    Source,
    WriterContract,
    plain,
    some_rows,
    table_of,
)


@dataclass
class JsonSource(Source):
    """Each table is a file of JSON lines."""

    directory: Path

    def options(self) -> ReaderOptions:
        return FilesReaderOptions(path=str(self.directory), key=("id",), piece_bytes=1000)

    def create(self, table: str) -> str:
        (self.directory / f"{table}.jsonl").touch()
        return f"files.{table}"

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        with (self.directory / f"{table}.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def rows(self, table: str) -> list[Row]:
        return [json.loads(line) for line in (self.directory / f"{table}.jsonl").read_text().splitlines()]

    def leftovers(self) -> set[str]:
        return {path.name for path in self.directory.iterdir() if path.suffix != ".jsonl"}


@dataclass
class CsvSource(Source):
    """Each table is a CSV file."""

    directory: Path

    def options(self) -> ReaderOptions:
        return FilesReaderOptions(path=str(self.directory / "*.csv"), key=("id",), piece_bytes=1000)

    def create(self, table: str) -> str:
        (self.directory / f"{table}.csv").write_text("id,name,amount\n")
        return f"files.{table}"

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        with (self.directory / f"{table}.csv").open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(row.values() for row in rows)

    def rows(self, table: str) -> list[Row]:
        with (self.directory / f"{table}.csv").open(newline="") as file:
            return [
                {
                    "id": int(row["id"]),
                    "name": row["name"] or None,
                    "amount": float(row["amount"]) if row["amount"] else None,
                }
                for row in csv.DictReader(file)
            ]


@dataclass
class AvroSource(Source):
    """Each table is an Avro file."""

    directory: Path
    columns: ClassVar = {"id": "long", "name": ["null", "string"], "amount": ["null", "double"]}

    def options(self) -> ReaderOptions:
        return FilesReaderOptions(path=str(self.directory), key=("id",), piece_bytes=1000)

    def create(self, table: str) -> str:
        fields = [{"name": name, "type": kind} for name, kind in self.columns.items()]
        with (self.directory / f"{table}.avro").open("wb") as file:
            fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, [])
        return f"files.{table}"

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        with (self.directory / f"{table}.avro").open("a+b") as file:
            known: Any = None
            fastavro.writer(file, known, rows, sync_interval=100)

    def rows(self, table: str) -> list[Row]:
        with (self.directory / f"{table}.avro").open("rb") as file:
            return [dict(row) for row in fastavro.reader(file) if isinstance(row, dict)]


class FilesContract(ReaderContract):
    """Two promises mean something else for files that only grow."""

    def test_rows_that_come_after_planning_have_a_piece(
        self, source: Source, open_reader: Callable[[], Reader]
    ) -> None:
        """They come once, as changes: rows without a key could not be told apart if they came twice."""
        namespace = source.create("t")
        source.insert("t", some_rows(1000, 50))
        planner = open_reader()
        start = plain(planner.position())
        source.insert("t", some_rows(1, 5))
        pieces = planner.plan_copy(table_of(planner, namespace))
        source.insert("t", some_rows(5000, 5))
        read = self.copy(open_reader, namespace, pieces)
        read += self.changes(open_reader, start, open_reader().position())
        assert [message.data["id"] for message in read if message.data] == [row["id"] for row in source.rows("t")]

    def test_the_order_of_a_namespace(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        """Nobody knows in which order two files were written."""
        names = {source.create("a"), source.create("b")}
        start = self.install(open_reader)
        for number in range(30):
            source.insert("a" if number % 3 else "b", some_rows(number, 1))
        read = self.changes(open_reader, start, open_reader().position())
        assert len(read) == 30
        for namespace in names:
            ids = [m.data["id"] for m in read if m.namespace == namespace and m.data]
            assert ids == sorted(ids)
        lsns = [message.lsn for message in read]
        assert lsns == sorted(set(lsns))


class TestJsonReader(FilesContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> JsonSource:
        return JsonSource(tmp_path)


class TestCsvReader(FilesContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> CsvSource:
        return CsvSource(tmp_path)


class TestAvroReader(FilesContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> AvroSource:
        return AvroSource(tmp_path)


@dataclass
class Directory(Destination):
    """Each namespace has its file of rows."""

    directory: Path

    def options(self) -> WriterOptions:
        return FilesWriterOptions(path=str(self.directory))

    def rows(self, namespace: str) -> list[Row]:
        file = self.directory / f"{file_stem_of(namespace)}.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@dataclass
class OneFile(Destination):
    """All namespaces are in one file, with envelopes."""

    file: Path

    def options(self) -> WriterOptions:
        return FilesWriterOptions(path=str(self.file), with_envelope=True)

    def rows(self, namespace: str) -> list[Row]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        found = [json.loads(line) for line in lines]
        return [line["data"] for line in found if line["namespace"] == namespace]


STORED: dict[str, Any] = {
    "bool": True,
    "int8": -8,
    "int64": -(2**63),
    "uint32": 2**32 - 1,
    "float32": 0.5,
    "float64": 1e300,
    "infinite": "-Infinity",
    "text": "grüße \0 日本 'quoted'",
    "empty": "",
    "large_text": "large",
    "binary": "AP8=",
    "fixed": "YWJj",
    "decimal": 12345678901234567890.10,
    "moment": "2024-02-29T12:30:01.000005Z",
    "local": "2024-02-29T12:30:00.000",
    "date": "1969-12-31",
    "time": "23:59:59.000001",
    "duration": "PT1.5S",
    "list": [1, None, 3],
    "struct": {"a": 1, "b": "x"},
    "map": {"k": 1},
    "dictionary": "red",
    "null": None,
}


class TestWriterToADirectory(WriterContract):
    stored: ClassVar = STORED

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Directory:
        return Directory(tmp_path / "out")


class TestWriterToOneFile(WriterContract):
    stored: ClassVar = STORED

    @pytest.fixture
    def destination(self, tmp_path: Path) -> OneFile:
        return OneFile(tmp_path / "all.jsonl")
