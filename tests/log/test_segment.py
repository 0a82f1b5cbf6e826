"""Segments: frames are found one after the other, whatever their size, and nothing is given out that is not whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.limits import KIB
from tailrace.log.frame import HEAD_BYTES_MIN
from tailrace.log.segment import FrameFile, Segment, list_segments, segment_name
from tailrace.message import Offset
from tests.log.batches import bulky, frame, numbered
from tests.log.refusals import refused


def write(directory: Path, *frames: bytes) -> str:
    path = directory / segment_name(0)
    path.write_bytes(b"".join(frames))
    return str(path)


def test_name_is_the_first_offset() -> None:
    assert segment_name(0) == "00000000000000000000.log"
    assert segment_name(2**64 - 1) == "18446744073709551615.log"


def test_segments_are_listed_in_order_and_strangers_are_not(tmp_path: Path) -> None:
    for name in (
        "00000000000000000030.log",
        "00000000000000000004.log",
        "00000000000000000004.index",
        "00000000000000000005.log.77.tmp",
        "0000000000000000006.log",
        "000000000000000000007.log",
        "0000000000000000000x.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٩.log",
        "head",
    ):
        (tmp_path / name).touch()
    assert list_segments(str(tmp_path)) == [4, 30]


@given(sizes=st.lists(st.sampled_from([0, 1, 60 * KIB, 64 * KIB - 400, 64 * KIB, 65 * KIB, 200 * KIB]), max_size=8))
def test_frames_of_any_size_are_walked(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    """The walk reads 64 KiB at a time, so heads and bodies lie across its borders in every way."""
    frames = [frame(bulky(at, size), at, closes=at % 2 == 0) for at, size in enumerate(sizes)]
    path = write(tmp_path_factory.mktemp("segment"), *frames)
    with FrameFile(path) as file:
        heads, whole = list(file.heads()), list(file.frames())
        assert [located.head for located in heads] == [located.head for located in whole]
        for at, located in enumerate(whole):
            assert located.position == sum(map(len, frames[:at]))
            assert located.end == sum(map(len, frames[: at + 1]))
            assert bytes(located.body) == frames[at][located.head.head_bytes :]
            assert file.body_of(heads[at]) == located.body
            assert file.head_at(located.position).head == located.head


def test_head_longer_than_a_piece_is_read(tmp_path: Path) -> None:
    batch_ids = tuple(f"batch-{number:06d}" for number in range(20_000))
    long = frame(numbered(1), 0, batch_ids=batch_ids)
    path = write(tmp_path, long, frame(numbered(2), 1))
    with FrameFile(path) as file:
        first, second = file.frames()
        assert file.head_at(0).head == first.head
    assert first.head.head_bytes > 128 * KIB
    assert first.head.batch_ids == batch_ids
    assert (second.position, second.head.offset) == (len(long), 1)


def test_reads_that_return_less_than_was_asked_for_are_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, *(frame(numbered(at), at) for at in range(3)))
    pread = os.pread
    with FrameFile(path) as file:
        expected = list(file.frames())
        monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 7), at))
        assert list(file.frames()) == expected


def test_single_head_costs_about_its_own_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who jumps from one frame to another pays for what it wants, not for what stands around it."""
    path = write(tmp_path, *(frame(numbered(at), at) for at in range(500)))
    pread = os.pread
    asked: list[int] = []
    with FrameFile(path) as file:
        position = list(file.heads())[250].position

        def counted(fd: int, size: int, at: int) -> bytes:
            asked.append(size)
            return pread(fd, size, at)

        monkeypatch.setattr(os, "pread", counted)
        located = file.head_at(position)
        file.body_of(located)
    assert sum(asked) <= located.head.frame_bytes + 256


def test_walk_within_bounds_stays_there(tmp_path: Path) -> None:
    frames = [frame(numbered(at), at) for at in range(4)]
    size = len(frames[0])
    with FrameFile(write(tmp_path, *frames)) as file:
        assert [located.head.offset for located in file.frames(size, 3 * size)] == [1, 2]
        assert list(file.frames(4 * size)) == []
        with refused("log.corrupt", saying=f"byte {2 * size}"):
            list(file.frames(0, 3 * size - 1))


def test_file_cut_inside_a_frame_gives_the_whole_ones_and_then_says_where(tmp_path: Path) -> None:
    frames = [frame(numbered(at), at) for at in range(2)]
    whole = b"".join(frames)
    for size in range(len(frames[0]) + 1, len(whole)):
        with FrameFile(write(tmp_path, whole[:size])) as file:
            for walk in (file.heads(), file.frames()):
                assert next(walk).head.offset == 0
                with refused("log.corrupt") as refusal:
                    next(walk)
                assert refusal.value.place is not None
                assert (refusal.value.place.file, refusal.value.place.byte) == (segment_name(0), len(frames[0]))


def test_flipped_bit_in_a_body_is_refused_where_the_body_is_read(tmp_path: Path) -> None:
    raw = bytearray(frame(numbered(1), 5))
    raw[-1] ^= 1
    with FrameFile(write(tmp_path, bytes(raw))) as file:
        (located,) = file.heads()
        with refused("log.corrupt", saying="checksum") as refusal:
            list(file.frames())
        with refused("log.corrupt", saying="checksum"):
            file.body_of(located)
    assert refusal.value.place is not None
    assert (refusal.value.place.byte, refusal.value.place.offset) == (0, 5)


def test_position_that_is_no_frame_is_refused(tmp_path: Path) -> None:
    one = frame(numbered(1), 0)
    with FrameFile(write(tmp_path, one, one)) as file:
        for position in range(1, HEAD_BYTES_MIN):
            with pytest.raises(TailraceError):
                file.head_at(position)
        with refused("log.corrupt"):
            file.head_at(2 * len(one))


def test_open_segment_stays_readable_when_it_is_replaced_and_removed(tmp_path: Path) -> None:
    path = write(tmp_path, frame(numbered(1), 0), frame(numbered(2), 1))
    with Segment(str(tmp_path), Offset(0)) as segment:
        draft = tmp_path / "draft"
        draft.write_bytes(frame(numbered(9), 0))
        os.replace(draft, path)
        assert [located.head.offset for located in segment.frames()] == [0, 1]
        os.unlink(path)
        assert [located.head.offset for located in segment.heads()] == [0, 1]


def test_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(frame(numbered(1), 0))
    (tmp_path / segment_name(0)).symlink_to(elsewhere)
    with pytest.raises(OSError, match=segment_name(0)):
        Segment(str(tmp_path), Offset(0))
