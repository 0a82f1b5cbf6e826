"""Trouble: what a writer failed at, kept beside its offsets until it got over it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Final

from tailrace.log.consumers import PREFIX
from tailrace.log.disk import Disk
from tailrace.namespace import check_file_name

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

    def __init__(self, log: str, consumer: str, disk: Disk | None = None) -> None:
        self._path = os.path.join(log, PREFIX + check_file_name(consumer, "consumer"), NAME)
        self._disk = disk or Disk()

    def read(self) -> Trouble | None:
        try:
            with open(self._path, "rb") as stream:
                return Trouble(**json.load(stream))
        except FileNotFoundError:
            return None

    def write(self, trouble: Trouble) -> None:
        self._disk.replace_file(self._path, json.dumps(asdict(trouble)).encode())

    def clear(self) -> None:
        if os.path.lexists(self._path):
            self._disk.remove(self._path)
