"""Whole lives of a log on a disk that remembers everything: work, faults, deaths and new starts, all from a seed."""

from __future__ import annotations

import bisect
import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch

from tailrace.errors import TailraceError
from tailrace.log import active, index
from tailrace.log.commitlog import CommitLog, LogConfig
from tests.crash.ledger import LOG, Expected
from tests.crash.simdisk import Die, Killed, Moment, Record, RecordingDisk, Refuse, Trap
from tests.crash.workload import Step, Work

SEGMENT_BYTES: Final = 6_000
WAIT_S: Final = 30.0
"""Far more than anything here takes."""


@dataclass(frozen=True, slots=True)
class Deed:
    """A step, and what goes wrong in it."""

    step: Step
    mishap: Trap | None = None

    def __str__(self) -> str:
        return f"{self.step} {self.mishap}" if self.mishap else str(self.step)


def life(*deeds: str | Deed) -> tuple[Deed, ...]:
    """Deeds, most of them written as steps."""
    return tuple(deed if isinstance(deed, Deed) else Deed(step(deed)) for deed in deeds)


def step(text: str) -> Step:
    """A step written as `name argument ...`."""
    name, *arguments = text.split()
    return Step(name, tuple(int(word) if word.isdigit() else word for word in arguments))


@dataclass(slots=True)
class Recording:
    """What was done, and what had to be found after each operation."""

    config: LogConfig
    record: Record = field(default_factory=Record)
    positions: list[int] = field(default_factory=list)
    expectations: list[Expected] = field(default_factory=list)
    deeds: list[tuple[int, Deed]] = field(default_factory=list)

    def note(self, expected: Expected) -> None:
        self.positions.append(len(self.record.ops))
        self.expectations.append(expected)

    def expected_at(self, cut: int) -> Expected:
        """What may be found when power was cut after so many operations."""
        at = bisect.bisect_right(self.positions, cut)
        return self.expectations[at - 1] if at else Expected()

    def story(self, cut: int) -> str:
        """What had been done by then."""
        return "\n".join(f"  {start}: {deed}" for start, deed in self.deeds if start <= cut)


class _RecordedWork(Work):
    """Makes the log's own thread predictable: it is in the middle of its sync while the rest of a burst is written."""

    recorder: RecordingDisk

    def __init__(self, directory: str, recording: Recording, disk: RecordingDisk) -> None:
        super().__init__(directory, recording.note, disk=disk, config=recording.config)
        self._worker = threading.current_thread()
        self.take(disk)

    def take(self, disk: RecordingDisk) -> None:
        """Go on with another disk, as a new process does."""
        self.disk = self.recorder = disk
        disk.on_sync = self._on_sync
        disk.on_death = self._on_death
        self._is_burst = False
        self._is_syncing = threading.Event()
        self._may_end = threading.Event()

    def append_soon(self, groups: int, rows: int) -> None:
        self.roll()
        self._is_syncing.clear()
        self._may_end.clear()
        self._is_burst = True
        try:
            super().append_soon(groups, rows)
        finally:
            self._is_burst = False
            self._may_end.set()

    def on_written_soon(self) -> None:
        if not self._is_syncing.wait(WAIT_S):
            raise AssertionError("the log's own thread did not begin to sync")

    def on_waiting(self) -> None:
        self._may_end.set()

    def _on_sync(self) -> None:
        if self._is_burst and threading.current_thread() is not self._worker:
            self._is_syncing.set()
            if not self._may_end.wait(WAIT_S):
                raise AssertionError("a burst did not come to its end")

    def _on_death(self) -> None:
        """Nobody need wait for anybody any more."""
        self._is_syncing.set()
        self._may_end.set()

    def bury(self, log: CommitLog | None) -> None:
        """What the kernel does for a dead process: its locks are free, its threads end."""
        self._on_death()
        if log is not None:
            log._closed.set()
            log._has_news.set()
            if log._syncer is not None:
                log._syncer.join()
            log._lock.abandon()


