"""A run of sync as others see it: it says in a file how it is, and holds a lock for as long as it lives.

The kernel lets go of the lock however the process ends, so nobody who is dead is taken for one who runs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from tailrace.errors import TailraceError
from tailrace.log.lock import Lock, LockHeld, holder_of
from tailrace.node.status import leave, read_status

TELL_S: Final = 1.0
"""So often it is looked whether there is news."""
_BEAT_S: Final = 5.0
"""So often a run without news shows that it lives. Only the file's time is changed for that."""
SILENT_S: Final = 20.0
"""One that lives and has not shown it for so long hangs."""


@dataclass(frozen=True, slots=True)
class SyncRun:
    """What a run has said of itself."""

    told: Mapping[str, Any]
    """As `SyncSite.status` has it."""
    runs_as: str | None
    """The process; None when it does not run any more."""
    at_s: float
    """When it last showed that it lives, in seconds since 1970."""

    @property
    def age_s(self) -> float:
        return max(0.0, time.time() - self.at_s)


def state_directory(file: str, said: str | None) -> str:
    """Where runs of a file say how they are: beside it, unless the file says where."""
    return said or f"{os.path.abspath(file)}.state"


class SyncTelling:
    """`with SyncTelling(directory, node, ask, say) as telling`, then `tell` again and again.

    One file may be of several databases, by its variables: what is told has the number of the node in its name. Sync
    goes on where nothing can be told, and says so.
    """

    def __init__(
        self, directory: str, node: str, ask: Callable[[], Mapping[str, Any]], say: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._path, lock = _paths(directory, node)
        self._lock = Lock(lock)
        self._ask = ask
        self._say = say
        self._last: Mapping[str, Any] | None = None
        self._beat_s = 0.0
        self._is_first = False
        """Whether no other process tells of this database."""
        self._said = ""

    def __enter__(self) -> Self:
        try:
            os.makedirs(self._directory, exist_ok=True)
            self._lock.acquire()
            self._is_first = True
        except LockHeld as held:
            self._say(f"{held} syncs this database, too, and its status is the one that is told")
        except OSError as error:
            self._say_once(error)
        self.tell()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_first:
            self.tell()
            self._lock.release()

    def tell(self) -> None:
        """Say how it is, if that is news."""
        if not self._is_first:
            return
        told, now_s = self._ask(), time.monotonic()
        try:
            if told != self._last or not os.path.exists(self._path):
                leave(told, self._path)
            elif now_s >= self._beat_s:
                os.utime(self._path)
            else:
                return
        except OSError as error:
            self._last = None
            self._say_once(error)
        else:
            self._last, self._beat_s, self._said = told, now_s + _BEAT_S, ""

    def _say_once(self, error: OSError) -> None:
        text = (
            f"sync goes on, but `tailrace sync status` cannot know how it is: {error}; `state` names another directory"
        )
        if text != self._said:
            self._said = text
            self._say(text)


def read_run(directory: str, node: str) -> SyncRun | None:
    """What the last run has said of a node's database; None when none ever did."""
    path, lock = _paths(directory, node)
    holder = holder_of(lock)
    try:
        with open(path, encoding="utf-8") as stream:
            at_s = os.fstat(stream.fileno()).st_mtime
            told: dict[str, Any] = json.load(stream)
    except (FileNotFoundError, ValueError):  # the next one that is told mends it
        return None
    return SyncRun(told, None if holder is None else str(holder), at_s)


def run_of_node(data: str) -> SyncRun | None:
    """The same of a node with sync that keeps what it has in a directory."""
    try:
        told = read_status(data)
    except TailraceError:  # it never ran
        return None
    if told.get("sync") is None:
        return None
    runs_as = f"served by node {told['node']}" if told["is_running"] else None
    return SyncRun(told["sync"], runs_as, told["at_us"] / 1_000_000)


def _paths(directory: str, node: str) -> tuple[str, str]:
    return os.path.join(directory, f"{node}.json"), os.path.join(directory, f"{node}.lock")
