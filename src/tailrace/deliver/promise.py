"""The promise: which fields a writer has been told of, and which copies it is in, kept beside its offsets."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Final

from tailrace.log.consumers import PREFIX
from tailrace.log.disk import Disk
from tailrace.namespace import check_file_name

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
        self._path = os.path.join(log, PREFIX + check_file_name(consumer, "consumer"), NAME)
        self._disk = Disk()

    def read(self) -> Promise:
        try:
            with open(self._path, "rb") as stream:
                return Promise(**json.load(stream))
        except FileNotFoundError:
            return Promise()

    def write(self, promise: Promise) -> None:
        self._disk.replace_file(self._path, json.dumps(asdict(promise)).encode())
