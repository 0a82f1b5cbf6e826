"""Verification: every kind of damage is found and named, and nothing else is."""

import os
import shutil
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.compaction import compact
from tailrace.log.consumers import AGREEMENT_NAME, PREFIX, Consumers
from tailrace.log.contents import contents_path
from tailrace.log.frame import ENVELOPE_BYTES, HEAD_BYTES_MIN, MAGIC, place_head
from tailrace.log.head import head_path
from tailrace.log.index import index_path
from tailrace.log.retention import retain
from tailrace.log.segment import Segment, segment_name
from tailrace.log.verification import verify
from tailrace.message import Offset
from tests.log.material import change, fill, has_read, make_log, offset_log, offsets_of, transporter_log, write_plain


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Messages 0–2, 3–5 and 6–8 in three segments, and two consumers."""
    directory = tmp_path / "log"
    make_log(directory, "ABA", "ABA", "ABA")
    for name in ("c", "d"):
        Consumers(directory).register(name)
        for offset in (1, 2, 3):
            has_read(directory, name, offset)
    return directory


def snapshot(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def segment(directory: Path, base: int) -> Path:
    return directory / segment_name(base)


def frame_at(directory: Path, offset: int) -> tuple[Path, int, int]:
    """The file of the frame that holds an offset, its position and its length."""
    base = offset - offset % 3
    with Segment(str(directory), Offset(base)) as found:
        for located in found.heads():
            if located.head.offset == offset:
                return segment(directory, base), located.position, located.head.frame_bytes
    raise AssertionError(offset)


def flip(file: Path, position: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[position] ^= 0x10
    file.write_bytes(raw)


def the_problem(directory: Path) -> TailraceError:
    (problem,) = verify(directory).problems
    assert problem.hint
    return problem


class TestSound:
    def test_a_log_and_what_it_holds(self, log: Path) -> None:
        seen: list[tuple[int, int]] = []
        found = verify(log, lambda done, total: seen.append((done, total)))
        assert (found.problems, found.remarks) == ([], [])
        sizes = [segment(log, base).stat().st_size for base in (0, 3, 6)]
        assert (found.segments, found.frames, found.messages, found.bytes) == (3, 9, 9, sum(sizes))
        assert seen == [(sum(sizes[: at + 1]), sum(sizes)) for at in range(3)]

    def test_nothing_is_changed(self, log: Path) -> None:
        for file in log.glob("*.toc"):
            file.unlink()
        segment(log, 6).write_bytes(segment(log, 6).read_bytes() + b"torn")
        before = snapshot(log)
        verify(log)
        assert snapshot(log) == before

    def test_an_empty_log(self, tmp_path: Path) -> None:
        CommitLog.open(tmp_path).close()
        found = verify(tmp_path)
        assert (found.problems, found.remarks, found.messages) == ([], [], 0)

    def test_no_log(self, tmp_path: Path) -> None:
        with pytest.raises(TailraceError) as caught:
            verify(tmp_path)
        assert caught.value.code == "log.not_found"

    def test_after_compaction_and_retention(self, log: Path) -> None:
        for name in ("c", "d"):
            has_read(log, name, 4)
        compact(log)
        retain(log)
        found = verify(log)
        assert (found.problems, found.remarks) == ([], [])
        assert found.messages == len(offsets_of(log))

    def test_a_log_of_transporters(self, tmp_path: Path) -> None:
        found = verify(transporter_log(tmp_path / "xlog"))
        assert found.problems == []
        assert found.messages == 25

    def test_while_it_is_written(self, tmp_path: Path) -> None:
        stop = threading.Event()
        with CommitLog.open(tmp_path, LogConfig(segment_bytes=30_000, sync_every_s=None)) as log:
            fill(log, "A")

            def append() -> None:
                while not stop.is_set():
                    log.append_messages([change("A", number) for number in range(20)])

            appending = threading.Thread(target=append)
            appending.start()
            try:
                for _ in range(10):
                    assert verify(tmp_path).problems == []
            finally:
                stop.set()
                appending.join()


class TestSegments:
    @pytest.mark.parametrize("offset", [0, 1, 2, 4, 6, 8])
    def test_a_damaged_body(self, log: Path, offset: int) -> None:
        file, position, size = frame_at(log, offset)
        flip(file, position + size - 9)
        problem = the_problem(log)
        assert problem.code == "log.corrupt"
        assert "body" in problem.what
        assert problem.place is not None
        assert (problem.place.file, problem.place.byte, problem.place.offset) == (file.name, position, offset)

    @pytest.mark.parametrize("offset", [0, 1, 5, 7])
    def test_a_damaged_head(self, log: Path, offset: int) -> None:
        file, position, _ = frame_at(log, offset)
        flip(file, position + 14)
        problem = the_problem(log)
        assert problem.code == "log.corrupt"
        assert problem.place is not None
        assert (problem.place.file, problem.place.byte) == (file.name, position)

    @pytest.mark.parametrize("base", [0, 3, 6])
    @pytest.mark.parametrize("cut", [1, 100, 1000])
    def test_a_cut_segment(self, log: Path, base: int, cut: int) -> None:
        raw = segment(log, base).read_bytes()
        segment(log, base).write_bytes(raw[:-cut])
        problem = the_problem(log)
        assert problem.code == "log.corrupt"
        assert problem.place is not None
        assert problem.place.file == segment_name(base)

    def test_a_segment_cut_between_frames(self, log: Path) -> None:
        file, position, _ = frame_at(log, 5)
        file.write_bytes(file.read_bytes()[:position])
        problem = the_problem(log)
        assert "ends at offset 5" in problem.what

    def test_a_missing_segment(self, log: Path) -> None:
        segment(log, 3).unlink()
        problem = the_problem(log)
        assert problem.code == "log.corrupt"
        assert "ends at offset 3" in problem.what
        assert segment_name(6) in problem.what

    def test_a_missing_last_segment(self, log: Path) -> None:
        """Nothing but the head file knows of it."""
        segment(log, 6).unlink()
        problem = the_problem(log)
        assert problem.code == "log.corrupt"
        assert f"{segment_name(6)} is missing" in problem.what
        assert "up to offset 8" in problem.what
        with pytest.raises(TailraceError) as caught:
            CommitLog.open(log)
        assert caught.value.code == "log.corrupt"
        os.unlink(head_path(str(log)))  # what the hint says, for who wants to go on without it
        with CommitLog.open(log) as writer:
            assert writer.next_offset == 6

    def test_a_segment_that_overlaps(self, log: Path) -> None:
        shutil.copy(segment(log, 3), segment(log, 5))
        codes = {problem.code for problem in verify(log).problems}
        assert codes == {"log.corrupt"}
        assert any("overlaps" in problem.what for problem in verify(log).problems)

    def test_segments_that_changed_places(self, log: Path) -> None:
        first, second = segment(log, 0).read_bytes(), segment(log, 3).read_bytes()
        segment(log, 0).write_bytes(second)
        segment(log, 3).write_bytes(first)
        assert [problem.place.file for problem in verify(log).problems if problem.place] == [
            *(segment_name(0), segment_name(3))
        ]

    @pytest.mark.parametrize(
        ("patch", "code", "what"),
        [
            ({8: 2}, "log.version_unknown", "version 2"),
            ({9: 7}, "log.codec_unknown", "codec 7"),
        ],
    )
    def test_what_this_version_does_not_know(self, log: Path, patch: dict[int, int], code: str, what: str) -> None:
        file, position, _ = frame_at(log, 1)
        raw = bytearray(file.read_bytes())
        envelope = raw.index(MAGIC, position)
        for at, value in patch.items():
            raw[envelope + at] = value
        seal_head(raw, position, envelope)
        file.write_bytes(raw)
        problem = the_problem(log)
        assert problem.code == code
        assert what in problem.what

    def test_an_op_that_nobody_knows(self, log: Path) -> None:
        file, position, _ = frame_at(log, 1)
        raw = bytearray(file.read_bytes())
        raw[position + 20] |= 0b101 << 2
        seal_head(raw, position, raw.index(MAGIC, position))
        file.write_bytes(raw)
        assert the_problem(log).code == "log.op_unknown"

    @pytest.mark.parametrize("body", [b"", b"not Arrow at all"])
    def test_a_body_that_is_no_batch(self, log: Path, body: bytes) -> None:
        replace_body(log, 4, body)
        problem = the_problem(log)
        assert problem.code == "log.corrupt"
        assert "no Arrow batch" in problem.what
        assert problem.place is not None
        assert problem.place.offset == 4

    def test_a_body_with_another_number_of_messages(self, log: Path, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path / "other") as other:
            other.append_messages([change("A", 0), change("A", 1)])
        with Segment(str(tmp_path / "other"), Offset(0)) as found:
            (located,) = found.frames()
        replace_body(log, 4, bytes(located.body))
        assert "says 1 messages but holds 2" in the_problem(log).what

    def test_a_plain_frame_that_is_no_json(self, tmp_path: Path) -> None:
        write_plain(tmp_path, 0, [(0, "t", b"{}"), (1, "t", b"{"), (2, "t", b"{}")])
        problem = the_problem(tmp_path)
        assert problem.code == "log.corrupt"
        assert problem.place is not None
        assert problem.place.offset == 1

    def test_all_that_is_wrong_is_said(self, log: Path) -> None:
        for offset in (1, 5, 7):
            file, position, size = frame_at(log, offset)
            flip(file, position + size - 9)
        flip(offset_log(log, "d"), 40)
        found = [(problem.code, problem.place and problem.place.offset) for problem in verify(log).problems]
        assert found == [("log.corrupt", 1), ("log.corrupt", 5), ("log.corrupt", 7), ("log.corrupt", None)]


class TestConsumers:
    def test_damaged_offsets(self, log: Path) -> None:
        flip(offset_log(log, "d"), 40)
        problem = the_problem(log)
        assert problem.code == "log.corrupt"
        assert problem.place is not None
        assert problem.place.file == str(offset_log(log, "d"))

    def test_a_damaged_agreement(self, log: Path) -> None:
        file = log / f"{PREFIX}c" / AGREEMENT_NAME
        file.write_bytes(b"{")
        problem = the_problem(log)
        assert problem.place is not None
        assert problem.place.file == str(file)

    def test_a_torn_flush_is_no_problem(self, log: Path) -> None:
        raw = offset_log(log, "c").read_bytes()
        offset_log(log, "c").write_bytes(raw[:-1])
        assert verify(log).problems == []


def garbage(directory: Path) -> bytes:
    return b"\xff" * 50


def half_a_frame(directory: Path) -> bytes:
    return segment(directory, 0).read_bytes()[:200]


def half_a_group(directory: Path) -> bytes:
    with Segment(str(directory), Offset(6)) as active:
        *_, located = active.frames()
    _, encoded = place_head(located.head, offset=9, closes_group=False)
    return encoded + bytes(located.body)


class TestRemarks:
    @pytest.mark.parametrize("tail", [garbage, half_a_frame, half_a_group])
    @pytest.mark.parametrize("has_head", [True, False])
    def test_a_torn_tail(self, log: Path, tail: Callable[[Path], bytes], has_head: bool) -> None:
        size = segment(log, 6).stat().st_size
        segment(log, 6).write_bytes(segment(log, 6).read_bytes() + tail(log))
        if not has_head:
            os.unlink(head_path(str(log)))
        found = verify(log)
        assert found.problems == []
        assert found.remarks == [f"{segment_name(6)} has a torn tail at byte {size}; the next writer will cut it"]
        assert found.messages == 9
        with CommitLog.open(log) as writer:
            assert writer.report.cut is not None
        assert verify(log).remarks == []

    @pytest.mark.parametrize("path", [contents_path, index_path])
    @pytest.mark.parametrize("damage", ["missing", "wrong", "of another segment"])
    def test_side_files(self, log: Path, path: Callable[[str], str], damage: str) -> None:
        file = Path(path(str(segment(log, 3))))
        if damage == "missing":
            file.unlink()
        elif damage == "wrong":
            flip(file, 20)
        else:
            shutil.copy(path(str(segment(log, 0))), file)
        found = verify(log)
        assert found.problems == []
        (remark,) = found.remarks
        assert segment_name(3) in remark
        with CommitLog.open(log) as writer:
            assert writer.report.rebuilt == [segment_name(3)]
        assert verify(log).remarks == []


def seal_head(raw: bytearray, position: int, envelope: int) -> None:
    """Make the checksum of a head right again after it was tampered with; these heads have no tags."""
    head = raw[position : envelope + ENVELOPE_BYTES]
    crc_at = envelope + 4 - position
    crc = zlib.crc32(head[crc_at + 4 :], zlib.crc32(head[:crc_at]))
    raw[position + crc_at : position + crc_at + 4] = crc.to_bytes(4, "big")


def replace_body(directory: Path, offset: int, body: bytes) -> None:
    """Another body for a frame, with a head that fits it."""
    file, position, size = frame_at(directory, offset)
    with Segment(str(directory), Offset(offset - offset % 3)) as found:
        head = found.head_at(position).head
    assert head.head_bytes > HEAD_BYTES_MIN
    _, encoded = place_head(
        head._replace(body_bytes=len(body), body_crc=zlib.crc32(body)), offset=offset, closes_group=True
    )
    raw = file.read_bytes()
    file.write_bytes(raw[:position] + encoded + body + raw[position + size :])
