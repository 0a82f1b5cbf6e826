"""The worked examples of the seed (004, "Message Guarantees", "Log Compaction", "Message Format"), to the letter."""

import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import compact
from tailrace.log.consumers import Consumers
from tailrace.log.disk import Disk
from tailrace.log.frame import encode_plain
from tailrace.log.offsets import WHOLE_LOG, Kind, OffsetLog, Record, read_positions, read_records
from tailrace.log.operator import Operator
from tailrace.log.reader import LogReader
from tailrace.log.segment import Segment, segment_name
from tailrace.log.session import ConsumerSession
from tailrace.message import Entry, Mode, Offset, Op
from tests.log.material import NEVER_S, change, contents_of, fill, make_log, offset_log, write_plain

NORMAL = "AABBAABBCACBAACB"
NORMAL_OFFSETS = [1, 4, 6, 4, 4, 5, 7, 7, 10, 13, 12]
NORMAL_CONSUMERS = ["c0", "c0", "c0", "c1", "c0", "c1", "c0", "c1", "c0", "c1", "c0"]

COMMIT_ALL_AND_WAIT = """
import sys
from tailrace.log.consumers import Consumers
from tailrace.log.session import ConsumerSession
consumers = Consumers(sys.argv[1])
sessions = {name: ConsumerSession(consumers, name, flush_s=3600) for name in ("c0", "c1")}
for name, offset in zip(sys.argv[2].split(), sys.argv[3].split()):
    sessions[name].commit(int(offset))
    sessions[name].flush()
print("committed", flush=True)
sys.stdin.read()
"""


def killed_after_the_picture(directory: Path) -> None:
    """Two writers commit as in the picture in a process of their own, which is then killed."""
    offsets = " ".join(map(str, NORMAL_OFFSETS))
    command = [sys.executable, "-c", COMMIT_ALL_AND_WAIT, str(directory), " ".join(NORMAL_CONSUMERS), offsets]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "committed\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL


def redelivered(directory: Path, session: ConsumerSession) -> list[int]:
    return [entry.offset for entry in LogReader(directory).entries(session.resume_offset)]


class TestNormalOperations:
    def test_a_lower_commit_is_ignored(self, tmp_path: Path) -> None:
        make_log(tmp_path, NORMAL)
        consumers = Consumers(tmp_path)
        for name in ("c0", "c1"):
            consumers.register(name)
            log = OffsetLog(str(offset_log(tmp_path, name).parent), Disk())
            for consumer, offset in zip(NORMAL_CONSUMERS, NORMAL_OFFSETS, strict=True):
                if consumer == name:
                    log.append([Record(Kind.COMMIT, WHOLE_LOG, offset)], 0)
            log.close()
        assert [record.offset for record in read_records(str(offset_log(tmp_path, "c0").parent))] == [
            *(1, 4, 6, 4, 7, 10, 12)
        ]
        assert LogReader(tmp_path).next_offset - 1 == 15
        assert consumers.position(consumers.get("c0")) == 12
        assert consumers.position(consumers.get("c1")) == 13

    @pytest.mark.crash
    def test_after_a_kill_the_rest_is_redelivered_and_then_all_is_acknowledged(self, tmp_path: Path) -> None:
        make_log(tmp_path, NORMAL)
        consumers = Consumers(tmp_path)
        for name in ("c0", "c1"):
            consumers.register(name)
        killed_after_the_picture(tmp_path)
        for name, rest in (("c0", [13, 14, 15]), ("c1", [14, 15])):
            with ConsumerSession(consumers, name, flush_s=NEVER_S) as session:
                assert redelivered(tmp_path, session) == rest
                session.commit(rest[-1])
        for name in ("c0", "c1"):
            assert consumers.position(consumers.get(name)) == 15
            with ConsumerSession(consumers, name) as session:
                assert redelivered(tmp_path, session) == []


