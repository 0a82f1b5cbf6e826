"""Recovery: an unacknowledged tail is cut, damage is refused by file, byte and offset, side files are made again.

The sample is one segment of three groups. It is cut at every byte and has every bit of its heads flipped: once while
the head file vouches for all of it, once while it vouches for all but the last group, once without a head file.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.limits import FRAME_BYTES_MAX
from tailrace.log import contents, index
from tailrace.log.batch import batches_of
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.disk import Disk
from tailrace.log.frame import Codec, encode_plain
from tailrace.log.head import HeadWriter, LogHead, head_path, read_head
from tailrace.log.reader import LogReader
from tailrace.log.recovery import Report, recover_active
from tailrace.log.segment import FrameFile, Located, segment_name
from tailrace.log.selection import Selection
from tailrace.log.verification import verify
from tailrace.message import Micros, Mode, Offset, Op
from tests.log.batches import frame, log_numbers, message, number_of, numbered, numbers
from tests.log.files import flipped, overwrite
from tests.log.refusals import refused

NAME: Final = segment_name(0)
DAMAGE: Final = ("log.corrupt", "log.frame_too_long")


class HastyDisk(Disk):
    """Does not wait for the real disk: what is tested here is what recovery makes of what is there."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


@dataclass(frozen=True)
class Sample:
    """A segment of three groups; message number n has offset n."""

    raw: bytes
    frames: list[Located]
    ends: list[int]
    """Where each group ends: bytes."""
    counts: list[Offset]
    """How many messages there are up to the end of each group."""
    index: bytes

    def messages_at(self, position: int) -> int:
        return 0 if position == 0 else self.counts[self.ends.index(position)]

    def last_end(self, size: int) -> int:
        """Where the last group that is whole within so many bytes ends."""
        return max([0, *(end for end in self.ends if end <= size)])

    def group_of(self, position: int) -> int:
        return next(at for at, end in enumerate(self.ends) if position < end)

    def frame_of(self, position: int) -> Located:
        return next(one for one in self.frames if position < one.end)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    directory = tmp_path_factory.mktemp("sample")
    with CommitLog.open(directory) as log:
        log.append([numbered(0)])
        log.append([numbered(1), numbered(2, namespace="shop.users")])
        log.append(batches_of([message(3, "shop.orders", "north")]), batch_id="b")
    with FrameFile(str(directory / NAME)) as file:
        frames = list(file.frames())
    ends = [one.end for one in frames if one.head.closes_group]
    counts = [one.head.end for one in frames if one.head.closes_group]
    assert counts == [1, 3, 4]
    return Sample((directory / NAME).read_bytes(), frames, ends, counts, (directory / f"{0:020d}.index").read_bytes())


