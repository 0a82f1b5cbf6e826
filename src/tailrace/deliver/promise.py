"""The promise: which fields a writer has been told of, and which copies it is in, kept beside its offsets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from tailrace.log.note import ConsumerNote

NAME: Final = "promise.json"


@dataclass(slots=True)
class Promise:
    """What a writer knows of each namespace."""

    schemas: dict[str, str] = field(default_factory=dict)
    """Encoded by `evolution.encode_schemas`."""
    copies: dict[str, int] = field(default_factory=dict)
    """Where the last copy of a namespace begins in the log."""


class PromiseFile:
    """Where a writer's promise is kept."""

    def __init__(self, log: str, consumer: str) -> None:
        self._note = ConsumerNote(log, consumer, NAME)

    def read(self) -> Promise:
        noted = self._note.read()
        return Promise() if noted is None else Promise(**json.loads(noted))

    def write(self, promise: Promise) -> None:
        self._note.write(json.dumps(asdict(promise)).encode())
