"""The offset log: what its records add up to, and what is left of it after a crash or damage."""

import itertools
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers
from tailrace.log.disk import Disk
from tailrace.log.offsets import (
    NOTHING,
    WHOLE_LOG,
    Kind,
    OffsetLog,
    Positions,
    Record,
    position_of,
    read_positions,
    read_records,
)
from tailrace.log.segment import segment_name
from tailrace.message import Mode, Offset, Op
from tests.log.material import BrokenDisk, TellingDisk, offset_log, transporter_log

COMMIT, REWIND, ACK = Kind.COMMIT, Kind.REWIND, Kind.ACK


def commit(offset: int, namespace: str = WHOLE_LOG) -> Record:
    return Record(COMMIT, namespace, offset)


def fold(*records: Record) -> Positions:
    positions = Positions()
    for record in records:
        positions.apply(record.kind, record.namespace, record.offset)
    return positions


def write(directory: Path, *flushes: list[Record]) -> list[int]:
    """Flushes in a new offset log; returns the size of the file after each."""
    log = OffsetLog(str(directory), Disk())
    sizes = [0]
    for flush in flushes:
        log.append(flush, 1)
        sizes.append((directory / segment_name(0)).stat().st_size)
    log.close()
    return sizes


class TestFold:
    def test_nothing_is_acknowledged_at_first(self) -> None:
        assert Positions().of("A") == NOTHING
        assert not Positions().covers("A", 0)

    def test_a_commit_of_the_whole_log_counts_for_every_namespace(self) -> None:
        positions = fold(commit(7), commit(3, "A"), commit(9, "B"))
        assert [positions.of(name) for name in ("A", "B", "C")] == [7, 9, 7]
        assert positions.covers("A", 7)
        assert not positions.covers("A", 8)
        assert positions.covers("B", 9)

    def test_a_commit_never_goes_back(self) -> None:
        assert fold(commit(7), commit(3)).of("A") == 7
        assert fold(commit(7, "A"), commit(3, "A")).of("A") == 7

    def test_a_rewind_goes_back_in_every_namespace(self) -> None:
        positions = fold(commit(7), commit(9, "B"), commit(2, "C"), Record(ACK, "A", 8), Record(REWIND, WHOLE_LOG, 5))
        assert [positions.of(name) for name in ("A", "B", "C")] == [4, 4, 4]
        assert not positions.covers("A", 5)
        assert not positions.covers("A", 8)

    def test_a_rewind_to_the_beginning_leaves_nothing(self) -> None:
        assert fold(commit(7), commit(9, "B"), Record(ACK, "A", 8), Record(REWIND, WHOLE_LOG, 0)) == Positions()

    def test_a_rewind_never_goes_forward(self) -> None:
        assert fold(commit(3), Record(REWIND, WHOLE_LOG, 9)).of("A") == 3

    def test_one_acknowledged_message_is_one_message(self) -> None:
        positions = fold(commit(3), Record(ACK, "A", 6))
        assert positions.of("A") == 3
        assert positions.covers("A", 6)
        assert not positions.covers("A", 5)
        assert not positions.covers("A", 7)

    def test_acknowledged_messages_are_forgotten_once_they_are_passed(self) -> None:
        positions = fold(Record(ACK, "A", 4), Record(ACK, "A", 6), commit(5))
        assert positions.acknowledged == {6}

    records = st.builds(
        Record, st.sampled_from(Kind), st.sampled_from([WHOLE_LOG, "A", "B"]), st.integers(min_value=0, max_value=9)
    )

    @given(st.lists(records, max_size=12))
    def test_only_a_rewind_goes_back(self, records: list[Record]) -> None:
        """I3, over all that can be said about ten messages in two namespaces."""
        positions = Positions()
        for record in records:
            before = {(name, offset) for name in "AB" for offset in range(10) if positions.covers(name, offset)}
            positions.apply(record.kind, record.namespace, record.offset)
            after = {(name, offset) for name in "AB" for offset in range(10) if positions.covers(name, offset)}
            if record.kind is REWIND:
                assert after == {(name, offset) for name, offset in before if offset < record.offset}
            else:
                assert after >= before
                names = {"A", "B"} if record.namespace == WHOLE_LOG or record.kind is ACK else {record.namespace}
                lowest = record.offset if record.kind is ACK else 0
                said = {(name, offset) for name in names for offset in range(lowest, record.offset + 1)}
                assert after == before | said


