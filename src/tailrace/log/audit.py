"""The audit trail: what operators did to consumers, one JSON line each, never rewritten."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from tailrace.log.disk import Disk

NAME: Final = "audit.jsonl"


def record(disk: Disk, directory: str, action: str, consumer: str, **details: object) -> None:
    """Add a line and return when it is on disk."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "user": _user(),
        "host": socket.gethostname(),
        "action": action,
        "consumer": consumer,
        **details,
    }
    fd = _open(disk, os.path.join(directory, NAME))
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # until the file is closed: lines of others must not be written over
        size = os.fstat(fd).st_size
        is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        raw = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        disk.write(fd, [b"\n" + raw if is_torn else raw], size)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.sync_directory(directory)


def whence(via: str | None) -> dict[str, object]:
    """Whence an action was asked for, if that was not the command line."""
    return {} if via is None else {"via": via}


def read(directory: str) -> Iterator[dict[str, Any]]:
    """The trail, oldest first. A line that a crash cut short is left out."""
    path = os.path.join(directory, NAME)
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    yield found


def _open(disk: Disk, path: str) -> int:
    try:
        return disk.open(path)
    except FileNotFoundError:
        pass
    try:
        return disk.create(path)
    except FileExistsError:  # somebody else was faster
        return disk.open(path)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
