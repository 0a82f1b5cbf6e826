"""The table of contents of a sealed segment: it answers for the segment, or it is not believed."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from tailrace.log import contents, index
from tailrace.log.batch import batches_of
from tailrace.log.contents import Contents, Extent, Presence
from tailrace.log.disk import Disk
from tailrace.log.frame import crc32, encode_plain, hole, place_head
from tailrace.log.segment import FrameFile, Located
from tailrace.message import Lsn, Message, Micros, Mode, NodeId, Op
from tests.log.batches import frame
from tests.log.files import every_flip, overwrite


def sample_frames() -> list[bytes]:
    def one(namespace: str, origin: int, lsn: int, timestamp: int, *destinations: str) -> Message:
        return Message(
            Op.INSERT,
            Micros(timestamp),
            namespace,
            {"n": 1},
            origin=NodeId(origin),
            lsn=Lsn(lsn),
            destinations=destinations,
        )

    batches = list(
        batches_of(
            [
                one("a", 1, 10, 50, "x"),
                one("a", 1, 12, 40),
                one("b", 2, 7, 60, "x", "y"),
                one("a", 1, 11, 20),
            ]
        )
    )
    gap = hole(offset=13, span=7, timestamp=99, closes_group=True, batch_ids=("t2", "t3"))
    return [
        frame(batches[0], 10, closes=False),
        frame(batches[1], 12, closes=True, batch_ids=("t1",)),
        place_head(gap, offset=13, closes_group=True, batch_ids=("t2", "t3"))[1],
        frame(batches[2], 20, closes=True, batch_ids=("t4",)),
    ]


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "00000000000000000010.log"
    file.write_bytes(b"".join(sample_frames()))
    return str(file)


def walked(path: str) -> list[Located]:
    with FrameFile(path) as file:
        return list(file.heads())


def built(path: str) -> Contents:
    return contents.build(walked(path), 10)


def size_of(path: str) -> int:
    return Path(path).stat().st_size


def test_everything_a_segment_holds_is_noted(path: str) -> None:
    sizes = [len(one) for one in sample_frames()]
    found = built(path)
    assert (found.segment_bytes, found.end, found.ends_plain) == (sum(sizes), 21, False)
    assert (found.frames, found.messages, found.earliest, found.latest) == (4, 4, 20, 60)
    assert found.namespaces == {
        "a": Presence(first=10, last=20, messages=3, bytes=sizes[0] + sizes[3]),
        "b": Presence(first=12, last=12, messages=1, bytes=sizes[1]),
    }
    assert found.origins == {1: (10, 12), 2: (7, 7)}
    assert found.destinations == {"x": array("Q", [0, sizes[0]]), "y": array("Q", [sizes[0]])}
    assert found.batches == {"t1": (10, 13), "t2": (13, 20), "t3": (13, 20), "t4": (20, 21)}


def test_empty_segment_ends_where_it_begins() -> None:
    empty = contents.build([], 10)
    assert empty.extent == Extent(0, empty.extent.end, ends_plain=False)
    assert (empty.end, empty.messages, empty.earliest) == (10, 0, None)


def test_segment_that_ends_with_a_document_says_so(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000010.log"
    file.write_bytes(encode_plain(offset=10, timestamp_s=1, mode=Mode.COPY, op=Op.INSERT, key=b"a", data=b"{}"))
    assert built(str(file)).ends_plain


def test_stored_contents_are_loaded(path: str) -> None:
    sparse = index.build(walked(path))
    contents.store(Disk(), path, built(path), sparse)
    assert contents.load(path, size_of(path)) == built(path)
    assert contents.load_extent(path, size_of(path)) == Extent(
        size_of(path), built(path).extent.end, ends_plain=False, index_crc=crc32(sparse.encode())
    )
    loaded = index.load(path, 10)
    assert loaded is not None
    assert loaded.encode() == sparse.encode()


def test_missing_contents_are_none(path: str) -> None:
    assert contents.load(path, size_of(path)) is None
    assert contents.load_extent(path, size_of(path)) is None


def test_contents_of_a_segment_of_another_length_are_none(path: str) -> None:
    contents.store(Disk(), path, built(path), index.build(walked(path)))
    for size in (0, size_of(path) - 1, size_of(path) + 1):
        assert contents.load(path, size) is None
        assert contents.load_extent(path, size) is None


def test_contents_cut_anywhere_are_none(path: str) -> None:
    contents.store(Disk(), path, built(path), index.build(walked(path)))
    side_file = Path(contents.contents_path(path))
    raw = side_file.read_bytes()
    for size in range(len(raw)):
        overwrite(side_file, raw[:size])
        assert contents.load(path, size_of(path)) is None
    side_file.write_bytes(raw + b"\0")
    assert contents.load(path, size_of(path)) is None


def test_contents_with_any_flipped_bit_are_none(path: str) -> None:
    contents.store(Disk(), path, built(path), index.build(walked(path)))
    side_file = Path(contents.contents_path(path))
    raw = side_file.read_bytes()
    expected = contents.load_extent(path, size_of(path))
    for flipped in every_flip(raw):
        overwrite(side_file, flipped)
        assert contents.load(path, size_of(path)) is None
        assert contents.load_extent(path, size_of(path)) in (None, expected)