def record(root: str, deeds: Iterable[Deed], config: LogConfig | None = None) -> Recording:
    """Do everything, and record it."""
    recording = Recording(config or LogConfig(segment_bytes=SEGMENT_BYTES))
    disk = RecordingDisk(root, recording.record)
    work = _RecordedWork(os.path.join(root, LOG), recording, disk)
    with small_pieces(), _deaths_are_silent():
        for deed in (Deed(Step("open")), *deeds, Deed(Step("close"))):
            recording.deeds.append((len(recording.record.ops), deed))
            _do(work, recording, deed, root)
        work.recorder.notice()
    return recording


def record_death(
    root: str, deeds: Iterable[Deed], last: Step, death: Die, on_begin: Callable[[Expected], None] = lambda _: None
) -> tuple[Recording, bool]:
    """Do everything, and then one step in which the process dies. False when the step came to its end before that.

    `on_begin` is told what may be found before each operation of that step.
    """
    recording = Recording(LogConfig(segment_bytes=SEGMENT_BYTES))
    disk = RecordingDisk(root, recording.record)
    work = _RecordedWork(os.path.join(root, LOG), recording, disk)
    with small_pieces(), _deaths_are_silent():
        for deed in (Deed(Step("open")), *deeds):
            _do(work, recording, deed, root)
        recording.deeds.append((len(recording.record.ops), Deed(last, death)))
        disk.set_trap(death)
        disk.on_begin = lambda: on_begin(work.expected)
        try:
            work.do(last)
        except Killed:
            return recording, True
        else:
            disk.die()
            return recording, False
        finally:
            work.bury(work._log)


def _do(work: _RecordedWork, recording: Recording, deed: Deed, root: str) -> None:
    work.recorder.set_trap(deed.mishap)
    log = work._log
    try:
        work.do(deed.step)
    except Killed:
        work.bury(work._log or log)
        work._log = None
        work.take(RecordingDisk(root, recording.record))
        work.open()
    except TailraceError as error:
        if not isinstance(deed.mishap, Refuse):
            raise
        _get_over(work, error)
    finally:
        work.recorder.set_trap(None)


def _get_over(work: _RecordedWork, error: TailraceError) -> None:
    """A full disk is no reason to start anew; a disk that fails is."""
    if error.code == "log.disk_full" and work._log is not None and work._log._failure is None:
        return
    if work._log is not None:
        with contextlib.suppress(TailraceError):
            work.log.close()
    work.open()


@contextlib.contextmanager
def small_pieces() -> Iterator[None]:
    """Groups are written in several pieces, and segments have several index entries, though both are small here."""
    with patch.object(active, "_WRITE_BYTES", 1_500), patch.object(index, "INDEX_INTERVAL_BYTES", 2_000):
        yield


@contextlib.contextmanager
def _deaths_are_silent() -> Iterator[None]:
    report = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, Killed):
            report(arguments)

    with patch.object(threading, "excepthook", hook):
        yield


@dataclass(frozen=True, slots=True)
class Kind:
    """What the lives of one kind have in common."""

    deaths: float = 0.0
    """How often a step kills the process."""
    refusals: float = 0.0
    """How often the disk refuses something."""
    sync_every_s: float | None = 0.0

    def live(self, root: str, seed: int) -> Recording:
        """The life that belongs to a seed."""
        config = LogConfig(segment_bytes=SEGMENT_BYTES, sync_every_s=self.sync_every_s)
        return record(root, random_deeds(seed, self), config)


KINDS: Final = {
    "calm": Kind(),
    "dying": Kind(deaths=0.2),
    "refused": Kind(refusals=0.3),
    "unlucky": Kind(deaths=0.1, refusals=0.1),
    "unsynced": Kind(deaths=0.1, refusals=0.1, sync_every_s=None),
}


