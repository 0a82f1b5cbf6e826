"""Processes are killed without warning, again and again on the same log, while readers watch from outside."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tailrace.log.commitlog import LogConfig
from tailrace.log.segment import list_segments
from tests.crash.children import (
    DEADLINE_S,
    Child,
    Sight,
    append_for_ever,
    look_again_and_again,
    maintain_for_ever,
    tail_for_ever,
    work_for_ever,
)
from tests.crash.ledger import LOG, Expected, Seen, check, explaining, offsets_of
from tests.crash.recording import SEGMENT_BYTES, small_pieces

pytestmark = pytest.mark.crash

CONFIG: Final = LogConfig(segment_bytes=SEGMENT_BYTES)
KILLS: Final = 20
LONG_KILLS: Final = 500
NOTES_MAX: Final = 40
"""A writer is killed after at most so many things it said: each is an attempt, or an acknowledgement."""
MAINTENANCE_KILLS: Final = 25


@dataclass(slots=True)
class History:
    """Everything that was ever certain."""

    rows: dict[int, Seen] = field(default_factory=dict)
    ends: set[int] = field(default_factory=lambda: {0})
    """Where groups end."""
    removed: set[int] = field(default_factory=set)
    """What compaction has removed, or may have."""

    def learn(self, expected: Expected) -> None:
        for group in reversed(expected.groups):
            if group.end in self.ends:
                break
            self.ends.add(group.end)
            for offset, row in enumerate(group.rows, group.first):
                self.rows[offset] = Seen(offset, row.namespace, row.number)
        self.removed.update(expected.gone, *expected.going)

    def check(self, sight: Sight, *, whole: bool) -> None:
        """A reader saw only what is certain, all of it, and (when it looked so) only whole groups."""
        assert [self.rows.get(seen.offset) for seen in sight.found] == sight.found, f"seen, but not kept: {sight}"
        missed = set(range(sight.start, sight.end)) - {seen.offset for seen in sight.found} - self.removed
        assert not missed, f"not seen: {missed} in {sight}"
        assert not whole or {sight.start, sight.end} <= self.ends, f"half a group seen: {sight}"


class Watcher:
    """Listens to a reader in another process."""

    def __init__(self, function: Callable[..., None], directory: Path) -> None:
        self._child = Child(function, str(directory))
        self._has_more = threading.Condition()
        self.sights: list[Sight] = []
        self._is_over = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_for(self, end: int) -> None:
        """Return when it has read up to an offset."""
        with self._has_more:
            is_there = self._has_more.wait_for(lambda: self._is_over or self._reached() >= end, DEADLINE_S)
            assert is_there and not self._is_over, f"the reader stopped at {self._reached()} before it came to {end}"

    def close(self) -> None:
        self._child.kill()
        self._listener.join(DEADLINE_S)
        self._child.__exit__()

    def _reached(self) -> int:
        return self.sights[-1].end if self.sights else 0

    def _listen(self) -> None:
        for sight in iter(self._child.hear_in_time, None):
            with self._has_more:
                self.sights.append(sight)
                self._has_more.notify_all()
        with self._has_more:
            self._is_over = True
            self._has_more.notify_all()


@contextmanager
def watching(function: Callable[..., None], directory: Path) -> Iterator[Watcher]:
    watcher = Watcher(function, directory)
    try:
        yield watcher
    finally:
        watcher.close()


def kill_writers(log: Path, seed: int, kills: int) -> None:
    rng = random.Random(seed)
    history = History()
    with small_pieces():
        expected = check(str(log), Expected(), config=CONFIG)  # so that there is something to watch
        history.learn(expected)
        with ExitStack() as stack:
            watchers = [stack.enter_context(watching(read, log)) for read in (look_again_and_again, tail_for_ever)]
            for kill in range(kills):
                said = notes_until_killed(log, expected, rng.randint(0, 1 << 30), rng.randint(1, NOTES_MAX))
                with explaining(f"at kill {kill} of {kills} with seed {seed}"):
                    for note in said:
                        history.learn(note)
                    expected = check(str(log), said[-1] if said else expected, config=CONFIG, killed=True)
                    history.learn(expected)
            for watcher in watchers:
                watcher.wait_for(expected.end)
        for watcher, whole in zip(watchers, (True, False), strict=True):
            for sight in watcher.sights:
                history.check(sight, whole=whole)


def notes_until_killed(log: Path, expected: Expected, seed: int, notes: int) -> list[Any]:
    """What a writer said until it was killed, which is done when it has said so much."""
    with Child(work_for_ever, str(log), expected, seed, CONFIG) as child:
        said = [child.hear() for _ in range(notes)]
        child.kill()
        assert None not in said, "the writer ended by itself"
        return said + child.rest()


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    kill_writers(tmp_path / LOG, seed=1, kills=KILLS)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 5))
def test_nothing_acknowledged_is_lost_in_the_long_run(tmp_path: Path, seed: int) -> None:
    kill_writers(tmp_path / LOG, seed=seed, kills=LONG_KILLS)


def test_maintenance_is_killed_beside_a_writer(tmp_path: Path) -> None:
    """Whoever compacts or removes may die at any moment; the writer goes on, and only what nobody needs is gone."""
    log = tmp_path / LOG
    rng = random.Random(1)
    with Child(append_for_ever, str(log), 1, CONFIG) as writer:
        said = [writer.hear() for _ in range(40)]
        for _ in range(MAINTENANCE_KILLS):
            with Child(maintain_for_ever, str(log)) as maintainer:
                for _ in range(rng.randint(0, 3)):
                    assert maintainer.hear() is not None, "maintenance ended by itself"
                said += [writer.hear() for _ in range(rng.randint(1, 10))]
        writer.kill()
        said += writer.rest()
    assert None not in said, "the writer ended by itself"
    expected = said[-1]
    delivered = max(positions.get("", -1) for positions in expected.consumers["one"].positions)
    removable = [offset for offset in offsets_of(expected.groups) if offset <= delivered]
    beginnings = tuple(base for base in list_segments(str(log)) if base <= delivered + 1)
    assert beginnings[0] > 0, "nothing was removed"
    with small_pieces():
        check(
            str(log),
            replace(expected, going=tuple(frozenset([offset]) for offset in removable), oldest=beginnings),
            config=CONFIG,
            killed=True,
        )
