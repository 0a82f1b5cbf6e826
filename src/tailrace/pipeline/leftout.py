"""What a source has and cannot be read, each with the reason, kept beside the log: so not only the run can tell it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from tailrace.errors import TailraceError
from tailrace.log.disk import Disk, disk_errors
from tailrace.spark.beside import RUN_DIRECTORY

_NAME: Final = "left-out.json"


class LeftOut:
    """The namespaces that are left out of one log. Only the process that runs the pipeline notes them."""

    def __init__(self, log: str) -> None:
        self._path = os.path.join(log, RUN_DIRECTORY, _NAME)

    def read(self) -> dict[str, str]:
        """By namespace: why. Nothing when there is no file that is understood: it is only for people."""
        with suppress(OSError, ValueError, AttributeError), open(self._path, encoding="utf-8") as stream:
            return {str(name): str(why) for name, why in json.load(stream).items()}
        return {}

    def note(self, found: Mapping[str, str]) -> None:
        """These, and no others, are left out now."""
        if found != self.read():
            with suppress(TailraceError), disk_errors("noting what is left out", self._path):  # the run tells it anyway
                Disk().replace_file(self._path, json.dumps(dict(found)).encode())
