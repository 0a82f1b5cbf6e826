"""Apply now: an operator lets a replica apply what it has received, without waiting any longer. Asked by a file in the
replica's data directory, which only those can write who run it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from tailrace.log.disk import Disk, disk_errors
from tailrace.log.view import LogView
from tailrace.message import Offset

_NAME: Final = "apply-now"
_DIGITS: Final = 20


def ask(data: str) -> Offset:
    """Ask for all that has been received by now; says up to where that is."""
    end = LogView(os.path.join(data, "log")).head().next_offset
    path = os.path.join(data, _NAME)
    with disk_errors("asking a replica to apply its log", path):
        Disk().replace_file(path, str(end).encode())
    return end


def asked(data: str) -> Offset | None:
    """What an operator has asked for since the last time."""
    path = os.path.join(data, _NAME)
    try:
        with open(path, "rb") as stream:
            said = stream.read(_DIGITS)
    except FileNotFoundError:
        return None
    with suppress(FileNotFoundError):
        os.remove(path)
    return Offset(int(said)) if said.isdigit() else None
