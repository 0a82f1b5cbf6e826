"""The adaptor of the guide keeps the promises of all adaptors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from tailrace.adaptor.options import ReaderOptions, WriterOptions
from tests.adaptor.contract import SAMPLES, Destination, KeyedWriterContract, ReaderContract, Row, Source

GUIDE = Path(__file__).parents[2] / "docs/guides/add-an-adaptor.md"


@cache
def adaptor() -> Any:
    """The guide's code blocks as a module."""
    module = ModuleType("tailrace_guide")
    code = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    exec(compile(code, GUIDE, "exec", dont_inherit=True), vars(module))
    return module


@dataclass
class Ledger(Source):
    directory: Path

    def options(self) -> ReaderOptions:
        options: ReaderOptions = adaptor().LedgerReaderOptions(path=str(self.directory))
        return options

    def create(self, table: str) -> str:
        (self.directory / f"{table}.jsonl").touch()
        return f"ledger.{table}"

    def insert(self, table: str, rows: Sequence[Row]) -> None:
        with (self.directory / f"{table}.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def rows(self, table: str) -> list[Row]:
        return [json.loads(line) for line in (self.directory / f"{table}.jsonl").read_text().splitlines()]


@dataclass
class State(Destination):
    directory: Path

    def options(self) -> WriterOptions:
        options: WriterOptions = adaptor().LedgerWriterOptions(path=str(self.directory))
        return options

    def rows(self, namespace: str) -> list[Row]:
        file = self.directory / "state.json"
        found = json.loads(file.read_text()) if file.exists() else {}
        return list(found.get(namespace, {"rows": {}})["rows"].values())


class TestReader(ReaderContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Ledger:
        return Ledger(tmp_path)


class TestWriter(KeyedWriterContract):
    stored: ClassVar = {
        name: json.loads(json.dumps(column[0].as_py(), default=str)) for name, column in SAMPLES.items()
    }

    @pytest.fixture
    def destination(self, tmp_path: Path) -> State:
        return State(tmp_path)
