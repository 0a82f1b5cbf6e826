"""What retention has removed: where it stopped, and the last message of every namespace up to there.

It tells a consumer that had everything from one that lost something: a namespace that went quiet long ago is no loss.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Final

from tailrace.log.contents import Contents
from tailrace.log.disk import Disk

NAME: Final = "removed.json"


@dataclass(frozen=True, slots=True)
class Removed:
    """The part of a log that is gone."""

    end: int = 0
    """Everything below this offset was removed by retention, or was about to be when it was interrupted."""
    last_offsets: dict[str, int] = field(default_factory=dict)


def read(directory: str) -> Removed:
    """What was removed so far; nothing when that is not known."""
    try:
        with open(os.path.join(directory, NAME), "rb") as file:
            found = json.load(file)
        return Removed(int(found["end"]), {str(name): int(last) for name, last in found["last_offsets"].items()})
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return Removed()


def record(disk: Disk, directory: str, contents: Contents) -> None:
    """A segment is about to be removed. On disk when this returns."""
    gone = {name: presence.last for name, presence in contents.namespaces.items()}
    known = Removed(contents.end, {**read(directory).last_offsets, **gone})
    disk.replace_file(os.path.join(directory, NAME), json.dumps(asdict(known)).encode() + b"\n")