class Bench:
    """A directory in which one damaged segment after the other is opened."""

    def __init__(self, directory: Path, sample: Sample) -> None:
        self.directory = directory
        self.sample = sample
        self._case = 0

    def prepare(self, raw: bytes, vouched: int | None) -> None:
        """A segment as a crash may have left it, and a head file that vouches for so many bytes of it."""
        self.directory.mkdir(exist_ok=True)
        overwrite(self.directory / NAME, raw)
        overwrite(self.directory / f"{0:020d}.index", self.sample.index)
        if vouched is None:
            (self.directory / "head").unlink(missing_ok=True)
        else:
            writer = HeadWriter(HastyDisk(), str(self.directory))
            writer.publish(LogHead(Offset(0), vouched, vouched, Offset(self.sample.messages_at(vouched))))
            writer.close()

    def open(self) -> CommitLog:
        return CommitLog.open(self.directory, disk=HastyDisk())

    def recover(self) -> tuple[Report, int]:
        """What opening the log does to its active segment; every eighth time by opening it."""
        self._case += 1
        if self._case % 8 == 0:
            with self.open() as log:
                return log.report, log.next_offset
        report = Report()
        tail = recover_active(HastyDisk(), str(self.directory), Offset(0), read_head(str(self.directory)), report)
        return report, tail.next_offset

    def expect_cut(self, raw: bytes, vouched: int | None, end: int) -> Report:
        """The segment is brought to `end`, every group up to there is right, and the log goes on."""
        self.prepare(raw, vouched)
        count = self.sample.messages_at(end)
        report, next_offset = self.recover()
        if len(raw) == end:
            assert report.cut is None
        else:
            assert report.cut is not None
            assert (report.cut.segment, report.cut.position) == (NAME, end)
            assert (report.cut.cut_bytes, report.cut.next_offset) == (len(raw) - end, count)
        assert next_offset == count
        assert (self.directory / NAME).read_bytes() == self.sample.raw[:end]
        if self._case % 8 == 0:
            with self.open() as log:
                assert log.report.cut is None
                assert log.append([numbered(count)]) == (count, count + 1)
            assert log_numbers(self.directory) == list(range(count + 1))
        return report

    def expect_refusal(self, raw: bytes, vouched: int | None) -> TailraceError:
        """The segment is refused, says where, and is left as it is."""
        self.prepare(raw, vouched)
        with refused(*DAMAGE) as refusal:
            self.recover()
        place = refusal.value.place
        assert place is not None
        assert place.file == NAME
        assert place.byte is not None
        assert place.byte <= len(raw)
        assert place.offset in range(self.sample.counts[-1] + 1)
        assert (self.directory / NAME).read_bytes() == raw
        return refusal.value

    def expect_bad_body(self, raw: bytes, vouched: int, damaged: Located) -> None:
        """Bodies that the head file vouches for are not read when the log is opened, so it is readers who refuse."""
        self.prepare(raw, vouched)
        self.recover()
        seen: list[int] = []
        with refused("log.corrupt", saying="checksum") as refusal:
            for entry in LogReader(self.directory).entries():
                assert entry.offset == number_of(entry)
                seen.append(entry.offset)
        assert seen == list(range(damaged.head.offset))
        place = refusal.value.place
        assert place is not None
        assert (place.file, place.byte, place.offset) == (NAME, damaged.position, damaged.head.offset)


@pytest.fixture
def bench(tmp_path: Path, sample: Sample) -> Bench:
    return Bench(tmp_path / "log", sample)


def head_bits(sample: Sample) -> Iterator[tuple[Located, int]]:
    for one in sample.frames:
        for bit in range(one.position * 8, (one.position + one.head.head_bytes) * 8):
            yield one, bit


def body_bits(sample: Sample) -> Iterator[tuple[Located, int]]:
    """One bit of every byte."""
    for one in sample.frames:
        for byte in range(one.position + one.head.head_bytes, one.end):
            yield one, byte * 8 + byte % 8


class TestAcknowledged:
    """The head file says that every byte was acknowledged, so nothing may be missing (I5)."""

    def test_cut_at_any_byte_is_refused(self, bench: Bench, sample: Sample) -> None:
        for size in range(len(sample.raw)):
            problem = bench.expect_refusal(sample.raw[:size], len(sample.raw))
            assert problem.code == "log.corrupt"
            assert problem.place is not None
            assert problem.place.offset in (sample.frame_of(size).head.offset, sample.frame_of(size - 1).head.offset)

    def test_any_bit_of_a_head_is_refused_where_it_is(self, bench: Bench, sample: Sample) -> None:
        for damaged, bit in head_bits(sample):
            problem = bench.expect_refusal(flipped(sample.raw, bit), len(sample.raw))
            assert problem.place is not None
            assert (problem.place.byte, problem.place.offset) == (damaged.position, damaged.head.offset)

    def test_any_bit_of_a_body_is_refused_where_it_is(self, bench: Bench, sample: Sample) -> None:
        for damaged, bit in body_bits(sample):
            bench.expect_bad_body(flipped(sample.raw, bit), len(sample.raw), damaged)