class TestPosition:
    def test_a_namespace_that_is_behind_holds_the_position_back(self) -> None:
        namespaces = {"A": 26, "B": 24, "C": 27}
        assert position_of(fold(commit(26, "A"), commit(23, "B"), commit(27, "C")), namespaces, Offset(28)) == 23

    def test_a_namespace_that_is_through_holds_nothing_back(self) -> None:
        namespaces = {"A": 26, "B": 3, "C": 27}
        assert position_of(fold(commit(26, "A"), commit(3, "B"), commit(27, "C")), namespaces, Offset(28)) == 27

    def test_a_namespace_of_which_nothing_is_acknowledged(self) -> None:
        assert position_of(fold(commit(5, "A")), {"A": 5, "B": 2}, Offset(6)) == NOTHING

    def test_single_acknowledgements_count_when_it_is_their_turn(self) -> None:
        at_13 = [commit(13)]
        assert position_of(fold(*at_13, Record(ACK, "A", 15)), {"A": 15}, Offset(16)) == 13
        assert position_of(fold(*at_13, Record(ACK, "A", 15), Record(ACK, "A", 14)), {"A": 15}, Offset(16)) == 15

    def test_an_empty_log(self) -> None:
        assert position_of(Positions(), {}, Offset(0)) == NOTHING

    messages = st.lists(st.sampled_from("AB"), max_size=10)
    kinds, names = st.sampled_from([COMMIT, ACK]), st.sampled_from([WHOLE_LOG, "A", "B"])
    said = st.lists(st.tuples(kinds, names, st.integers(0, 9)))

    @given(messages, said)
    def test_everything_up_to_the_position_is_acknowledged(
        self, messages: list[str], said: list[tuple[Kind, str, int]]
    ) -> None:
        positions = fold(*(Record(*record) for record in said))
        last_offsets = {name: offset for offset, name in enumerate(messages)}
        position = position_of(positions, last_offsets, Offset(len(messages)))
        assert NOTHING <= position < len(messages)
        assert all(positions.covers(name, offset) for offset, name in enumerate(messages) if offset <= position)


class TestFile:
    FLUSHES = (
        [commit(3)],
        [commit(5, "ü"), Record(ACK, "A", 9)],
        [commit(8)],  # with another length of its key this one has the lengths of Transporter's
        [commit(10, "ü")],
    )

    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        write(tmp_path, *self.FLUSHES)
        written = list(itertools.chain(*self.FLUSHES))
        assert read_records(str(tmp_path)) == written
        assert read_positions(str(tmp_path)) == fold(*written)

    def test_a_missing_file_is_a_consumer_that_acknowledged_nothing(self, tmp_path: Path) -> None:
        assert read_positions(str(tmp_path)) == Positions()

    def test_the_record_layout(self, tmp_path: Path) -> None:
        write(tmp_path, [commit(0x0102, "ns")])
        raw = (tmp_path / segment_name(0)).read_bytes()
        sequence, length, seconds, flags, key_length = struct.unpack_from(">QIQBI", raw)
        assert (sequence, length, seconds, flags, key_length) == (0, len(raw) - 21, 1, Mode.SYNC | Op.COMMAND << 2, 2)
        assert raw[25:27] == b"ns"
        assert struct.unpack_from(">IQB?xx", raw, 27) == (16, 0x0102, COMMIT, True)
        assert struct.unpack_from(">I", raw, 43) == (zlib.crc32(raw[:43]),)

    def test_cut_at_every_byte(self, tmp_path: Path) -> None:
        """A torn flush counts as never written; no flush before it is touched, and the next one takes its place."""
        sizes = write(tmp_path, *self.FLUSHES)
        path = tmp_path / segment_name(0)
        raw = path.read_bytes()
        for size in range(len(raw)):
            path.write_bytes(raw[:size])
            whole = sum(end <= size for end in sizes[1:])
            kept = list(itertools.chain(*self.FLUSHES[:whole]))
            assert read_records(str(tmp_path)) == kept, size
            log = OffsetLog(str(tmp_path), Disk())
            log.append([commit(20)], 1)
            log.close()
            assert read_records(str(tmp_path)) == [*kept, commit(20)], size

    def test_flip_every_bit(self, tmp_path: Path) -> None:
        """Damage to a flush that another one follows is refused. Only the last flush may be taken for a torn one,
        and then nothing of it counts. No flip ever gives other offsets than those that were written."""
        sizes = write(tmp_path, *self.FLUSHES)
        path = tmp_path / segment_name(0)
        raw = path.read_bytes()
        confirmed = list(itertools.chain(*self.FLUSHES[:-1]))
        for bit in range(len(raw) * 8):
            damaged = bytearray(raw)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            if bit // 8 >= sizes[-2]:
                assert read_records(str(tmp_path)) == confirmed, bit
                continue
            with pytest.raises(TailraceError) as caught:
                read_records(str(tmp_path))
            assert caught.value.code == "log.corrupt", bit
            assert caught.value.place is not None
            assert caught.value.place.byte in sizes, bit

    def test_garbage_behind_the_last_flush_is_cut(self, tmp_path: Path) -> None:
        (size,) = write(tmp_path, [commit(3)])[1:]
        path = tmp_path / segment_name(0)
        path.write_bytes(path.read_bytes() + b"\xff" * 100)
        log = OffsetLog(str(tmp_path), Disk())
        assert log.positions.of("A") == 3
        log.close()
        assert path.stat().st_size == size

    def test_reading_changes_nothing(self, tmp_path: Path) -> None:
        write(tmp_path, [commit(3)], [commit(5)])
        path = tmp_path / segment_name(0)
        torn = path.read_bytes()[:-1]
        path.write_bytes(torn)
        assert read_positions(str(tmp_path)).of("A") == 3
        assert path.read_bytes() == torn

    def test_what_the_disk_did_not_confirm_is_not_counted(self, tmp_path: Path) -> None:
        disk = BrokenDisk()
        log = OffsetLog(str(tmp_path), disk)
        log.append([commit(3)], 1)
        disk.is_broken = True
        with pytest.raises(OSError, match="Input/output"):
            log.append([commit(5)], 1)
        assert log.positions.of("A") == 3
        log.close()


