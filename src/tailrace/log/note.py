"""Notes: small files that belong to a consumer, beside its offsets; they go with it."""

from __future__ import annotations

import os
from typing import Final

from tailrace.log.consumers import PREFIX
from tailrace.log.disk import Disk, disk_errors
from tailrace.namespace import check_file_name

REWOUND: Final = "rewound"
"""Up to where messages are to be sent again, even if the destination says that it has them: an operator wants it."""


class ConsumerNote:
    """One note of one consumer."""

    def __init__(self, log: str, consumer: str, name: str, disk: Disk | None = None) -> None:
        self._path = os.path.join(log, PREFIX + check_file_name(consumer, "consumer"), name)
        self._disk = disk or Disk()

    def read(self) -> bytes | None:
        try:
            with open(self._path, "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def write(self, content: bytes) -> None:
        """Replace the note, durably, all or nothing."""
        with disk_errors("writing a consumer's note", self._path):
            self._disk.replace_file(self._path, content)

    def clear(self) -> None:
        if os.path.lexists(self._path):
            self._disk.remove(self._path)
