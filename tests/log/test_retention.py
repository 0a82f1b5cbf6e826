"""Retention: what may be removed from the log's beginning, who holds the rest, and and who goes past a cap."""

import contextlib
import itertools
import logging
import shutil
import threading
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log import audit, removed
from tailrace.log.agreement import Hold, Policy
from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import compact
from tailrace.log.consumers import AGREEMENT_NAME, PREFIX, Consumers, State
from tailrace.log.disk import Disk
from tailrace.log.maintenance import maintaining
from tailrace.log.operator import Operator
from tailrace.log.reader import LogReader
from tailrace.log.retention import Keep, Retention, SegmentFate, plan, retain
from tailrace.log.segment import list_segments, segment_name
from tailrace.log.verification import verify
from tests.log.material import (
    ActingDisk,
    TellingDisk,
    change,
    contents_of,
    fill,
    has_read,
    make_log,
    offset_log,
    offsets_of,
    transporter_log,
)

NOW_S = 1000.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four segments of three messages: 0–2, 3–5, 6–8 and, active, 9–11; written in second 100, 200, 300, 400."""
    directory = tmp_path / "log"
    with CommitLog.open(directory) as writer:
        for number in range(12):
            if number and number % 3 == 0:
                writer.roll()
            writer.append_messages([change("A", number, at_s=100 * (1 + number // 3))])
    return directory


def bases(fates: list[SegmentFate]) -> list[int]:
    return [fate.base for fate in fates]


def reasons(result: Retention) -> dict[int, str]:
    return {fate.base: fate.reason for fate in result.kept}


class TestHolders:
    def test_no_consumer_at_all_keeps_everything(self, log: Path) -> None:
        result = retain(log)
        assert result.removed == []
        assert set(reasons(result).values()) == {"no consumer has been registered yet", "it is the active segment"}
        assert offsets_of(log) == list(range(12))

    @pytest.mark.parametrize(
        ("position", "gone"),
        [(-1, []), (0, []), (1, []), (2, [0]), (3, [0]), (5, [0, 3]), (7, [0, 3]), (8, [0, 3, 6]), (11, [0, 3, 6])],
    )
    def test_what_is_below_the_only_holder_goes(self, log: Path, position: int, gone: list[int]) -> None:
        Consumers(log).register("c", start=position + 1)
        result = retain(log)
        assert bases(result.removed) == gone
        assert all(not fate.reason and not fate.held_by for fate in result.removed)
        assert list_segments(str(log)) == [base for base in (0, 3, 6, 9) if base not in gone]
        assert offsets_of(log) == list(range(3 * len(gone), 12))
        assert verify(log).problems == []
        with CommitLog.open(log) as writer:
            assert writer.report.is_clean
            assert writer.next_offset == 12

    def test_the_slowest_holder_decides_and_every_holder_is_named(self, log: Path) -> None:
        consumers = Consumers(log)
        for name, start in (("fast", 12), ("middle", 7), ("slow", 4)):
            consumers.register(name, start=start)
        fates = plan(consumers)
        assert [fate.held_by for fate in fates] == [(), ("slow",), ("middle", "slow"), ("middle", "slow")]
        assert [fate.reason for fate in fates] == [
            "",
            "held by slow",
            "held by middle, slow",
            "it is the active segment",
        ]
        assert [(fate.base, fate.end) for fate in fates] == [(0, 3), (3, 6), (6, 9), (9, 12)]
        assert [fate.bytes for fate in fates] == [(log / segment_name(base)).stat().st_size for base in (0, 3, 6, 9)]
        assert offsets_of(log) == list(range(12))  # a plan changes nothing
        result = retain(log)
        assert result.removed + result.kept == fates
        assert result.freed_bytes == fates[0].bytes

    def test_namespaces_are_held_one_by_one_but_only_a_prefix_goes(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AA", "BB", "AB", "C")
        consumers = Consumers(tmp_path)
        consumers.register("c")
        has_read(tmp_path, "c", 5, "B")
        result = retain(tmp_path)
        assert reasons(result) == {
            0: "held by c",
            2: "an older segment stays",
            4: "held by c",
            6: "it is the active segment",
        }
        has_read(tmp_path, "c", 1, "A")
        assert bases(retain(tmp_path).removed) == [0, 2]

    def test_a_message_acknowledged_ahead_frees_nothing_before_it(self, log: Path) -> None:
        """Message 5, the last of its segment, is acknowledged by an operator; 3 and 4 are still needed (I6)."""
        consumers = Consumers(log)
        consumers.register("c", start=3)
        Operator(consumers).acknowledge("c", 5, reason="it is bad")
        assert bases(retain(log).removed) == [0]
        assert offsets_of(log)[:3] == [3, 4, 5]
        Operator(consumers).acknowledge("c", 4, reason="it is bad")
        assert retain(log).removed == []
        Operator(consumers).acknowledge("c", 3, reason="it is bad")
        assert bases(retain(log).removed) == [3]
        assert consumers.get("c").state is State.LIVE

    def test_a_consumer_that_holds_nothing(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("none", hold=Hold(Policy.NONE))
        assert bases(retain(log).removed) == [0, 3, 6]

    def test_a_consumer_that_expired(self, log: Path) -> None:
        Consumers(log).register("c", ttl_s=60)
        now = Consumers(log).get("c").seen_s
        assert retain(log, clock=lambda: now + 50).removed == []
        assert bases(retain(log, clock=lambda: now + 70).removed) == [0, 3, 6]

    @pytest.mark.parametrize("damage", ["offsets", "agreement"])
    def test_a_consumer_that_is_damaged_holds_everything(self, log: Path, damage: str) -> None:
        """Nobody knows what it needs, until it is deleted."""
        consumers = Consumers(log)
        consumers.register("damaged", start=12)
        file = offset_log(log, "damaged") if damage == "offsets" else log / f"{PREFIX}damaged" / AGREEMENT_NAME
        if damage == "offsets":
            has_read(log, "damaged", 11)
            Operator(consumers).rewind("damaged", 12, reason="a second record")
        raw = bytearray(file.read_bytes())
        raw[0] ^= 0x80
        file.write_bytes(raw)
        result = retain(log)
        assert result.removed == []
        assert reasons(result)[0] == "held by damaged"
        if damage == "offsets":
            consumers.delete("damaged", "it is")
            consumers.register("new", start=12)
            assert bases(retain(log).removed) == [0, 3, 6]

    def test_the_active_segment_stays_even_when_it_is_empty(self, log: Path) -> None:
        with CommitLog.open(log) as writer:
            writer.roll()
            Consumers(log).register("c", start=12)
            result = retain(log)
            assert bases(result.removed) == [0, 3, 6, 9]
            assert reasons(result) == {12: "it is the active segment"}
            fill(writer, "A")
        assert offsets_of(log) == [12]
        with pytest.raises(TailraceError) as caught:
            list(LogReader(log).entries(11))
        assert caught.value.code == "log.below_oldest"
        assert "oldest is 12" in caught.value.what

    def test_segments_of_which_compaction_left_nothing_but_holes(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAA", "AAA", "A")
        Consumers(tmp_path).register("c", start=6)
        compact(tmp_path)
        assert bases(retain(tmp_path).removed) == [0, 3]

    def test_a_log_of_transporters(self, tmp_path: Path) -> None:
        directory = transporter_log(tmp_path / "xlog")
        assert bases(retain(directory).removed) == [0, 11]
        assert offsets_of(directory) == [22, 23, 24]
        assert Consumers(directory).get("sink").state is State.LIVE


class TestKeep:
    def test_bytes(self, log: Path) -> None:
        Consumers(log).register("c", start=12)
        sizes = [(log / segment_name(base)).stat().st_size for base in (0, 3, 6, 9)]
        result = retain(log, keep=Keep(bytes=sum(sizes) - 1))
        assert result.removed == []
        assert "bytes are kept" in reasons(result)[0]
        assert bases(retain(log, keep=Keep(bytes=sum(sizes[1:]))).removed) == [0]
        assert bases(retain(log, keep=Keep(bytes=sum(sizes[2:]) - 1)).removed) == [3]

    def test_seconds(self, log: Path) -> None:
        Consumers(log).register("c", start=12)
        result = retain(log, keep=Keep(seconds=801), clock=lambda: NOW_S + 100)
        assert bases(result.removed) == [0, 3]
        assert "801 seconds are kept" in reasons(result)[6]
        assert bases(retain(log, keep=Keep(seconds=799), clock=lambda: NOW_S + 100).removed) == [6]

    def test_a_segment_stays_as_long_as_any_message_of_it(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as writer:
            writer.append_messages([change("A", 0, at_s=900)])
            writer.append_messages([change("A", 1, at_s=100)])
            writer.roll()
        Consumers(tmp_path).register("c", start=2)
        assert retain(tmp_path, keep=Keep(seconds=200), clock=lambda: NOW_S).removed == []
        assert bases(retain(tmp_path, keep=Keep(seconds=99), clock=lambda: NOW_S).removed) == [0]

    def test_what_is_kept_makes_nobody_a_holder(self, log: Path) -> None:
        Consumers(log).register("c", start=12)
        assert all(fate.held_by == () for fate in retain(log, keep=Keep(bytes=1 << 40)).kept)


class TestCap:
    def test_past_its_bytes(self, log: Path, caplog: pytest.LogCaptureFixture) -> None:
        consumers = Consumers(log)
        size = sum((log / segment_name(base)).stat().st_size for base in (3, 6, 9))
        consumers.register("dead", start=3, hold=Hold(Policy.CAP, cap_bytes=size - 1))
        consumers.register("alive", start=10)
        with caplog.at_level(logging.WARNING):
            result = retain(log)
        why = f"it held back {size} bytes, its cap is {size - 1}"
        assert result.invalidated == {"dead": why}
        assert bases(result.removed) == [0, 3, 6]
        assert consumers.get("dead").state is State.INVALIDATED
        assert consumers.get("dead").agreement.invalidated == why
        (alarm,) = caplog.records
        assert (alarm.levelname, alarm.getMessage()) == ("WARNING", f"consumer dead is invalidated: {why}")
        (line,) = audit.read(str(log))
        assert (line["action"], line["consumer"], line["reason"]) == ("invalidate", "dead", why)
        assert retain(log).invalidated == {}

    def test_past_its_age(self, log: Path) -> None:
        consumers = Consumers(log)
        consumers.register("dead", start=3, hold=Hold(Policy.CAP, cap_age_s=799))
        result = retain(log, clock=lambda: NOW_S)
        assert result.invalidated == {"dead": "it held back messages 800 seconds old, its cap is 799"}
        assert bases(result.removed) == [0, 3, 6]

    def test_within_its_cap(self, log: Path, caplog: pytest.LogCaptureFixture) -> None:
        consumers = Consumers(log)
        size = sum((log / segment_name(base)).stat().st_size for base in (3, 6, 9))
        consumers.register("c", start=3, hold=Hold(Policy.CAP, cap_bytes=size, cap_age_s=800))
        result = retain(log, clock=lambda: NOW_S)
        assert result.invalidated == {}
        assert bases(result.removed) == [0]
        assert consumers.get("c").state is State.LIVE
        assert caplog.records == []
        assert list(audit.read(str(log))) == []

    def test_a_holder_without_a_cap_is_never_invalidated(self, log: Path) -> None:
        Consumers(log).register("c")
        result = retain(log, clock=lambda: 1e12)
        assert (result.invalidated, result.removed) == ({}, [])


class TestLosers:
    """Retention notes what it removes, so that only those who did lose something are told so."""

    def test_what_is_noted(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AB", "BC", "C")
        consumers = Consumers(tmp_path)
        consumers.register("c", start=2)
        retain(tmp_path)
        assert removed.read(str(tmp_path)) == removed.Removed(2, {"A": 0, "B": 1})
        has_read(tmp_path, "c", 4)
        retain(tmp_path)
        assert removed.read(str(tmp_path)) == removed.Removed(4, {"A": 0, "B": 2, "C": 3})

    def test_nothing_is_known(self, tmp_path: Path) -> None:
        assert removed.read(str(tmp_path)) == removed.Removed(0, {})
        for broken in (b"", b"[]", b"{}", b'{"end": "x", "last_offsets": {}}', b'{"end": 1, "last_offsets": 3}'):
            (tmp_path / removed.NAME).write_bytes(broken)
            assert removed.read(str(tmp_path)) == removed.Removed(0, {})

    @pytest.mark.crash
    def test_a_crash_between_the_note_and_the_removal(self, tmp_path: Path) -> None:
        class CrashingDisk(Disk):
            def remove(self, path: str) -> None:
                raise OSError(5, "Input/output error")

        make_log(tmp_path, "AB", "B")
        consumers = Consumers(tmp_path)
        consumers.register("fast", start=3)
        consumers.register("none", hold=Hold(Policy.NONE))
        with pytest.raises(TailraceError) as caught:
            retain(tmp_path, disk=CrashingDisk())
        assert caught.value.code == "log.io"
        assert offsets_of(tmp_path) == [0, 1, 2]
        assert consumers.get("none").state is State.LIVE
        assert consumers.register("new").state is State.LIVE


class TestBeside:
    def test_a_consumer_that_registers_meanwhile_loses_nothing(self, log: Path) -> None:
        """It waits until retention is through, and begins where the log then begins."""
        consumers = Consumers(log)
        consumers.register("fast", start=12)
        registering = threading.Thread(target=lambda: Consumers(log).register("late"))
        result = retain(log, disk=ActingDisk(registering.start, before_remove=segment_name(0)))
        registering.join()
        assert bases(result.removed) == [0, 3, 6]
        late = consumers.get("late")
        assert late.state is State.LIVE
        assert consumers.position(late) == 8

    def test_a_reader_goes_on_in_a_segment_that_was_removed(self, log: Path) -> None:
        Consumers(log).register("c", start=12)
        entries = LogReader(log).entries()
        assert next(entries).offset == 0
        retain(log)
        assert next(entries).offset == 1
        assert next(entries).offset == 2
        with pytest.raises(TailraceError) as caught:
            next(entries)
        assert caught.value.code == "log.below_oldest"
        assert "oldest is 9" in caught.value.what

    def test_a_writer_goes_on(self, log: Path) -> None:
        Consumers(log).register("c", start=12)
        with CommitLog.open(log) as writer:
            fill(writer, "B")
            retain(log)
            writer.roll()
            fill(writer, "C")
        assert contents_of(log) == [(9, "A"), (10, "A"), (11, "A"), (12, "B"), (13, "C")]

    def test_one_at_a_time(self, log: Path) -> None:
        Consumers(log).register("c", start=12)
        with maintaining(str(log)), pytest.raises(TailraceError) as caught:
            retain(log)
        assert caught.value.code == "log.busy"
        assert list_segments(str(log)) == [0, 3, 6, 9]

    @pytest.mark.crash
    def test_a_segment_is_gone_for_good_before_the_next_one_goes(self, log: Path) -> None:
        """Otherwise a power cut could bring an older one back, with a gap behind it."""
        Consumers(log).register("c", start=12)
        disk = TellingDisk()
        retain(log, disk=disk)
        removals = [at for at, call in enumerate(disk.calls) if call[0] == "remove" and call[1].endswith(".log")]
        assert [disk.calls[at][1] for at in removals] == [segment_name(base) for base in (0, 3, 6)]
        assert all(disk.calls[at + 1] == ("sync_directory", log.name) for at in removals)

    @pytest.mark.crash
    def test_a_crash_at_every_step_leaves_a_log(self, log: Path, tmp_path: Path) -> None:
        class DyingDisk(Disk):
            def __init__(self, steps: int) -> None:
                self.steps = steps

            def remove(self, path: str) -> None:
                self._step()
                super().remove(path)

            def rename(self, old: str, new: str) -> None:
                self._step()
                super().rename(old, new)

            def sync_directory(self, path: str) -> None:
                self._step()
                super().sync_directory(path)

            def _step(self) -> None:
                if self.steps == 0:
                    raise OSError(5, "Input/output error")
                self.steps -= 1

        Consumers(log).register("c", start=9)
        beginnings = []
        for step in itertools.count():
            copy = tmp_path / f"crash {step}"
            shutil.copytree(log, copy)
            disk = DyingDisk(step)
            with contextlib.suppress(TailraceError):
                retain(copy, disk=disk)
            left = offsets_of(copy)
            assert left == list(range(left[0], 12))
            beginnings.append(left[0])
            assert verify(copy).problems == []
            assert Consumers(copy).get("c").state is State.LIVE
            CommitLog.open(copy).close()
            retain(copy)
            assert offsets_of(copy) == [9, 10, 11]
            if disk.steps:
                break
        assert sorted(set(beginnings)) == [0, 3, 6, 9]
        assert beginnings == sorted(beginnings)
