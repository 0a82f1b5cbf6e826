"""The sparse index: where to start walking, or nothing when the file cannot be trusted."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tailrace.limits import INDEX_INTERVAL_BYTES, KIB
from tailrace.log import index
from tailrace.log.disk import Disk
from tailrace.log.frame import parse_head
from tailrace.log.index import ENTRY_BYTES, Index
from tailrace.log.segment import Located
from tailrace.message import Micros, Offset
from tests.log.batches import frame, numbered
from tests.log.files import every_flip, overwrite

HEAD = parse_head(memoryview(frame(numbered(1), 0)), 0, file="", position=0)


def located(offset: int, position: int, timestamp: int, size: int) -> Located:
    head = HEAD._replace(offset=Offset(offset), timestamp=Micros(timestamp), body_bytes=size - HEAD.head_bytes)
    return Located(position, head)


@st.composite
def segments(draw: st.DrawFn) -> list[Located]:
    """Frames of any size with timestamps in any order."""
    sizes = draw(st.lists(st.integers(HEAD.head_bytes, 3 * INDEX_INTERVAL_BYTES), min_size=1, max_size=30))
    base = draw(st.integers(0, 1 << 40))
    frames, position = [], 0
    for at, size in enumerate(sizes):
        frames.append(located(base + at, position, draw(st.integers(0, 50)), size))
        position += size
    return frames


@given(segments())
def test_walk_for_an_offset_starts_at_most_one_interval_before_it(frames: list[Located]) -> None:
    built = index.build(frames)
    for wanted in frames:
        start = built.position_of(wanted.head.offset)
        assert start in {one.position for one in frames}
        assert start <= wanted.position
        assert wanted.position - start < INDEX_INTERVAL_BYTES


@given(segments(), st.integers(0, 51))
def test_walk_for_a_moment_misses_no_frame(frames: list[Located], timestamp: int) -> None:
    start = index.build(frames).position_after(timestamp)
    assert start in {one.position for one in frames}
    assert all(one.head.timestamp < timestamp for one in frames if one.position < start)


@given(segments(), st.integers(0, 51))
def test_walk_for_a_moment_does_not_start_too_early(frames: list[Located], timestamp: int) -> None:
    built = index.build(frames)
    start = built.position_after(timestamp)
    later = [at for at in built.positions if at > start]
    if later:
        assert any(one.head.timestamp >= timestamp for one in frames if one.position < later[0])


def test_first_frame_and_one_for_each_interval_are_noted() -> None:
    frames = [located(at, at * 100 * KIB, 10 - at, 100 * KIB) for at in range(8)]
    built = Index()
    assert [built.note(one) for one in frames] == [True, False, False, True, False, False, True, False]
    assert built.offsets == [0, 3, 6]
    assert built.timestamps == [0, 10, 10]
    assert built.latest == 10


def sample() -> Index:
    return index.build(located(7 + at, at * 200 * KIB, at + 1, 200 * KIB) for at in range(5))


def path_with(directory: Path, raw: bytes) -> str:
    overwrite(directory / "00000000000000000007.index", raw)
    return str(directory / "00000000000000000007.log")


def test_stored_index_is_loaded(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000007.log")
    index.store(Disk(), path, sample())
    loaded = index.load(path, 7)
    assert loaded is not None
    assert (loaded.offsets, loaded.positions, loaded.timestamps) == (
        sample().offsets,
        sample().positions,
        sample().timestamps,
    )
    assert os.listdir(tmp_path) == ["00000000000000000007.index"]


def test_layout_is_the_documented_one() -> None:
    assert sample().encode()[: 2 * ENTRY_BYTES] == bytes.fromhex(
        "0000000000000007"  # offset
        "0000000000000000"  # position
        "0000000000000000"  # the latest timestamp before it
        "8353b66b"  # CRC-32
        "0000000000000009"
        "0000000000064000"
        "0000000000000002"
        "5a76e232"
    )
    assert sample().encode()[-ENTRY_BYTES:] == sample().last_entry()


def test_missing_index_is_none(tmp_path: Path) -> None:
    assert index.load(str(tmp_path / "00000000000000000007.log"), 7) is None


def test_index_cut_anywhere_is_its_whole_entries(tmp_path: Path) -> None:
    """The last entry may be just being written, so what comes before it is still of use."""
    raw = sample().encode()
    for size in range(len(raw)):
        loaded = index.load(path_with(tmp_path, raw[:size]), 7)
        assert loaded is not None
        assert loaded.encode() == raw[: size - size % ENTRY_BYTES]


def test_index_with_any_flipped_bit_is_none(tmp_path: Path) -> None:
    raw = sample().encode()
    for flipped in every_flip(raw):
        assert index.load(path_with(tmp_path, flipped), 7) is None


def test_index_whose_entries_make_no_sense_is_none(tmp_path: Path) -> None:
    raw = sample().encode()
    entries = [raw[at : at + ENTRY_BYTES] for at in range(0, len(raw), ENTRY_BYTES)]
    assert len(entries) == 3
    for wrong in (
        entries[0] + entries[2] + entries[1],
        entries[0] + entries[0],
        entries[1],
        bytes(ENTRY_BYTES),
        entries[0] + bytes(ENTRY_BYTES) + entries[2],
    ):
        assert index.load(path_with(tmp_path, wrong), 7) is None
    assert index.load(path_with(tmp_path, raw), 8) is None


def test_entries_of_frames_that_were_taken_back_are_forgotten() -> None:
    frames = [located(at, at * 200 * KIB, at + 1, 200 * KIB) for at in range(6)]
    built = index.build(frames[:3])
    latest = built.latest
    for one in frames[3:]:
        built.note(one)
    built.forget_from(frames[3].position, latest)
    assert built == index.build(frames[:3])
