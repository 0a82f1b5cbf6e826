"""The identity of a log: offsets mean something only together with the log they are of.

Destinations record up to which offset they have everything. A log that is made anew counts from 0 again, so they record
whose offsets these are, too.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

from tailrace.log.disk import Disk, disk_errors

NAME: Final = "log.id"


def identity_of(directory: str) -> str:
    """What tells this log from every other; made at random the first time it is asked for."""
    path = os.path.join(directory, NAME)
    with disk_errors("reading a log's identity", path):
        try:
            with open(path, encoding="ascii") as stream:
                return stream.read().strip()
        except FileNotFoundError:
            made = secrets.token_hex(8)
            adopt(directory, made, Disk())
            return made


def adopt(directory: str, identity: str, disk: Disk) -> None:
    """Be a copy of the log with this identity: their offsets mean the same."""
    disk.replace_file(os.path.join(directory, NAME), f"{identity}\n".encode())
