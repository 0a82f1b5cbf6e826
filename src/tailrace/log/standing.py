"""The standing of a log: whether it is a copy of another one, and its generation.

A copy is written by whoever copies and by nobody else, until it is promoted: then it begins a generation of its own,
and goes on by itself. Of two logs with the same beginning the one of the later generation counts.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from typing import Final

from tailrace.errors import Place, TailraceError
from tailrace.log.disk import Disk, disk_errors

NAME: Final = "standing.json"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a log is among those that have the same beginning."""

    generation: int = 0
    is_copy: bool = False
    edition: str = ""
    """Another one whenever the log is cut: what stands there later need not be what somebody has copied."""


def standing_of(directory: str) -> Standing:
    """That of a log directory; one of which nothing is said is a log of its own, in its first generation."""
    path = os.path.join(directory, NAME)
    with disk_errors("reading a log's standing", path):
        try:
            with open(path, "rb") as file:
                found = json.load(file)
            return Standing(int(found["generation"]), bool(found["is_copy"]), str(found.get("edition", "")))
        except FileNotFoundError:
            return Standing()
        except (ValueError, TypeError, KeyError):
            what = "what kind of log this is cannot be read"
            raise TailraceError("log.corrupt", what, place=Place(path), hint="copy it anew from its source") from None


def keep_standing(disk: Disk, directory: str, standing: Standing) -> None:
    """On disk when this returns."""
    disk.replace_file(os.path.join(directory, NAME), json.dumps(asdict(standing)).encode() + b"\n")


def new_edition() -> str:
    return secrets.token_hex(8)


def begin_edition(disk: Disk, directory: str) -> None:
    """Before a log is cut: whoever copies it has to match it anew."""
    keep_standing(disk, directory, replace(standing_of(directory), edition=new_edition()))


def check_own(directory: str) -> None:
    """Refuse to write a log that is a copy."""
    if standing_of(directory).is_copy:
        what = "this log is a copy of another one, and only what it is copied from is written"
        raise TailraceError("log.is_copy", what, place=Place(directory), hint="write its source, or promote the copy")
