"""The first half of a pipeline without Spark: tasks run right here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailrace.log.reader import LogReader
from tailrace.message import Message, Offset


class Done:
    """What tasks have told."""

    def __init__(self, receipts: list[Mapping[str, Any]]) -> None:
        self._receipts = receipts

    def all(self) -> list[Mapping[str, Any]]:
        return self._receipts


def run_here(work: Any, items: list[Any]) -> Any:
    return Done([work(item) for item in items])


def messages_in(log: Path) -> list[Message]:
    reader = LogReader(str(log))
    return [entry.message for entry in reader.entries(Offset(0), reader.next_offset)]
