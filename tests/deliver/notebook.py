"""A destination for tests: a file with one line per commit. It can be told to refuse messages."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tailrace.adaptor.options import WriterOptions
from tailrace.deliver.contract import Spread, Target
from tailrace.deliver.messages import Messages
from tailrace.message import Offset


class NotebookOptions(WriterOptions):
    """What a test wants to happen."""

    path: str
    bulk_max: int | None = None
    """A write of more messages than this is refused as a whole."""
    poison: tuple[int, ...] = ()
    """Messages at these offsets are refused."""

    def where(self) -> str:
        return self.path

    def open(self) -> Notebook:
        return Notebook(self)


class Notebook:
    """Notes offsets and data; a commit is one line `[[offset, data], …]`."""

    spread = Spread.NONE

    def __init__(self, options: NotebookOptions) -> None:
        self._options = options
        self._lines: list[list[Any]] = []

    def applied(self, namespace: str) -> Offset | None:
        return None

    def prepare(self, target: Target) -> None:
        pass

    def write(self, messages: Messages) -> None:
        offsets: list[Any] = messages.offsets().to_pylist()
        if self._options.bulk_max is not None and len(offsets) > self._options.bulk_max:
            raise ValueError(f"too many: {len(offsets)}")
        for offset, data in zip(offsets, _documents(messages), strict=True):
            if offset in self._options.poison:
                raise ValueError(f"cannot stomach {data}")
            self._lines.append([offset, data])

    def commit(self, upto: Offset) -> None:
        if self._lines:
            with open(self._options.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(self._lines) + "\n")
                file.flush()
                os.fsync(file.fileno())
        self._lines = []

    def close(self) -> None:
        self._lines = []


def commits(path: Path) -> list[list[int]]:
    """The offsets of each commit."""
    if not path.exists():
        return []
    return [[offset for offset, _ in json.loads(line)] for line in path.read_text().splitlines()]


def _documents(messages: Messages) -> list[Any]:
    data: Any = messages.data
    documents: list[Any] = data.to_pylist()
    return documents
