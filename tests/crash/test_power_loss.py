"""Power is cut at any moment, and the disk keeps what it likes of all that was not synced."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from tailrace.log import head
from tailrace.log.commitlog import CommitLog
from tests.crash.fates import RandomFates
from tests.crash.ledger import LOG, check
from tests.crash.recording import KINDS, Recording, small_pieces
from tests.crash.simdisk import HastyDisk, Record, RecordingDisk, Tree, image, store

pytestmark = pytest.mark.crash

LIVES: Final = 8
"""How many lives of each kind are looked at; each has some three hundred moments at which power can be cut."""
EXAMPLES: Final = 100
LONG_LIVES: Final = 100
LONG_EXAMPLES: Final = 4_000

chances = st.randoms(use_true_random=False)
"""Hypothesis decides what the disk keeps, so that it finds the simplest loss that does harm."""
moments = st.floats(0, 1)
"""When power is cut, as a part of a life."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("power")


@cache
def live(place: Path, kind: str, seed: int) -> Recording:
    """A life is lived once, and then looked at again and again."""
    root = place / f"{kind}{seed}"
    root.mkdir()
    try:
        return KINDS[kind].live(str(root), seed)
    finally:
        shutil.rmtree(root)


@contextmanager
def on_disk(place: Path, tree: Tree) -> Iterator[str]:
    """A directory that holds a tree."""
    root = place / "image"
    store(tree, str(root))
    try:
        yield str(root)
    finally:
        shutil.rmtree(root)


def cut_power(place: Path, kind: str, seed: int, moment: float, chance: random.Random) -> None:
    life = live(place, kind, seed)
    cut = round(moment * len(life.record.ops))
    note(f"kind {kind}, seed {seed}, power is cut after operation {cut}:\n{life.story(cut)}")
    with on_disk(place, image(life.record, cut, RandomFates(chance))) as root, small_pieces():
        check(os.path.join(root, LOG), life.expected_at(cut), config=life.config, disk=HastyDisk())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, LIVES - 1), moment=moments, chance=chances)
def test_nothing_acknowledged_is_lost(place: Path, kind: str, seed: int, moment: float, chance: random.Random) -> None:
    cut_power(place, kind, seed, moment, chance)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=LONG_EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(LIVES, LIVES + LONG_LIVES - 1), moment=moments, chance=chances)
def test_nothing_acknowledged_is_lost_in_many_lives(
    place: Path, kind: str, seed: int, moment: float, chance: random.Random
) -> None:
    cut_power(place, kind, seed, moment, chance)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(list(KINDS)),
    seed=st.integers(0, LIVES - 1),
    moment=moments,
    chance=chances,
    content=st.binary(max_size=64) | st.none(),
)
def test_the_head_file_is_not_needed(
    place: Path, kind: str, seed: int, moment: float, chance: random.Random, content: bytes | None
) -> None:
    """Rubbish in its place, or nothing."""
    life = live(place, kind, seed)
    cut = round(moment * len(life.record.ops))
    expected = life.expected_at(cut)
    tree = image(life.record, cut, RandomFates(chance)).get(LOG)
    assume(isinstance(tree, dict))
    if isinstance(tree, dict):
        tree.pop(head.NAME, None)
        tree |= {} if content is None else {head.NAME: content}
        note(f"kind {kind}, seed {seed}, power is cut after operation {cut}:\n{life.story(cut)}")
        with on_disk(place, {LOG: tree}) as root, small_pieces():
            check(os.path.join(root, LOG), expected, config=life.config, disk=HastyDisk())


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(list(KINDS)), seed=st.integers(0, LIVES - 1), moment=moments, again=moments, chance=chances)
def test_power_is_cut_again_during_recovery(
    place: Path, kind: str, seed: int, moment: float, again: float, chance: random.Random
) -> None:
    """The second cut must leave no more than the first allowed, until the log has been opened."""
    life = live(place, kind, seed)
    cut = round(moment * len(life.record.ops))
    expected = life.expected_at(cut)
    tree = image(life.record, cut, RandomFates(chance))
    recovery = Record.of(tree)
    before = len(recovery.ops)
    with on_disk(place, tree) as root, small_pieces():
        CommitLog.open(os.path.join(root, LOG), life.config, disk=RecordingDisk(root, recovery)).close()
    second = before + round(again * (len(recovery.ops) - before))
    note(f"kind {kind}, seed {seed}, power is cut after operation {cut}, then after {second - before} of recovery")
    with on_disk(place, image(recovery, second, RandomFates(chance))) as root, small_pieces():
        check(os.path.join(root, LOG), expected, config=life.config, disk=HastyDisk())