class TestUnacknowledgedTail:
    """The head file vouches for all but the last group: that one may go, the others may not."""

    def test_cut_inside_the_last_group_takes_it_back(self, bench: Bench, sample: Sample) -> None:
        vouched = sample.ends[1]
        for size in range(vouched, len(sample.raw) + 1):
            bench.expect_cut(sample.raw[:size], vouched, sample.last_end(size))

    def test_cut_before_it_is_refused(self, bench: Bench, sample: Sample) -> None:
        for size in range(0, sample.ends[1], 7):
            bench.expect_refusal(sample.raw[:size], sample.ends[1])

    def test_any_bit_of_its_head_takes_it_back(self, bench: Bench, sample: Sample) -> None:
        vouched = sample.ends[1]
        for damaged, bit in head_bits(sample):
            if damaged.position >= vouched:
                bench.expect_cut(flipped(sample.raw, bit), vouched, vouched)

    def test_any_bit_of_its_body_takes_it_back(self, bench: Bench, sample: Sample) -> None:
        vouched = sample.ends[1]
        for damaged, bit in body_bits(sample):
            if damaged.position >= vouched:
                bench.expect_cut(flipped(sample.raw, bit), vouched, vouched)


class TestNobodyVouches:
    """Without a head file what follows the broken place decides: a whole group there proves damage."""

    def test_cut_at_any_byte_leaves_the_whole_groups(self, bench: Bench, sample: Sample) -> None:
        for size in range(len(sample.raw) + 1):
            bench.expect_cut(sample.raw[:size], None, sample.last_end(size))

    def test_any_bit_of_the_last_group_takes_it_back(self, bench: Bench, sample: Sample) -> None:
        for bits in (head_bits(sample), body_bits(sample)):
            for damaged, bit in bits:
                if sample.group_of(damaged.position) != 2:
                    continue
                raw = flipped(sample.raw, bit)
                claimed = int.from_bytes(raw[damaged.position + 8 : damaged.position + 12])
                if claimed > FRAME_BYTES_MAX:
                    assert bench.expect_refusal(raw, None).code == "log.frame_too_long"
                else:
                    bench.expect_cut(raw, None, sample.ends[1])

    def test_any_bit_of_the_first_group_is_refused(self, bench: Bench, sample: Sample) -> None:
        for bits in (head_bits(sample), body_bits(sample)):
            for damaged, bit in bits:
                if sample.group_of(damaged.position) == 0:
                    problem = bench.expect_refusal(flipped(sample.raw, bit), None)
                    assert problem.place is not None
                    assert (problem.place.byte, problem.place.offset) == (0, 0)

    def test_any_bit_of_the_second_group_is_refused(self, bench: Bench, sample: Sample) -> None:
        """The third group says that the second was durable when it was written."""
        for bits in (head_bits(sample), body_bits(sample)):
            for damaged, bit in bits:
                if sample.group_of(damaged.position) == 1:
                    bench.expect_refusal(flipped(sample.raw, bit), None)

    def test_readers_see_the_same_without_changing_anything(self, bench: Bench, sample: Sample) -> None:
        for size in range(0, len(sample.raw), 5):
            bench.prepare(sample.raw[:size], None)
            assert log_numbers(bench.directory) == list(range(sample.messages_at(sample.last_end(size))))
            assert (bench.directory / NAME).stat().st_size == size


TAILS: Final = [
    pytest.param(lambda raw: bytes(4096), id="zeros"),
    pytest.param(lambda raw: b"\xff" * 4096, id="ones"),
    pytest.param(lambda raw: random.Random(4).randbytes(4096), id="noise"),
    pytest.param(lambda raw: raw[:100], id="an old beginning"),
    pytest.param(lambda raw: b'{"a": 1}\n' * 100, id="text"),
]


