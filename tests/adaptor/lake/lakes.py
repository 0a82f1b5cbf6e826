"""Lakes as their users see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tailrace.adaptor.lake.options import LakeWriterOptions
from tailrace.adaptor.lake.place import table_directory
from tests.adaptor.contract import FrameDestination, Row


@dataclass
class Lake(FrameDestination):
    """A directory with a table per namespace."""

    path: Path
    form: ClassVar[dict[str, str]] = {}

    def options(self) -> LakeWriterOptions:
        return LakeWriterOptions.model_validate({"path": str(self.path), **self.form})

    def directory(self, namespace: str) -> Path:
        return Path(table_directory(str(self.path), namespace))

    def files(self, namespace: str) -> list[Path]:
        """The data files that a reader of the namespace would find."""
        return sorted(self.directory(namespace).glob("[!_.]*.parquet"))

    def rows(self, namespace: str) -> list[Row]:
        found: list[Row] = self.table(namespace).to_pylist(maps_as_pydicts="strict")
        return found

    def table(self, namespace: str) -> pa.Table:
        """All rows. Fails when a column has different types in different files."""
        tables = [pq.read_table(file, partitioning=None) for file in self.files(namespace)]
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

    def trace(self, namespace: str) -> object:
        return self.files(namespace)


class CurrentLake(Lake):
    """Parquet, as it is now."""

    def files(self, namespace: str) -> list[Path]:
        return sorted((self.directory(namespace) / "current").resolve().glob("[!_.]*.parquet"))


class HistoryLake(Lake):
    """Parquet, one row per message."""

    form: ClassVar = {"keep": "history"}

    def state(self, namespace: str, key: tuple[str, ...]) -> list[Row]:
        """The last row of every key."""
        return last_rows(self.rows(namespace), key)


class DeltaLake(Lake):
    """Delta tables, as they are now."""

    form: ClassVar = {"format": "delta"}

    def table(self, namespace: str) -> pa.Table:
        directory = str(self.directory(namespace))
        return DeltaTable(directory).to_pyarrow_table() if DeltaTable.is_deltatable(directory) else pa.table({})

    def trace(self, namespace: str) -> object:
        return DeltaTable(str(self.directory(namespace))).version()


class DeltaHistoryLake(DeltaLake):
    """Delta tables, one row per message."""

    form: ClassVar = {"format": "delta", "keep": "history"}

    def state(self, namespace: str, key: tuple[str, ...]) -> list[Row]:
        return last_rows(self.rows(namespace), key)


def last_rows(history: list[Row], key: tuple[str, ...]) -> list[Row]:
    """What a user makes of a history: the last row of every key, but for those that are deleted."""
    last: dict[Any, Row] = {}
    for found in sorted(history, key=lambda entry: entry["_offset"]):
        last[tuple(found[name] for name in key) or found["_offset"]] = found
    meta = ("_offset", "_op", "_timestamp", "_lsn")
    present = [found for found in last.values() if found["_op"] != "delete"]
    return [{name: value for name, value in found.items() if name not in meta} for found in present]


STORED: dict[str, Any] = {
    "bool": True,
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
    "decimal": Decimal("12345678901234567890.10"),
    "moment": datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC),
    "local": datetime(2024, 2, 29, 12, 30),
    "date": date(1969, 12, 31),
    "time": "23:59:59.000001",
    "duration": 1_500_000,
    "list": [1, None, 3],
    "struct": {"a": 1, "b": "x"},
    "map": {"k": 1},
    "dictionary": "red",
    "null": None,
}
"""What lakes make of every type."""