class Destination:
    """A system that takes messages in bulk or one at a time, and refuses some of them."""

    def __init__(self, refused: Iterable[int]) -> None:
        self.refused = set(refused)
        self.written: list[int] = []

    def write(self, entries: list[Entry]) -> None:
        if any(entry.offset in self.refused for entry in entries):
            raise ConnectionError("refused")
        self.written += [entry.offset for entry in entries]


class TestMessageFailures:
    def test_redelivery_one_at_a_time_stops_at_the_bad_message(self, tmp_path: Path) -> None:
        make_log(tmp_path, "A" * 16)
        consumers = Consumers(tmp_path)
        consumers.register("c0")
        reader, destination = LogReader(tmp_path), Destination(refused=[14])

        with ConsumerSession(consumers, "c0", flush_s=NEVER_S) as session:
            for last in (1, 3, 4, 5, 7, 8):
                destination.write(list(reader.entries(session.resume_offset, last + 1)))
                session.commit(last)
                session.flush()
            with pytest.raises(ConnectionError):
                destination.write(list(reader.entries(9, 16)))
        assert consumers.position(consumers.get("c0")) == 8

        with ConsumerSession(consumers, "c0", flush_s=NEVER_S) as session:
            assert session.resume_offset == 9
            with pytest.raises(ConnectionError):
                for entry in reader.entries(session.resume_offset):
                    destination.write([entry])
                    session.commit(entry.offset)
        assert consumers.position(consumers.get("c0")) == 13
        assert destination.written == list(range(14))

    def test_an_operator_acknowledges_the_bad_message(self, tmp_path: Path) -> None:
        make_log(tmp_path, "A" * 16)
        consumers = Consumers(tmp_path)
        consumers.register("c0", start=14)
        seen = [entry.message.data for entry in LogReader(tmp_path).entries(14, 16)]
        assert [row["id"] for row in seen if row is not None] == [14, 15]
        move = Operator(consumers).acknowledge("c0", 14, reason="the destination refuses it")
        assert (move.before, move.after) == (13, 14)
        with ConsumerSession(consumers, "c0", flush_s=NEVER_S) as session:
            assert redelivered(tmp_path, session) == [15]
            session.commit(15)
        assert consumers.position(consumers.get("c0")) == LogReader(tmp_path).next_offset - 1


OLD = "AABBAABBCACBAACBA"
ACTIVE = "AABBAABBCAC"
COMMITS = [("A", 1), ("A", 8), ("B", 1), ("C", 3), ("A", 13), ("B", 12), ("C", 9), ("A", 26), ("B", 23), ("C", 27)]


def one_group_each(directory: Path) -> None:
    make_log(directory, OLD, ACTIVE)


def one_group_per_segment(directory: Path) -> None:
    with CommitLog.open(directory) as log:
        log.append_messages([change(namespace, number) for number, namespace in enumerate(OLD)])
        log.roll()
        log.append_messages([change(namespace, number) for number, namespace in enumerate(ACTIVE, len(OLD))])


def as_transporter_writes(directory: Path) -> None:
    document = b'{"_id":1,"msg":"X"}'
    write_plain(directory, 0, [(at, namespace, document) for at, namespace in enumerate(OLD)])
    write_plain(directory, 17, [(at, namespace, document) for at, namespace in enumerate(ACTIVE, 17)])
    CommitLog.open(directory).close()


def commit_as_in_the_picture(directory: Path) -> Consumers:
    consumers = Consumers(directory)
    consumers.register("c0")
    log = OffsetLog(str(offset_log(directory, "c0").parent), Disk())
    for namespace, offset in COMMITS:
        log.append([Record(Kind.COMMIT, namespace, offset)], 0)
    log.close()
    return consumers