@pytest.mark.parametrize("garbage", TAILS)
@pytest.mark.parametrize("is_vouched", [True, False], ids=["vouched", "not vouched"])
def test_garbage_behind_the_last_group_is_cut(
    bench: Bench, sample: Sample, garbage: Callable[[bytes], bytes], is_vouched: bool
) -> None:
    end = len(sample.raw)
    bench.expect_cut(sample.raw + garbage(sample.raw), end if is_vouched else None, end)


@given(st.binary(max_size=300))
@example(bytes(29))
def test_any_bytes_behind_the_last_group_are_cut_or_refused(
    sample: Sample, tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    bench = Bench(tmp_path_factory.mktemp("garbage") / "log", sample)
    bench.prepare(sample.raw + garbage, None)
    try:
        bench.open().close()
    except TailraceError as refusal:
        assert refusal.code in DAMAGE
        return
    assert log_numbers(bench.directory) == [0, 1, 2, 3]


def test_group_without_its_last_frame_is_cut(bench: Bench, sample: Sample) -> None:
    for vouched in (None, sample.ends[0]):
        raw = sample.raw[: sample.frames[1].end]
        report = bench.expect_cut(raw, vouched, sample.ends[0])
        assert report.cut is not None
        assert "in the middle of a commit group" in report.cut.why
        assert not report.is_clean


def test_frame_at_another_offset_is_refused(bench: Bench) -> None:
    """Its checksums are right, but it is not the one that follows."""
    frames = [frame(numbered(0), 0), frame(numbered(1), 1), frame(numbered(2), 3), frame(numbered(3), 4)]
    bench.prepare(b"".join(frames), None)
    with refused("log.corrupt", saying="offset 3 where 2 should follow") as refusal:
        bench.open()
    assert refusal.value.place is not None
    assert (refusal.value.place.byte, refusal.value.place.offset) == (len(frames[0] + frames[1]), 2)


def test_log_goes_on_after_every_kind_of_end(bench: Bench, sample: Sample) -> None:
    """Crash, recover, append, again and again."""
    bench.prepare(sample.raw, None)
    expected = [0, 1, 2, 3]
    for lost in range(1, 200, 13):
        raw = (bench.directory / NAME).read_bytes()
        (bench.directory / NAME).write_bytes(raw + frame(numbered(99), len(expected))[:lost])
        with bench.open() as log:
            assert log.report.cut is not None
            assert log.report.cut.cut_bytes == lost
            log.append([numbered(len(expected))])
        expected.append(len(expected))
        assert log_numbers(bench.directory) == expected
    with bench.open() as log:
        assert log.report.is_clean
    assert verify(bench.directory).problems == []


def test_torn_document_of_transporter_is_cut(tmp_path: Path) -> None:
    """Its own tools refuse such a log for good."""
    documents = [
        encode_plain(offset=at, timestamp_s=at, mode=Mode.COPY, op=Op.INSERT, key=b"a", data=b'{"n": %d}' % at)
        for at in range(3)
    ]
    raw = b"".join(documents)
    for size in range(len(raw) + 1):
        directory = tmp_path / str(size)
        directory.mkdir()
        (directory / NAME).write_bytes(raw[:size])
        whole = size // len(documents[0])
        assert log_numbers(directory) == list(range(whole))
        with CommitLog.open(directory, disk=HastyDisk()) as log:
            assert (log.report.cut is None) is (size % len(documents[0]) == 0)
            log.append([numbered(whole)])
        assert log_numbers(directory) == list(range(whole + 1))


def test_damage_among_documents_of_transporter_is_refused(tmp_path: Path) -> None:
    documents = [
        encode_plain(offset=at, timestamp_s=at, mode=Mode.COPY, op=Op.INSERT, key=b"a", data=b'{"n": %d}' % at)
        for at in range(3)
    ]
    raw = bytearray(b"".join(documents))
    raw[8] = 0xFF
    (tmp_path / NAME).write_bytes(raw)
    with refused(*DAMAGE) as refusal:
        CommitLog.open(tmp_path)
    assert refusal.value.place is not None
    assert (refusal.value.place.byte, refusal.value.place.offset) == (0, 0)


class Segments:
    """A log of four segments, two messages each, for one destination or another and at rising moments."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with CommitLog.open(directory, LogConfig(segment_bytes=1)) as log:
            for at in range(4):
                destination = "north" if at % 2 else "south-" + "x" * at
                first = batches_of([message(2 * at, "shop.orders", destination)])
                log.append([*first, numbered(2 * at + 1, timestamp=100 * at)])

    def path(self, base: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base:020d}{suffix}"

    def assert_read_right(self) -> None:
        assert log_numbers(self.directory) == list(range(8))
        reader = LogReader(self.directory)
        for offset in range(8):
            assert numbers(reader.entries(offset, offset + 1)) == [(offset, offset)]
        north = reader.entries(selection=Selection(destination="north"))
        assert [entry.offset for entry in north] == [2, 6]
        assert [reader.offset_at(Micros(at)) for at in (0, 1, 100, 101, 300, 301)] == [0, 0, 3, 5, 7, 8]


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    return Segments(tmp_path / "log")


def test_missing_segment_in_the_middle_is_refused(segments: Segments) -> None:
    segments.path(4).unlink()
    with refused("log.corrupt", saying="is missing") as refusal:
        CommitLog.open(segments.directory)
    place = refusal.value.place
    assert place is not None
    assert (place.file, place.offset) == (segment_name(2), 4)
    assert place.byte == segments.path(2).stat().st_size
    with refused("log.corrupt", saying="is missing"):
        list(LogReader(segments.directory).entries())
    assert [problem.code for problem in verify(segments.directory).problems] == ["log.corrupt"]


def test_overlapping_segment_is_refused(segments: Segments) -> None:
    shutil.copy(segments.path(2), segments.path(1))
    with refused("log.corrupt"):
        CommitLog.open(segments.directory)


def test_missing_segments_at_the_beginning_are_retention(segments: Segments) -> None:
    for suffix in (".log", ".index", ".toc"):
        segments.path(0, suffix).unlink()
    with CommitLog.open(segments.directory) as log:
        log.append([numbered(8)])
    assert log_numbers(segments.directory) == list(range(2, 9))


@pytest.mark.parametrize("with_contents", [True, False], ids=["with contents", "without"])
def test_sealed_segment_cut_anywhere_is_refused(segments: Segments, with_contents: bool) -> None:
    raw = segments.path(2).read_bytes()
    if not with_contents:
        segments.path(2, ".toc").unlink()
    for size in range(0, len(raw), 11):
        overwrite(segments.path(2), raw[:size])
        with refused("log.corrupt") as refusal:
            CommitLog.open(segments.directory, disk=HastyDisk())
        assert refusal.value.place is not None
        assert refusal.value.place.file == segment_name(2)
        assert refusal.value.place.byte is not None
        assert refusal.value.place.offset in (2, 3, 4)


@pytest.mark.parametrize("with_contents", [True, False], ids=["with contents", "without"])
def test_sealed_segment_with_a_flipped_bit_is_refused_at_the_latest_when_it_is_read(
    segments: Segments, with_contents: bool
) -> None:
    raw = segments.path(2).read_bytes()
    if not with_contents:
        segments.path(2, ".toc").unlink()
    for at in range(0, len(raw), 11):
        overwrite(segments.path(2), flipped(raw, at * 8 + at % 8))
        seen = []
        with refused(*DAMAGE):
            CommitLog.open(segments.directory, disk=HastyDisk()).close()
            for entry in LogReader(segments.directory).entries():
                assert entry.offset == number_of(entry)
                seen.append(entry.offset)
        assert len(seen) < 4


def cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def nothing(raw: bytes) -> bytes:
    return b""


def flip(raw: bytes) -> bytes:
    return flipped(raw, 100)


def noise(raw: bytes) -> bytes:
    return random.Random(len(raw)).randbytes(len(raw))


def longer(raw: bytes) -> bytes:
    return raw + b"\0" * 28


@pytest.mark.parametrize("suffix", [".index", ".toc"])
class TestSideFiles:
    @pytest.mark.parametrize("damage", [None, cut, nothing, flip, noise, longer])
    def test_wrong_ones_are_made_again(
        self, segments: Segments, suffix: str, damage: Callable[[bytes], bytes] | None
    ) -> None:
        path = segments.path(2, suffix)
        right = path.read_bytes()
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage(right))
        segments.assert_read_right()
        assert path.exists() is (damage is not None)
        with CommitLog.open(segments.directory) as log:
            assert log.report.rebuilt == [segment_name(2)]
        assert path.read_bytes() == right
        segments.assert_read_right()
        with CommitLog.open(segments.directory) as log:
            assert log.report.is_clean

    def test_those_of_another_segment_are_made_again(self, segments: Segments, suffix: str) -> None:
        path = segments.path(2, suffix)
        right = path.read_bytes()
        shutil.copy(segments.path(4, suffix), path)
        segments.assert_read_right()
        with CommitLog.open(segments.directory) as log:
            assert log.report.rebuilt == [segment_name(2)]
        assert path.read_bytes() == right

    def test_all_of_them_can_be_missing(self, segments: Segments, suffix: str) -> None:
        right = {path: path.read_bytes() for path in segments.directory.glob(f"*{suffix}")}
        for path in right:
            path.unlink()
        segments.assert_read_right()
        with CommitLog.open(segments.directory) as log:
            assert len(log.report.rebuilt) >= 3
        assert {path: path.read_bytes() for path in segments.directory.glob(f"*{suffix}")} == right
        segments.assert_read_right()


def test_wrong_details_of_contents_are_not_believed(segments: Segments) -> None:
    """They are not looked at when the log is opened, which costs the same for any number of messages."""
    path = segments.path(2, ".toc")
    right = path.read_bytes()
    for bit in range(60 * 8, len(right) * 8, 37):
        overwrite(path, flipped(right, bit))
        segments.assert_read_right()
    with CommitLog.open(segments.directory) as log:
        assert log.append([numbered(8)], batch_id="b") == (8, 9)


@pytest.mark.parametrize("damage", [None, cut, nothing, flip, noise, longer])
def test_wrong_index_of_the_active_segment_is_made_again(
    segments: Segments, damage: Callable[[bytes], bytes] | None
) -> None:
    path = segments.path(6, ".index")
    right = path.read_bytes()
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(right))
    segments.assert_read_right()
    with CommitLog.open(segments.directory) as log:
        assert log.report.rebuilt == [segment_name(6)]
        log.append([numbered(8)])
    assert path.read_bytes() == right
    assert log_numbers(segments.directory) == list(range(9))


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "active"])
def test_wrong_index_never_hides_a_message(tmp_path: Path, is_sealed: bool) -> None:
    """Its checksums are right and its positions are frames, but of other offsets and moments."""
    rows = 12_000
    with CommitLog.open(tmp_path, LogConfig(codec=Codec.NONE)) as log:
        for at in range(6):
            log.append([numbered(at, timestamp=10 * at)])
            log.append([numbered(*([at] * rows), timestamp=10 * at + 5)])
        if is_sealed:
            log.roll()
    reader = LogReader(tmp_path)
    expected = [(at, numbers(reader.entries(at, at + 1))) for at in range(0, reader.next_offset, rows // 2)]
    moments = [reader.offset_at(Micros(at)) for at in range(60)]
    path = str(tmp_path / NAME)
    right = index.load(path, 0)
    assert right is not None
    assert len(right) > 3
    moments_of = (at // 3 for at in right.timestamps) if is_sealed else right.timestamps
    wrong = index.Index([offset // 3 for offset in right.offsets], right.positions, list(moments_of))
    index.store(HastyDisk(), path, wrong)
    reader = LogReader(tmp_path)
    assert [(at, numbers(reader.entries(at, at + 1))) for at, _ in expected] == expected
    assert [reader.offset_at(Micros(at)) for at in range(60)] == moments


class TestHeadFile:
    @pytest.mark.parametrize("damage", [None, cut, nothing, flip, noise])
    def test_wrong_one_is_made_again(self, segments: Segments, damage: Callable[[bytes], bytes] | None) -> None:
        path = Path(head_path(str(segments.directory)))
        right = path.read_bytes()
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage(right))
        segments.assert_read_right()
        with CommitLog.open(segments.directory) as log:
            assert log.report.cut is None
            assert log.next_offset == 8
        assert path.read_bytes() == right
        segments.assert_read_right()

    def test_one_that_is_behind_hides_nothing_from_the_next_writer(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            old = Path(head_path(str(tmp_path))).read_bytes()
            log.append([numbered(1)])
        Path(head_path(str(tmp_path))).write_bytes(old)
        assert log_numbers(tmp_path) == [0]
        with CommitLog.open(tmp_path) as log:
            assert log.report.cut is None
            assert log.append([numbered(2)]) == (2, 3)
        assert log_numbers(tmp_path) == [0, 1, 2]

    def test_one_of_an_earlier_segment_hides_nothing_from_the_next_writer(self, segments: Segments) -> None:
        writer = HeadWriter(HastyDisk(), str(segments.directory))
        size = segments.path(4).stat().st_size
        writer.publish(LogHead(Offset(4), size, size, Offset(6)))
        writer.close()
        with CommitLog.open(segments.directory) as log:
            assert log.next_offset == 8
        segments.assert_read_right()
        head = read_head(str(segments.directory))
        assert head is not None
        assert (head.base, head.next_offset) == (6, 8)


class TestStrangers:
    def test_other_files_are_left_alone(self, segments: Segments) -> None:
        strangers = ["notes.txt", ".hidden", f"{NAME}.bak", "1.log", "head.old", "lost+found/x", "backup/00.log"]
        for name in strangers:
            path = segments.directory / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"mine")
        segments.assert_read_right()
        with CommitLog.open(segments.directory) as log:
            assert log.report.is_clean
        segments.assert_read_right()
        assert all((segments.directory / name).read_bytes() == b"mine" for name in strangers)

    def test_drafts_are_removed_and_reported(self, segments: Segments) -> None:
        names = [f"{segment_name(2)}.777.tmp", f"{2:020d}.toc.777.tmp"]
        for name in names:
            (segments.directory / name).write_bytes(b"half")
        segments.assert_read_right()
        with CommitLog.open(segments.directory) as log:
            assert sorted(log.report.removed) == sorted(names)
        assert not any((segments.directory / name).exists() for name in names)
        segments.assert_read_right()


class TestRollThatWasInterrupted:
    def test_new_segment_without_anything(self, segments: Segments) -> None:
        segments.path(8).touch()
        segments.path(6, ".toc").unlink(missing_ok=True)
        segments.assert_read_right()
        with CommitLog.open(segments.directory) as log:
            assert log.report.rebuilt == [segment_name(6)]
            assert log.append([numbered(8)]) == (8, 9)
        assert log_numbers(segments.directory) == list(range(9))
        assert verify(segments.directory).remarks == []

    def test_sealed_segment_that_is_still_the_last(self, segments: Segments) -> None:
        """Its contents were written, the next segment was not made."""
        with FrameFile(str(segments.path(6))) as file:
            found, sparse = contents.build(file.heads(), 6), index.build(file.heads())
        contents.store(HastyDisk(), str(segments.path(6)), found, sparse)
        with CommitLog.open(segments.directory) as log:
            assert log.append([numbered(8)]) == (8, 9)
            log.append([numbered(9)])
            log.roll()
        assert log_numbers(segments.directory) == list(range(10))
        assert verify(segments.directory).remarks == []
        with CommitLog.open(segments.directory) as log:
            assert log.report.is_clean
