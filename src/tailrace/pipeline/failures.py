"""Failures: the last error of every part of a pipeline, kept beside its log until the part does well again, so that
`tailrace status` can tell of it when the run has ended."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.log.disk import Disk, disk_errors
from tailrace.spark.beside import RUN_DIRECTORY

NAME: Final = "failures.json"


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, and when."""

    error: TailraceError
    at_s: float


class Failures:
    """The failures of one pipeline. Only the process that runs it writes them."""

    def __init__(self, log: str) -> None:
        self._path = os.path.join(log, RUN_DIRECTORY, NAME)

    def read(self) -> dict[str, Failure]:
        """By part: a writer's name, `READING` or `RUN`. Nothing when there is no file that is understood: it is
        only for people."""
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            with open(self._path, "rb") as stream:
                stored: dict[str, Any] = json.load(stream)
            return {name: Failure(TailraceError.decode(each["error"]), each["at_s"]) for name, each in stored.items()}
        return {}

    def note(self, part: str, error: TailraceError) -> None:
        self._write({**self.read(), part: Failure(error, time.time())})

    def clear(self, *parts: str) -> None:
        """These parts do well."""
        known = self.read()
        left = {name: each for name, each in known.items() if name not in parts}
        if left != known:
            self._write(left)

    def _write(self, failures: dict[str, Failure]) -> None:
        told = {name: {"error": each.error.encode(), "at_s": each.at_s} for name, each in failures.items()}
        with suppress(TailraceError), disk_errors("noting a failure", self._path):  # the failure itself is told anyway
            Disk().replace_file(self._path, json.dumps(told).encode())
