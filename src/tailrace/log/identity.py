"""The identity of a log: offsets mean something only together with the log they are of.

Destinations record up to which offset they have everything. A log that is made anew counts from 0 again, so they record
whose offsets these are, too.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import Final

from tailrace.log.disk import Disk, disk_errors

NAME: Final = "log.id"


def identity_of(directory: str) -> str:
    """What tells this log from every other; made at random the first time it is asked for."""
    path = os.path.join(directory, NAME)
    with disk_errors("reading a log's identity", path):
        if not os.path.exists(path):
            _make(directory, path, Disk())
        with open(path, encoding="ascii") as stream:
            return stream.read().strip()


def _make(directory: str, path: str, disk: Disk) -> None:
    """Of all who ask at once, in whichever process, one is first, and the others take what it made."""
    made = secrets.token_hex(8)
    mine = f"{path}-{made}"
    disk.replace_file(mine, f"{made}\n".encode())
    try:
        with suppress(FileExistsError):
            os.link(mine, path)
    finally:
        disk.remove(mine)
    disk.sync_directory(directory)


def adopt(directory: str, identity: str, disk: Disk) -> None:
    """Be a copy of the log with this identity: their offsets mean the same."""
    disk.replace_file(os.path.join(directory, NAME), f"{identity}\n".encode())