def random_deeds(seed: int, kind: Kind) -> list[Deed]:
    """A life of about thirty steps with everything in it."""
    rng = random.Random(seed)
    deeds = [Deed(Step("register", ("first",)))]
    batches = 0
    for _ in range(rng.randint(22, 32)):
        name = rng.choice(_STEPS)
        if name == "append_soon" and kind.sync_every_s is None:
            name = "sync"  # there is no thread that syncs meanwhile
        steps = [Step(name)]
        match name:
            case "append":
                steps = [Step(name, (rng.randint(1, 5), rng.choice([0, 0, 300, 1_500])))]
            case "append_soon":
                steps = [Step(name, (rng.randint(2, 3), rng.randint(1, 2)))]
            case "abandon":
                steps = [Step(name, (rng.randint(1, 5),))]
            case "publish":
                batches += 1
                batch_id = f"batch{batches}"
                steps = [Step("stage", (batch_id, rng.randint(1, 2), rng.randint(1, 3))), Step(name, (batch_id,))]
                steps += [Step(name, (batch_id,))] * rng.randint(0, 1)
            case "register" | "delete":
                steps = [Step(name, (rng.choice(_CONSUMERS),))]
            case "commit":
                where = rng.choice(["", "", "alpha", "keyed"])
                steps = [Step(name, (rng.choice(_CONSUMERS), rng.randint(40, 100), where))]
            case "compact":
                steps = [Step("roll"), Step(name, (rng.choice(["namespace", "key"]),))]
            case _:
                pass
        deeds += [_mishap(rng, kind, step) for step in steps]
    return deeds


_CONSUMERS: Final = ("first", "second")
_STEPS: Final = (
    *("append",) * 8,
    *("append_soon",) * 3,
    *("commit",) * 5,
    *("publish",) * 2,
    *("compact",) * 2,
    *("retain",) * 2,
    *("abandon", "roll", "register", "register", "delete", "compact_offsets", "reopen"),
)
_REFUSALS: Final = {
    "append": (
        Refuse(Moment(1, "write", ".log"), errno.ENOSPC),
        Refuse(Moment(2, "write", ".log"), errno.ENOSPC),
        Refuse(Moment(1, "write", ".index"), errno.ENOSPC),
        Refuse(Moment(1, "write", "head"), errno.ENOSPC),
        Refuse(Moment(1, "create", ".log"), errno.ENOSPC),
        Refuse(Moment(1, "sync", ".log"), errno.EIO),
        Refuse(Moment(1, "sync_directory", LOG), errno.EIO),
    ),
    "publish": (Refuse(Moment(1, "write", ".index"), errno.ENOSPC), Refuse(Moment(1, "sync", ".log"), errno.EIO)),
    "roll": (
        Refuse(Moment(2, "write", ".tmp"), errno.ENOSPC),
        Refuse(Moment(1, "create", ".log"), errno.ENOSPC),
        Refuse(Moment(1, "rename", ".index"), errno.EIO),
    ),
    "commit": (Refuse(Moment(2, "write", ".log"), errno.ENOSPC), Refuse(Moment(2, "sync", ".log"), errno.EIO)),
    "compact": (
        Refuse(Moment(1, "write", ".tmp"), errno.ENOSPC),
        Refuse(Moment(1, "sync", ".tmp"), errno.EIO),
        Refuse(Moment(1, "rename", ".log"), errno.EIO),
    ),
    "retain": (Refuse(Moment(2, "remove", ".log"), errno.EIO), Refuse(Moment(1, "sync_directory", LOG), errno.EIO)),
}


def _mishap(rng: random.Random, kind: Kind, step: Step) -> Deed:
    """Now and then the process dies, or the disk refuses something."""
    chance = rng.random()
    if chance < kind.deaths:
        return Deed(step, Die(Moment(rng.randint(1, 12)), afterwards=rng.random() < 0.5))
    if chance < kind.deaths + kind.refusals and step.name in _REFUSALS:
        return Deed(step, rng.choice(_REFUSALS[step.name]))
    return Deed(step)
