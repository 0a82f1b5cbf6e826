"""What a session remembers when its site ends, in a file.

What is older than it should be does no harm: the sink knows better what it has, and what the log has lost since then
counts as if it had been for this sink. So the file is not synced.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one session."""

    acknowledged: int = -1
    """The last place that the sink has acknowledged; -1 when it never has."""
    last_enqueued: int = -1
    """The last place for which there was an entry for the sink, whether it is still in the log or not."""
    counted: int = 0
    """Up to here the log was looked at for that."""
    lost: int = -1
    """Up to here entries were removed that the sink, which gets no snapshots, has never got."""
    request: str | None = None
    """The last snapshot."""
    completed_us: int | None = None
    """When that was in place."""

    @classmethod
    def load(cls, path: str) -> Self:
        """What was kept; nothing when that cannot be read."""
        with suppress(FileNotFoundError, ValueError, TypeError), open(path, encoding="utf-8") as stream:
            return cls(**json.load(stream))
        return cls()

    def within(self, end: int) -> Self:
        """What it is worth when the log ends at a place: that may be an older copy of it."""
        return replace(self, last_enqueued=min(self.last_enqueued, end - 1), counted=min(self.counted, end))

    def save(self, path: str) -> None:
        with open(f"{path}.new", "w", encoding="utf-8") as stream:
            json.dump(asdict(self), stream)
        os.replace(f"{path}.new", path)
