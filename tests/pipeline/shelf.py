"""A small adaptor for tests: a JSON file with rows by namespace is read, another one could be written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import Any, Literal

import pyarrow as pa
import pytest
from pydantic import Field, SecretStr

from tailrace.adaptor import registry
from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.options import Bytes, Check, FilePath, ReaderOptions, Seconds, WriterOptions
from tailrace.adaptor.registry import Adaptor
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece, Position, Table

shelf = endpoint("shelf", first="path")


class ShelfReader:
    """Every row is a piece of its own. Whatever would change the source fails the test."""

    def __init__(self, path: str) -> None:
        self.path = path

    def tables(self) -> list[Table]:
        schema = pa.schema([("id", pa.int64())])
        return [Table(name, schema, ("id",), len(rows)) for name, rows in self._found().items() if "/" not in name]

    def left_out(self) -> dict[str, str]:
        return {name: "it has a slash" for name in self._found() if "/" in name}

    def _found(self) -> dict[str, list[dict[str, int]]]:
        with open(self.path) as stream:
            found: dict[str, list[dict[str, int]]] = json.load(stream)
        return found

    def plan_copy(self, table: Table) -> list[Piece]:
        return [{"row": row} for row in range(table.rows or 0)]

    def close(self) -> None:
        pass

    def install(self, tables: Sequence[Table]) -> None:
        raise AssertionError

    def uninstall(self) -> None:
        raise AssertionError

    def position(self) -> Position:
        raise AssertionError

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        raise AssertionError

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        raise AssertionError

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        raise AssertionError

    def copied(self) -> None:
        raise AssertionError

    def reached(self) -> Position | None:
        raise AssertionError

    def forget(self, upto: Position) -> None:
        raise AssertionError


class ShelfReaderOptions(ReaderOptions):
    """A shelf to read."""

    path: FilePath = Field(examples=["shelf.json"])
    """The file with the rows."""
    poll: Seconds = 0.1
    """How often to look."""
    piece_bytes: Bytes = 64 << 20
    password: SecretStr | None = None
    """What opens the shelf."""
    fields: tuple[str, ...] = ()

    def where(self) -> str:
        return self.path

    def probe(self) -> list[Check]:
        if os.path.exists(self.path):
            return [Check(what="file", ok=True, found=self.path)]
        raise TailraceError("source.unreachable", f"there is no file {self.path}", hint="make the file")

    def open(self) -> ShelfReader:
        return ShelfReader(self.path)


class ShelfWriterOptions(WriterOptions):
    """A shelf to write."""

    path: FilePath = Field(examples=["copy.json"])
    """The file for the rows."""
    form: Literal["wide", "long"] = "wide"
    password: SecretStr | None = None

    def where(self) -> str:
        return self.path

    def open(self) -> Any:
        raise AssertionError


ADAPTOR = Adaptor("shelf", "a JSON file on a shelf", ShelfReaderOptions, ShelfWriterOptions)
SINK = Adaptor("sink", "swallows everything", writer=ShelfWriterOptions)


def offer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the adaptors known as another package would, and leave out those of the house."""
    entries = [
        EntryPoint("shelf", f"{__name__}:ADAPTOR", registry.GROUP),
        EntryPoint("sink", f"{__name__}:SINK", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == registry.GROUP else [])
    monkeypatch.setattr(registry, "BUILT_IN", ())
