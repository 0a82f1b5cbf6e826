"""The power-loss check has teeth: with a sync or an order taken away it finds the harm that this does."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from tailrace.log import active, commitlog, frame, recovery, retention
from tailrace.log.active import ActiveSegment
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.consumers import Consumers
from tailrace.log.head import LogHead
from tailrace.log.offsets import OffsetLog
from tailrace.log.rewriting import SegmentDraft
from tailrace.log.segment import FrameFile
from tailrace.log.staging import Staging
from tests.crash import recording
from tests.crash.fates import DataOnly, LoseAll, NamesOnly, RandomFates
from tests.crash.ledger import LOG, Violation, check
from tests.crash.recording import SEGMENT_BYTES, Deed, Recording, life, record, small_pieces, step
from tests.crash.simdisk import Die, Fates, HastyDisk, Moment, RecordingDisk, Refuse, image, store

pytestmark = pytest.mark.crash

CUTS: Final = 60
"""In a sound life power is cut at so many moments; the long test does it at every one."""


LIVES: Final = {
    "everything": life(
        *("register one", "append 3", "append 2 600", "roll", "append 3", "roll", "append 2", "roll"),
        *("stage batch 1 3", "publish batch", "roll", "commit one 70", "compact_offsets", "commit one 90"),
        *("compact", "append 2", "retain", "append 3"),
    ),
    "appends": life("append 5", "append 5"),
    "a long message": life("append 1 1500"),
    "a consumer in a hurry": life("register one", "append 3", "sync", "append 3", "commit one 100", "append 3"),
    "staging": life("stage batch 1 3", "publish batch", "append 1"),
    "compaction": life("register one", "append 3", "roll", "append 3", "commit one 90", "compact", "append 1"),
    "bursts": life("append 1", "append_soon 3 2", "append_soon 3 1"),
    "an abandoned group": life("append 2", "abandon 5", "roll", "append 2"),
    "a failed sync": life("append 2", Deed(step("append 3"), Refuse(Moment(1, "sync", ".log"), errno.EIO)), "append 2"),
    "a death in a roll": life(
        "append 2", Deed(step("roll"), Die(Moment(1, "create", ".log"), afterwards=True)), "append 2"
    ),
    "a death in a flush": life(
        *("register one", "append 3"),
        Deed(step("commit one 90"), Die(Moment(1, "write", ".log"), afterwards=True)),
        *("commit one 90", "append 1"),
    ),
    "a death in a flush before retention": life(
        *("register one", "append 3", "roll", "append 2"),
        Deed(step("commit one 90"), Die(Moment(2, "write", ".log"), afterwards=True)),
        *("retain", "append 1"),
    ),
}


@dataclass(frozen=True, slots=True)
class Mutation:
    """A way to break the log, while it works or while it recovers, and a life in which that shows."""

    breaks: Callable[[], AbstractContextManager[object]]
    life: str = "everything"
    in_recovery: bool = False
    sync_every_s: float | None = 0.0
    chances: int = 2
    """What chance decides is tried so often for each moment at which power is cut."""


def disk_without(**methods: Callable[..., Any]) -> AbstractContextManager[object]:
    """The log works on a disk some of whose methods do something else."""
    return patch.object(recording, "RecordingDisk", type("BrokenDisk", (RecordingDisk,), methods))


def without_sync(of: str) -> AbstractContextManager[object]:
    """Files with this in their path are not synced."""

    def sync(self: RecordingDisk, fd: int) -> None:
        if of not in self._file(fd)[1]:
            RecordingDisk.sync(self, fd)

    return disk_without(sync=sync)


@contextlib.contextmanager
def unsynced_in(owner: Any, name: str) -> Iterator[None]:
    """One method syncs nothing."""
    method = getattr(owner, name)
    is_within = False

    def sync(self: RecordingDisk, fd: int) -> None:
        if not is_within:
            RecordingDisk.sync(self, fd)

    def sync_directory(self: RecordingDisk, path: str) -> None:
        if not is_within:
            RecordingDisk.sync_directory(self, path)

    @functools.wraps(method)
    def mutant(*arguments: Any, **named: Any) -> Any:
        nonlocal is_within
        is_within = True
        try:
            return method(*arguments, **named)
        finally:
            is_within = False

    with disk_without(sync=sync, sync_directory=sync_directory), patch.object(owner, name, mutant):
        yield


def acknowledging_before_the_sync() -> AbstractContextManager[object]:
    def make_durable(self: CommitLog, end: int) -> None:
        with self._syncing:
            self._durable = self._active.end
            self._publish(self._durable)

    return patch.object(CommitLog, "_make_durable", make_durable)


def swapping_in_two_steps() -> AbstractContextManager[object]:
    def rename(self: RecordingDisk, old: str, new: str) -> None:
        if new.endswith(".log") and os.path.exists(new):
            self.remove(new)
        RecordingDisk.rename(self, old, new)

    return disk_without(rename=rename)


def removing_the_newest_first() -> AbstractContextManager[object]:
    plan = retention.plan
    return patch.object(retention, "plan", lambda *arguments: plan(*arguments)[::-1])


def closing_every_frame() -> AbstractContextManager[object]:
    place_head = frame.place_head
    return patch.object(
        active, "place_head", lambda *given, **named: place_head(*given, **{**named, "closes_group": True})
    )


def discarding_before_publishing() -> AbstractContextManager[object]:
    frames = Staging.frames

    def mutant(self: Staging, batch_id: str, staged: Any) -> Iterator[Any]:
        yield from list(frames(self, batch_id, staged))
        self.discard(batch_id)

    return patch.object(Staging, "frames", mutant)


def vouching_too_early() -> AbstractContextManager[object]:
    """Each frame says that everything before it is durable."""
    place_head = frame.place_head

    def mutant(head: Any, **named: Any) -> Any:
        return place_head(head, **{**named, "durable": named["offset"]})

    return patch.object(active, "place_head", mutant)


def trusting_the_head() -> AbstractContextManager[object]:
    """What the head file does not vouch for is taken for torn."""
    scan = recovery.scan

    def mutant(segment: Any, head: LogHead | None) -> Any:
        tail = scan(segment, head)
        if head is not None and head.base == segment.base and tail.size > head.durable:
            tail.size, tail.next_offset = head.durable, head.next_offset
        return tail

    return patch.object(recovery, "scan", mutant)


def nothing(*_: object) -> None:
    pass


MUTATIONS: Final = {
    "sync does nothing": Mutation(lambda: disk_without(sync=nothing)),
    "sync_directory does nothing": Mutation(lambda: disk_without(sync_directory=nothing)),
    "segments are not synced": Mutation(lambda: without_sync(f"{LOG}/0")),
    "offset logs are not synced": Mutation(lambda: without_sync("__consumer_offsets")),
    "a new file is in place before it is synced": Mutation(lambda: without_sync(".tmp")),
    "appends are acknowledged before the sync": Mutation(acknowledging_before_the_sync),
    "the entry of a new segment is not synced": Mutation(lambda: unsynced_in(ActiveSegment, "create")),
    "the entry of a new consumer is not synced": Mutation(lambda: unsynced_in(Consumers, "register")),
    "compaction swaps before the draft is synced": Mutation(lambda: unsynced_in(SegmentDraft, "finish")),
    "compaction swaps in two steps": Mutation(swapping_in_two_steps, "compaction"),
    "retention removes the newest first": Mutation(removing_the_newest_first),
    "every frame closes its group": Mutation(closing_every_frame, "appends"),
    "staged files are discarded before they are published": Mutation(discarding_before_publishing, "staging"),
    "frames vouch for what is not synced": Mutation(vouching_too_early, "bursts"),
    "an abandoned group is cut but not synced": Mutation(
        lambda: unsynced_in(ActiveSegment, "abandon_group"), "an abandoned group"
    ),
    "retention trusts offsets that are not on disk": Mutation(
        lambda: patch.object(Consumers, "sync_offsets", nothing), "a death in a flush before retention"
    ),
    "offset logs are taken over as they are": Mutation(
        lambda: patch.object(OffsetLog, "_settle", nothing), "a death in a flush"
    ),
    "recovery does not write the tail anew": Mutation(
        lambda: patch.object(recovery, "_settle", nothing), "a failed sync"
    ),
    "recovery does not sync the directory": Mutation(
        lambda: unsynced_in(commitlog, "open_active"), "a death in a roll"
    ),
    "recovery leaves consumers ahead of the log": Mutation(
        lambda: patch.object(Consumers, "take_back", lambda *_: []),
        "a consumer in a hurry",
        in_recovery=True,
        sync_every_s=None,
    ),
    "recovery trusts the head file alone": Mutation(trusting_the_head, in_recovery=True),
    "recovery does not look at checksums": Mutation(
        lambda: patch.object(FrameFile, "_check_body", nothing), "a long message", in_recovery=True, chances=40
    ),
}


def find_harm(place: Path, mutation: Mutation, cuts_max: int | None = None) -> str | None:
    """Cut power at one moment of a life after the other until the check finds a violation; None when it finds none."""
    while_working = contextlib.nullcontext() if mutation.in_recovery else mutation.breaks()
    (place / "life").mkdir()
    with while_working:
        config = LogConfig(segment_bytes=SEGMENT_BYTES, sync_every_s=mutation.sync_every_s)
        lived = record(str(place / "life"), LIVES[mutation.life], config)
    rng = random.Random(1)
    cuts = list(range(len(lived.record.ops) + 1))
    rng.shuffle(cuts)
    for cut in cuts[:cuts_max]:
        all_fates: list[Fates] = [
            LoseAll(),
            NamesOnly(),
            DataOnly(),
            *(RandomFates(rng) for _ in range(mutation.chances)),
        ]
        for number, fates in enumerate(all_fates):
            left = place / f"left{cut}-{number}"
            store(image(lived.record, cut, fates), str(left))
            while_recovering = mutation.breaks() if mutation.in_recovery else contextlib.nullcontext()
            violation = _violation(left, lived, cut, while_recovering)
            shutil.rmtree(left)
            if violation is not None:
                return f"{violation}\npower was cut after operation {cut}, fate {number}:\n{lived.story(cut)}"
    return None


def _violation(left: Path, lived: Recording, cut: int, broken: AbstractContextManager[object]) -> str | None:
    try:
        with small_pieces(), broken:
            check(str(left / LOG), lived.expected_at(cut), config=lived.config, disk=HastyDisk())
    except Violation as violation:
        return str(violation)
    return None


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_log_is_found_out(tmp_path: Path, name: str) -> None:
    assert find_harm(tmp_path, MUTATIONS[name]) is not None


@pytest.mark.parametrize("name", LIVES)
def test_a_sound_log_is_not(tmp_path: Path, name: str) -> None:
    assert find_harm(tmp_path, Mutation(contextlib.nullcontext, name, chances=1), CUTS) is None


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LIVES)
def test_a_sound_log_is_not_at_any_moment(tmp_path: Path, name: str) -> None:
    assert find_harm(tmp_path, Mutation(contextlib.nullcontext, name, chances=10)) is None