class TestCompaction:
    def test_the_last_word_on_each_namespace_is_kept(self, tmp_path: Path) -> None:
        log = OffsetLog(str(tmp_path), Disk())
        for offset in range(10):
            log.append([commit(offset), commit(2 * offset, "A"), Record(ACK, "B", 100 + offset)], 1)
        before = read_positions(str(tmp_path))
        log.compact(1)
        assert read_records(str(tmp_path)) == [
            commit(9),
            commit(18, "A"),
            *(Record(ACK, WHOLE_LOG, offset) for offset in range(100, 110)),
        ]
        assert read_positions(str(tmp_path)) == before
        log.append([commit(20, "A")], 1)
        log.close()
        assert read_positions(str(tmp_path)).of("A") == 20

    def test_a_rewind_stays_in_force(self, tmp_path: Path) -> None:
        log = OffsetLog(str(tmp_path), Disk())
        log.append([commit(9), commit(12, "A")], 1)
        log.append([Record(REWIND, WHOLE_LOG, 4)], 1)
        log.compact(1)
        log.close()
        assert read_records(str(tmp_path)) == [commit(3), commit(3, "A")]

    def test_nothing_at_all(self, tmp_path: Path) -> None:
        log = OffsetLog(str(tmp_path), Disk())
        log.append([commit(9)], 1)
        log.append([Record(REWIND, WHOLE_LOG, 0)], 1)
        log.compact(1)
        assert (tmp_path / segment_name(0)).stat().st_size == 0
        log.append([commit(2)], 1)
        log.close()
        assert read_records(str(tmp_path)) == [commit(2)]

    def test_it_happens_by_itself(self, tmp_path: Path) -> None:
        log = OffsetLog(str(tmp_path), Disk())
        longest = 0
        for offset in range(0, 2500, 50):
            log.append([commit(number) for number in range(offset, offset + 50)], 1)
            longest = max(longest, len(read_records(str(tmp_path))))
        log.close()
        assert longest < 1200
        assert read_positions(str(tmp_path)).of("A") == 2499

    def test_the_new_file_takes_the_old_ones_place_in_one_step(self, tmp_path: Path) -> None:
        disk = TellingDisk()
        log = OffsetLog(str(tmp_path), disk)
        log.append([commit(1)], 1)
        disk.calls.clear()
        log.compact(1)
        log.close()
        assert disk.calls == [("rename", segment_name(0)), ("sync_directory", tmp_path.name)]

    def test_a_crash_before_the_swap_leaves_the_old_file(self, tmp_path: Path) -> None:
        class Crash(Exception):
            pass

        class CrashingDisk(Disk):
            def rename(self, old: str, new: str) -> None:
                raise Crash

        log = OffsetLog(str(tmp_path), CrashingDisk())
        log.append([commit(1)], 1)
        log.append([commit(2)], 1)
        with pytest.raises(Crash):
            log.compact(1)
        log.close()
        assert read_records(str(tmp_path)) == [commit(1), commit(2)]


class TestTransporter:
    def test_its_records_are_read(self, tmp_path: Path) -> None:
        consumers = Consumers(transporter_log(tmp_path / "xlog"))
        sink = consumers.get("sink")
        assert sink.positions.by_namespace == {"orders.json": 24}
        assert consumers.position(sink) == 24

    def test_ours_may_follow_them(self, tmp_path: Path) -> None:
        directory = transporter_log(tmp_path / "xlog")
        its_own = read_records(str(offset_log(directory, "sink").parent))
        write(offset_log(directory, "sink").parent, [commit(30, "orders.json")])
        assert read_records(str(offset_log(directory, "sink").parent)) == [*its_own, commit(30, "orders.json")]

    def test_damage_between_its_records_is_refused(self, tmp_path: Path) -> None:
        path = offset_log(transporter_log(tmp_path / "xlog"), "sink")
        raw = bytearray(path.read_bytes())
        (length,) = struct.unpack_from(">I", raw, 8)
        second_length_at = 8 + 4 + 8 + 1 + length + 8
        raw[second_length_at] ^= 0x40
        path.write_bytes(raw)
        with pytest.raises(TailraceError) as caught:
            read_positions(str(path.parent))
        assert caught.value.code == "log.corrupt"