@pytest.fixture(params=[one_group_each, one_group_per_segment, as_transporter_writes])
def pictured(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make: Callable[[Path], None] = request.param
    make(tmp_path)
    return tmp_path


class TestLogCompaction:
    def test_the_old_segment_keeps_14_15_16(self, pictured: Path) -> None:
        before = contents_of(pictured)
        assert before == list(enumerate(OLD + ACTIVE))
        active = (pictured / segment_name(17)).read_bytes()
        commit_as_in_the_picture(pictured)

        done = compact(pictured)

        assert [(segment.base, segment.messages_before, segment.messages_after) for segment in done.segments] == [
            (0, 17, 3)
        ]
        with Segment(str(pictured), Offset(0)) as old:
            kept = [(located.head.offset, located.head.namespace) for located in old.heads() if located.head.messages]
        assert kept == [(14, "C"), (15, "B"), (16, "A")]
        assert contents_of(pictured) == [(14, "C"), (15, "B"), (16, "A"), *enumerate(ACTIVE, 17)]
        assert (pictured / segment_name(17)).read_bytes() == active

    def test_the_offset_log_keeps_one_record_for_each_namespace(self, pictured: Path) -> None:
        consumers = commit_as_in_the_picture(pictured)
        directory = str(offset_log(pictured, "c0").parent)
        assert [(record.namespace, record.offset) for record in read_records(directory)] == COMMITS
        compact(pictured)
        assert [(record.namespace, record.offset) for record in read_records(directory)] == [
            *(("A", 26), ("B", 23), ("C", 27))
        ]
        assert read_positions(directory) == consumers.get("c0").positions

    def test_the_position_is_contiguous_not_the_highest(self, pictured: Path) -> None:
        consumers = commit_as_in_the_picture(pictured)
        assert consumers.position(consumers.get("c0")) == 23
        compact(pictured)
        assert consumers.position(consumers.get("c0")) == 23
        with ConsumerSession(consumers, "c0") as session:
            assert session.resume_offset == 24

    def test_the_log_goes_on(self, pictured: Path) -> None:
        commit_as_in_the_picture(pictured)
        compact(pictured)
        with CommitLog.open(pictured) as log:
            assert log.report.cut is None
            fill(log, "B")
        assert contents_of(pictured)[-2:] == [(27, "C"), (28, "B")]


class TestMessageFormat:
    @pytest.mark.parametrize(("mode", "number"), [(Mode.COPY, 0), (Mode.SYNC, 1), (Mode.COMPLETE, 2)])
    def test_a_plain_frame_has_the_layout_of_the_seed(self, tmp_path: Path, mode: Mode, number: int) -> None:
        key, data = b"schema.table", b'{"a":1}'
        message = struct.pack(">I", len(key)) + key + struct.pack(">I", len(data)) + data
        entry = struct.pack(">QIQB", 0, len(message), 1234567, number) + message
        assert encode_plain(offset=0, timestamp_s=1234567, mode=mode, op=Op.INSERT, key=key, data=data) == entry

        (tmp_path / segment_name(0)).write_bytes(entry)
        (read,) = LogReader(tmp_path).entries()
        assert read.offset == 0
        assert read.mode is mode
        assert read.message.namespace == "schema.table"
        assert read.message.timestamp == 1234567 * 1_000_000
        assert read.message.data == {"a": 1}

    def test_a_batch_has_the_same_layout_around_it(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            fill(log, "AAA")
            log.append_messages([change("schema.table", 3, op=Op.UPDATE, at_s=5.0)], Mode.COPY)
        raw = (tmp_path / segment_name(0)).read_bytes()
        at = 0
        for _ in range(3):
            at += 8 + 4 + 8 + 1 + struct.unpack_from(">I", raw, at + 8)[0]
        offset, message_length, timestamp, flags, key_length = struct.unpack_from(">QIQBI", raw, at)
        key = raw[at + 25 : at + 25 + key_length]
        (data_length,) = struct.unpack_from(">I", raw, at + 25 + key_length)
        assert (offset, timestamp, key) == (3, 5_000_000, b"schema.table")
        assert message_length == 8 + key_length + data_length
        assert at + 8 + 4 + 8 + 1 + message_length == len(raw)
        assert flags & 0b11 == Mode.COPY
        assert flags >> 2 & 0b111 == Op.UPDATE
        assert flags >> 5 == 0b011  # a batch, and the last frame of its group
