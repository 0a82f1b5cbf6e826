"""Trouble: what a writer failed at, kept beside its offsets until it got over it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from tailrace.log.note import ConsumerNote

NAME: Final = "trouble.json"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A range of the log that could not be written in one go. It is redelivered one message at a time."""

    first: int
    last: int
    error: str
    at_s: float
    is_single: bool = False
    """Whether `first` is the very message that cannot be written."""


class TroubleFile:
    """Where a consumer's trouble is kept."""

    def __init__(self, log: str, consumer: str) -> None:
        self._note = ConsumerNote(log, consumer, NAME)

    def read(self) -> Trouble | None:
        noted = self._note.read()
        return None if noted is None else Trouble(**json.loads(noted))

    def write(self, trouble: Trouble) -> None:
        self._note.write(json.dumps(asdict(trouble)).encode())

    def clear(self) -> None:
        self._note.clear()
