"""A crash before and after every disk operation of what replaces, removes or begins files: opening the log gives
exactly the old state or the new one, nothing is left lying about, and readers notice nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tailrace.log.commitlog import LogConfig
from tailrace.log.reader import LogReader
from tests.crash.fates import DataOnly, LoseAll, NamesOnly
from tests.crash.ledger import LOG, Expected, Seen, check, look, seen_at, settle
from tests.crash.recording import SEGMENT_BYTES, Deed, life, record_death, small_pieces, step
from tests.crash.simdisk import Die, Fates, HastyDisk, Moment, image, store

pytestmark = pytest.mark.crash

CONFIG: Final = LogConfig(segment_bytes=SEGMENT_BYTES)
BEFORE: Final = life(
    *("register one", "append 3", "append 2 600", "roll", "append 3", "roll", "append 5", "roll", "append 2"),
    *("commit one 60", "commit one 95"),
)
STEPS: Final = {
    "compaction": "compact namespace",
    "compaction by key": "compact key",
    "retention": "retain",
    "roll": "roll",
    "offset log compaction": "compact_offsets",
    "offset flush": "commit one 100 alpha",
    "registration": "register two",
    "deletion": "delete one",
    "publication": "publish batch",
}
NEVER: Final = Die(Moment(10_000))
FATES: Final[dict[str, Fates]] = {
    "all lost": LoseAll(),
    "names without data": NamesOnly(),
    "data without names": DataOnly(),
}


def deeds_before(name: str) -> tuple[Deed, ...]:
    return (*BEFORE, Deed(step("stage batch 2 2"))) if name == "publication" else BEFORE


@pytest.mark.parametrize("name", STEPS)
def test_a_death_leaves_the_old_or_the_new(tmp_path: Path, name: str) -> None:
    """The process dies before the first operation, after it and so before the second, and so on to the end."""
    for number in itertools.count(1):
        root = tmp_path / f"death{number}"
        root.mkdir()
        recording, has_died = record_death(str(root), deeds_before(name), step(STEPS[name]), Die(Moment(number)))
        with small_pieces():
            check(str(root / LOG), recording.expectations[-1], config=CONFIG, disk=HastyDisk(), killed=True)
        if not has_died:
            assert number > 2, f"{name} has hardly an operation in which to die"
            return


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("kept", FATES)
def test_a_power_cut_leaves_the_old_or_the_new(tmp_path: Path, name: str, kept: str) -> None:
    """Power is cut after each operation."""
    (tmp_path / "work").mkdir()
    recording, _ = record_death(str(tmp_path / "work"), deeds_before(name), step(STEPS[name]), NEVER)
    first, _ = recording.deeds[-1]
    for cut in range(first, len(recording.record.ops) + 1):
        root = tmp_path / f"cut{cut}"
        store(image(recording.record, cut, FATES[kept]), str(root))
        with small_pieces():
            check(str(root / LOG), recording.expected_at(cut), config=CONFIG, disk=HastyDisk())


@pytest.mark.parametrize("name", ["compaction", "compaction by key", "retention", "roll"])
def test_readers_notice_nothing(tmp_path: Path, name: str) -> None:
    """At every operation one reader goes a message further, and a new one reads everything."""
    log = str(tmp_path / LOG)
    followed: list[Seen] = []
    followers: list[Iterator[Seen]] = []
    states: list[list[Seen]] = []

    def on_begin(expected: Expected) -> None:
        if not followers:
            followers.append(follow(log))
        followed.extend(found for _, found in zip(range(2), followers[0], strict=False))
        settle(log, expected, LogReader(log).next_offset, killed=True)
        states.append(look(log))

    _, has_died = record_death(str(tmp_path), BEFORE, step(STEPS[name]), NEVER, on_begin)
    followed.extend(followers[0])
    assert not has_died
    assert followed == sorted(followed)
    assert len(states) > 5
    assert (states[0] != look(log)) == (name != "roll"), "nothing was removed"
    assert set(look(log)) <= set(followed), "a reader missed what is still there"


def follow(log: str) -> Iterator[Seen]:
    return (seen_at(entry.offset, entry.message) for entry in LogReader(log).entries())
