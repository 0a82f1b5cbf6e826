"""What a node must know of its log when messages are gone from it: kept in a file beside it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.errors import Place, TailraceError
from tailrace.log.disk import Disk, disk_errors
from tailrace.relay.vclock import Vclock, decode_vclock

NAME: Final = "vclock.json"
_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Keepsake:
    """As of one moment."""

    vclock: Vclock = field(default_factory=Vclock)
    """How far the node was."""
    begin: Vclock = field(default_factory=Vclock)
    """What came to the node by a snapshot, and so never was in its log."""
    latest_us: int = 0
    """The latest time of all messages that the node knew."""
    own_us: int = 0
    """The latest time of its own."""


def keep(directory: str, keepsake: Keepsake) -> None:
    """On disk when this returns."""
    told = {
        "vclock": keepsake.vclock.encode(),
        "begin": keepsake.begin.encode(),
        "latest_us": keepsake.latest_us,
        "own_us": keepsake.own_us,
    }
    path = os.path.join(directory, NAME)
    with disk_errors("keeping the clock", path):
        Disk().replace_file(path, json.dumps(told).encode())


def kept(directory: str) -> Keepsake:
    """What was kept last; nothing when there was nothing to keep."""
    path = os.path.join(directory, NAME)
    with disk_errors("reading the clock", path):
        try:
            with open(path, "rb") as stream:
                raw = stream.read(_BYTES_MAX)
        except FileNotFoundError:
            return Keepsake()
    try:
        told: dict[str, Any] = json.loads(raw)
        latest_us = int(told["latest_us"])
        own_us = int(told.get("own_us", latest_us))
        return Keepsake(decode_vclock(told["vclock"]), decode_vclock(told["begin"]), latest_us, own_us)
    except (ValueError, KeyError, TypeError, TailraceError) as error:
        what = f"the clock cannot be read: {error}"
        raise TailraceError("log.corrupt", what, place=Place(path), hint="restore the file from a backup") from error
