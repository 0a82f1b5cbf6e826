"""The commit log: groups whole or not at all, durable when acknowledged, one writer, and what happens when it fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.errors import TailraceError
from tailrace.limits import GIB, INDEX_INTERVAL_BYTES, KIB, MIB
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.disk import Disk
from tailrace.log.reader import LogReader
from tailrace.log.segment import list_segments, segment_name
from tailrace.log.verification import verify
from tests.log.batches import bulky, log_numbers, number_of, numbered
from tests.log.children import DEADLINE_S, Child, wait_until
from tests.log.disks import (
    CountingDisk,
    FailingDisk,
    GatedDisk,
    io_error,
    never,
    no_space,
    on,
    path_of,
    read_only,
    sync_failed,
)
from tests.log.refusals import refused

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ROLLING = LogConfig(segment_bytes=1)
"""Every group gets a segment of its own."""


def assert_sound(directory: Path) -> None:
    found = verify(directory)
    assert found.problems == []
    assert found.remarks == []


class TestGroups:
    def test_offsets_follow_each_other(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            assert log.next_offset == 0
            assert log.append([numbered(0, 1, 2)]) == (0, 3)
            assert log.append([numbered(3), numbered(4, 5, namespace="other")]) == (3, 6)
            assert log.next_offset == 6
        with CommitLog.open(tmp_path) as log:
            assert log.report.is_clean
            assert log.append([numbered(6)]) == (6, 7)
        assert log_numbers(tmp_path) == list(range(7))
        assert_sound(tmp_path)

    def test_last_frame_of_a_group_says_so(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0), numbered(1), numbered(2)])
            log.append([numbered(3)])
        assert [frame.head.closes_group for frame in LogReader(tmp_path).frames()] == [False, False, True, True]

    def test_group_is_seen_only_when_it_is_complete(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            reader = LogReader(tmp_path)
            with log.group() as group:
                for number in range(1, 8):
                    group.add(bulky(number, MIB))  # written to the file while the group is made
                    assert log_numbers(tmp_path) == [0]
                    assert reader.next_offset == 1
                assert os.stat(tmp_path / segment_name(0)).st_size > 4 * MIB
            assert group.range == (1, 8)
            assert log_numbers(tmp_path) == list(range(8))

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    @pytest.mark.parametrize("size", [10, 3 * MIB], ids=["small", "large"])
    def test_exception_takes_the_group_back(self, tmp_path: Path, error: type[BaseException], size: int) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            before = (tmp_path / segment_name(0)).read_bytes()
            with pytest.raises(error), log.group() as group:
                group.add(bulky(7, size))
                group.add(bulky(8, size))
                raise error
            assert (tmp_path / segment_name(0)).read_bytes() == before
            assert log.next_offset == 1
            assert log.append([numbered(1)]) == (1, 2)
        assert log_numbers(tmp_path) == [0, 1]
        assert_sound(tmp_path)

    def test_exception_while_batches_are_made_takes_the_group_back(self, tmp_path: Path) -> None:
        def batches() -> Iterator[Any]:
            yield numbered(7)
            raise ValueError

        with CommitLog.open(tmp_path) as log:
            with pytest.raises(ValueError):
                log.append(batches())
            assert log.append([numbered(0)]) == (0, 1)
        assert log_numbers(tmp_path) == [0]

    def test_group_without_messages_is_none(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            with log.group() as group:
                pass
            assert group.range == (0, 0)
        assert log_numbers(tmp_path) == []
        assert (tmp_path / segment_name(0)).stat().st_size == 0

    @pytest.mark.parametrize("step", ["append", "group", "roll", "close"])
    def test_nothing_else_is_done_inside_a_group(self, tmp_path: Path, step: str) -> None:
        def group(log: CommitLog) -> None:
            with log.group():
                pass

        steps: dict[str, Callable[[CommitLog], object]] = {
            "append": lambda log: log.append([numbered(8)]),
            "group": group,
            "roll": CommitLog.roll,
            "close": CommitLog.close,
        }
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            with refused("log.busy"), log.group() as outer:
                outer.add(numbered(7))
                steps[step](log)
            assert log.append([numbered(1)]) == (1, 2)
        assert log_numbers(tmp_path) == [0, 1]


class TestSegments:
    def test_default_size_is_one_gibibyte(self) -> None:
        assert LogConfig().segment_bytes == GIB

    def test_full_segment_is_sealed_before_the_next_group(self, tmp_path: Path) -> None:
        config = LogConfig(segment_bytes=10 * KIB)
        with CommitLog.open(tmp_path, config) as log:
            ranges = [log.append([bulky(2 * at, 3 * KIB), bulky(2 * at + 1, 3 * KIB)]) for at in range(5)]
        bases = list_segments(str(tmp_path))
        assert bases == [0, 4, 8]
        assert set(bases) <= {group.first for group in ranges}
        for base in bases[:-1]:
            assert (tmp_path / segment_name(base)).stat().st_size >= config.segment_bytes
            assert (tmp_path / f"{base:020d}.index").exists()
            assert (tmp_path / f"{base:020d}.toc").exists()
        assert not (tmp_path / f"{bases[-1]:020d}.toc").exists()
        assert log_numbers(tmp_path) == list(range(10))
        assert_sound(tmp_path)

    def test_group_is_never_split(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path, ROLLING) as log, log.group() as group:
            for number in range(6):
                group.add(bulky(number, MIB))
        assert list_segments(str(tmp_path)) == [0]

    def test_log_goes_on_after_it_was_opened_again(self, tmp_path: Path) -> None:
        for number in range(5):
            with CommitLog.open(tmp_path, ROLLING) as log:
                assert log.report.is_clean
                assert log.append([numbered(number)]) == (number, number + 1)
        assert list_segments(str(tmp_path)) == [0, 1, 2, 3, 4]
        assert log_numbers(tmp_path) == [0, 1, 2, 3, 4]

    def test_roll_seals_what_there_is(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.roll()
            assert list_segments(str(tmp_path)) == [0]
            log.append([numbered(0)])
            log.roll()
            log.roll()
            assert list_segments(str(tmp_path)) == [0, 1]
            assert log_numbers(tmp_path) == [0]
            log.append([numbered(1)])
        assert log_numbers(tmp_path) == [0, 1]

    def test_files_are_for_their_owner_only(self, tmp_path: Path) -> None:
        directory = tmp_path / "log"
        with CommitLog.open(directory, ROLLING) as log:
            log.append([numbered(0)])
            log.append([numbered(1)])
        assert directory.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}

    @pytest.mark.parametrize("settings", [{"segment_bytes": 0}, {"segment_bytes": -1}, {"sync_every_s": -0.1}])
    def test_settings_that_make_no_sense_are_refused(self, settings: dict[str, Any]) -> None:
        with refused("input.invalid"):
            LogConfig(**settings)


class Diary(Disk):
    """Writes down what is done to which file."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def create(self, path: str) -> int:
        self.lines.append(f"create {os.path.basename(path)}")
        return super().create(path)

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], at: int) -> int:
        self.lines.append(f"write {os.path.basename(path_of(fd))}")
        return super().write(fd, buffers, at)

    def sync(self, fd: int) -> None:
        self.lines.append(f"sync {os.path.basename(path_of(fd))}")
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self.lines.append("sync directory")
        super().sync_directory(path)


class TestDurability:
    def test_every_group_is_synced_by_default(self, tmp_path: Path) -> None:
        disk = CountingDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            for number in range(4):
                log.append([numbered(number), numbered(number)])
                assert disk.segment_syncs == number + 1
            with log.group() as group:
                group.add(numbered(4))
            assert disk.segment_syncs == 5
            log.sync()
        assert disk.segment_syncs == 5

    def test_sync_asks_the_kernel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []

        def asking(call: Callable[[int], None]) -> Callable[[int], None]:
            def ask(fd: int) -> None:
                asked.append(os.path.basename(path_of(fd)))
                call(fd)

            return ask

        monkeypatch.setattr(os, "fdatasync", asking(os.fdatasync))
        monkeypatch.setattr(os, "fsync", asking(os.fsync))
        with CommitLog.open(tmp_path, ROLLING) as log:
            assert tmp_path.name in asked
            log.append([numbered(0)])
            assert asked.count(segment_name(0)) == 1
            entries = asked.count(tmp_path.name)
            log.append([numbered(1)])
            assert asked.count(tmp_path.name) == entries + 1
            assert asked.count(segment_name(1)) == 1

    def test_group_is_published_after_it_is_on_disk_and_not_before(self, tmp_path: Path) -> None:
        """I1, the directory entry of a new segment included."""
        disk = Diary()
        with CommitLog.open(tmp_path, ROLLING, disk=disk) as log:
            for number in range(3):
                log.append([numbered(number)])
        for base in range(3):
            name = segment_name(base)
            created, written = disk.lines.index(f"create {name}"), disk.lines.index(f"write {name}")
            published = disk.lines.index("write head", written)
            assert "sync directory" in disk.lines[created:written]
            assert f"sync {name}" in disk.lines[written:published]

    def test_interval_acknowledges_at_once_and_syncs_later(self, tmp_path: Path) -> None:
        disk = CountingDisk()
        with CommitLog.open(tmp_path, LogConfig(sync_every_s=3600), disk=disk) as log:
            log.append([numbered(0)])
            log.append([numbered(1)])
            assert disk.segment_syncs == 0
            assert log_numbers(tmp_path) == [0, 1]
            log.sync()
            assert disk.segment_syncs == 1
            log.sync()
            assert disk.segment_syncs == 1
            log.append([numbered(2)])
        assert disk.segment_syncs == 2

    def test_interval_syncs_by_itself(self, tmp_path: Path) -> None:
        disk = CountingDisk()
        with CommitLog.open(tmp_path, LogConfig(sync_every_s=0.001), disk=disk) as log:
            log.append([numbered(0)])
            wait_until(lambda: disk.segment_syncs == 1)
            log.append([numbered(1)])
            wait_until(lambda: disk.segment_syncs == 2)

    def test_never_leaves_it_to_the_system(self, tmp_path: Path) -> None:
        disk = CountingDisk()
        with CommitLog.open(tmp_path, LogConfig(sync_every_s=None), disk=disk) as log:
            for number in range(5):
                log.append([numbered(number)])
            assert disk.segment_syncs == 0
            assert log_numbers(tmp_path) == list(range(5))
        assert disk.segment_syncs == 1

    @pytest.mark.parametrize("sync_every_s", [0.0, 3600.0, None])
    def test_sealed_segment_is_synced_whatever_the_settings(self, tmp_path: Path, sync_every_s: float | None) -> None:
        disk = CountingDisk()
        with CommitLog.open(tmp_path, LogConfig(segment_bytes=1, sync_every_s=sync_every_s), disk=disk) as log:
            log.append([numbered(0)])
            log.append([numbered(1)])
            assert segment_name(0) in disk.synced


class TestAppendSoon:
    def test_group_is_seen_when_it_is_durable_and_not_before(self, tmp_path: Path) -> None:
        disk = GatedDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            pending = log.append_soon([numbered(0)])
            assert pending.range == (0, 1)
            assert disk.waiting.wait(DEADLINE_S)
            assert log_numbers(tmp_path) == []
            disk.gate.set()
            assert pending.wait() == (0, 1)
            assert log_numbers(tmp_path) == [0]

    def test_group_becomes_durable_though_nobody_waits(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append_soon([numbered(0)])
            wait_until(lambda: LogReader(tmp_path).next_offset == 1)

    def test_one_sync_serves_all_groups_written_before_it(self, tmp_path: Path) -> None:
        disk = GatedDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            first = log.append_soon([numbered(0)])
            assert disk.waiting.wait(DEADLINE_S)
            rest = [log.append_soon([numbered(number)]) for number in range(1, 20)]
            disk.gate.set()
            assert [pending.wait() for pending in (first, *rest)] == [(number, number + 1) for number in range(20)]
            assert disk.segment_syncs == 2
        assert log_numbers(tmp_path) == list(range(20))

    @pytest.mark.parametrize("sync_every_s", [0.0, 3600.0, None])
    def test_waiting_after_the_log_was_closed(self, tmp_path: Path, sync_every_s: float | None) -> None:
        """Closing makes everything durable, so there is nothing to complain about."""
        with CommitLog.open(tmp_path, LogConfig(sync_every_s=sync_every_s)) as log:
            pending = log.append_soon([numbered(0)])
        assert pending.wait() == (0, 1)
        assert log_numbers(tmp_path) == [0]

    def test_failed_sync_reaches_who_waits(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            disk.sync_fails = on(".log", sync_failed)
            pending = log.append_soon([numbered(0)])
            with refused("log.fsync_failed", "log.failed"):
                pending.wait()
            with refused("log.failed"):
                log.append_soon([numbered(1)])
            assert log_numbers(tmp_path) == []


class TestThreads:
    def test_many_threads_share_syncs(self, tmp_path: Path) -> None:
        """While the first sync is under way all others write; the second sync is for all of them."""
        disk = GatedDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            threads = [threading.Thread(target=log.append, args=([numbered(number)],)) for number in range(8)]
            for thread in threads:
                thread.start()
            wait_until(lambda: log.next_offset == 8)
            disk.gate.set()
            for thread in threads:
                thread.join(DEADLINE_S)
            assert disk.segment_syncs == 2
        assert sorted(log_numbers(tmp_path)) == list(range(8))

    def test_groups_of_many_threads_stay_whole_and_in_order(self, tmp_path: Path) -> None:
        groups, size = 30, 3
        acknowledged: list[list[tuple[int, int]]] = [[] for _ in range(4)]
        failures: list[BaseException] = []

        def append(thread: int) -> None:
            for group in range(groups):
                numbers = [thread * 1000 + group] * size
                acknowledged[thread].append(log.append([numbered(number) for number in numbers]))

        def watch() -> None:
            reader = LogReader(tmp_path)
            try:
                while not stop.is_set():
                    seen = [number_of(entry) for entry in reader.entries()]
                    assert len(seen) % size == 0
                    assert all(len(set(seen[at : at + size])) == 1 for at in range(0, len(seen), size))
            except BaseException as failure:  # noqa: BLE001  handed to the test
                failures.append(failure)

        stop = threading.Event()
        with CommitLog.open(tmp_path, LogConfig(segment_bytes=16 * KIB)) as log:
            watcher = threading.Thread(target=watch)
            threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
            for thread in (watcher, *threads):
                thread.start()
            for thread in threads:
                thread.join(DEADLINE_S)
            stop.set()
            watcher.join(DEADLINE_S)
        assert failures == []
        found = log_numbers(tmp_path)
        assert len(found) == 4 * groups * size
        for number, ranges in enumerate(acknowledged):
            assert ranges == sorted(ranges)
            assert [found[first:end] for first, end in ranges] == [[number * 1000 + at] * size for at in range(groups)]
        assert_sound(tmp_path)


def everything_one_can_do(log: CommitLog) -> list[Callable[[], object]]:
    def group() -> None:
        with log.group() as group:
            group.add(numbered(9))

    return [
        lambda: log.append([numbered(9)]),
        lambda: log.append([numbered(9)], batch_id="b"),
        lambda: log.append_soon([numbered(9)]),
        lambda: log.publish("b", []),
        group,
        log.sync,
        log.roll,
    ]


class TestClosed:
    def test_closed_log_refuses_everything(self, tmp_path: Path) -> None:
        log = CommitLog.open(tmp_path)
        log.append([numbered(0)])
        log.close()
        log.close()
        for step in everything_one_can_do(log):
            with refused("log.closed", saying=str(tmp_path)):
                step()
        assert log_numbers(tmp_path) == [0]


OPEN = """
import sys
from tailrace.log.commitlog import CommitLog
from tests.log.batches import numbered
log = CommitLog.open(sys.argv[1])
log.append([numbered(0)])
log.append([numbered(1)])
print("open", flush=True)
sys.stdin.readline()
log.close()
print("closed", flush=True)
"""


class TestOneWriter:
    def test_second_writer_in_the_same_process_is_refused(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            with refused("log.locked", saying=f"process {os.getpid()} on"):
                CommitLog.open(tmp_path)
            log.append([numbered(1)])
        with CommitLog.open(tmp_path) as log:
            assert log.report.is_clean
        assert log_numbers(tmp_path) == [0, 1]

    def test_second_writer_in_another_process_is_refused(self, tmp_path: Path) -> None:
        with Child(OPEN, str(tmp_path)) as child:
            assert child.line() == "open"
            with refused("log.locked", saying=f"process {child.pid} on") as refusal:
                CommitLog.open(tmp_path)
            assert refusal.value.place is not None
            assert refusal.value.place.file == str(tmp_path)
            child.tell("close")
            assert child.rest() == ["closed"]
        with CommitLog.open(tmp_path) as log:
            assert log.report.is_clean
            assert log.append([numbered(2)]) == (2, 3)
        assert log_numbers(tmp_path) == [0, 1, 2]

    @pytest.mark.crash
    def test_lock_of_a_killed_writer_is_found_out_and_reported(self, tmp_path: Path) -> None:
        with Child(OPEN, str(tmp_path)) as child:
            assert child.line() == "open"
            child.kill()
        with CommitLog.open(tmp_path) as log:
            assert log.report.previous_writer is not None
            assert log.report.previous_writer.pid == child.pid
            assert not log.report.is_clean
            assert log.report.cut is None
            assert log.append([numbered(2)]) == (2, 3)
        with CommitLog.open(tmp_path) as log:
            assert log.report.is_clean
        assert log_numbers(tmp_path) == [0, 1, 2]

    def test_refused_log_is_not_left_locked(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
        path = tmp_path / segment_name(0)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        for _ in range(2):
            with refused("log.corrupt"):
                CommitLog.open(tmp_path)
        path.write_bytes(whole)
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(1)])
        assert log_numbers(tmp_path) == [0, 1]


@pytest.mark.crash
class TestFailedSync:
    def test_it_is_fatal_and_not_tried_again(self, tmp_path: Path) -> None:
        """I7."""
        disk = FailingDisk()
        log = CommitLog.open(tmp_path, disk=disk)
        log.append([numbered(0)])
        disk.sync_fails = on(".log", sync_failed)
        with refused("log.fsync_failed") as refusal:
            log.append([numbered(1)])
        assert refusal.value.place is not None
        assert refusal.value.place.file == str(tmp_path / segment_name(0))
        calls = disk.sync_calls
        disk.sync_fails = never
        for step in everything_one_can_do(log):
            with refused("log.failed", saying="did not confirm"):
                step()
        log.close()
        assert disk.sync_calls == calls
        assert log_numbers(tmp_path) == [0]

    def test_log_opened_again_makes_durable_what_it_shows(self, tmp_path: Path) -> None:
        """The group of the failed sync may come back, but then it was written and synced anew."""
        disk = FailingDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            log.append([numbered(0)])
            disk.sync_fails = on(".log", sync_failed)
            with refused("log.fsync_failed"):
                log.append([numbered(1)])
        diary = Diary()
        with CommitLog.open(tmp_path, disk=diary) as log:
            assert log.report.previous_writer is not None
            name = segment_name(0)
            written = diary.lines.index(f"write {name}")
            assert diary.lines.index(f"sync {name}") > written
            log.append([numbered(2)])
        assert log_numbers(tmp_path) == [0, 1, 2]

    @pytest.mark.parametrize("sync_every_s", [3600.0, None])
    def test_explicit_sync_reports_it(self, tmp_path: Path, sync_every_s: float | None) -> None:
        disk = FailingDisk()
        with CommitLog.open(tmp_path, LogConfig(sync_every_s=sync_every_s), disk=disk) as log:
            log.append([numbered(0)])
            disk.sync_fails = on(".log", sync_failed)
            with refused("log.fsync_failed"):
                log.sync()
            with refused("log.failed"):
                log.append([numbered(1)])

    def test_close_reports_it_and_frees_the_lock(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        log = CommitLog.open(tmp_path, LogConfig(sync_every_s=3600), disk=disk)
        log.append([numbered(0)])
        disk.sync_fails = on(".log", sync_failed)
        with refused("log.fsync_failed"):
            log.close()
        calls = disk.sync_calls
        log.close()
        assert disk.sync_calls == calls
        with CommitLog.open(tmp_path) as log:
            assert log.report.previous_writer is not None
        assert log_numbers(tmp_path) == [0]

    def test_background_sync_stops_the_log(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        with CommitLog.open(tmp_path, LogConfig(sync_every_s=0.001), disk=disk) as log:
            log.append([numbered(0)])
            wait_until(lambda: disk.segment_syncs == 1)
            disk.sync_fails = on(".log", sync_failed)
            before = disk.sync_calls
            log.append([numbered(1)])
            wait_until(lambda: disk.sync_calls > before)

            def is_failed() -> bool:
                try:
                    log.append([numbered(2)])
                except TailraceError as error:
                    return error.code == "log.failed"
                return False

            wait_until(is_failed)
            assert disk.sync_calls == before + 1

    def test_directory_of_a_new_segment_counts_too(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        with CommitLog.open(tmp_path, ROLLING, disk=disk) as log:
            log.append([numbered(0)])
            disk.sync_fails = on(tmp_path.name, sync_failed)
            with refused("log.fsync_failed"):
                log.append([numbered(1)])
            disk.sync_fails = never
            with refused("log.failed"):
                log.append([numbered(1)])
        with CommitLog.open(tmp_path, ROLLING) as log:
            log.append([numbered(1)])
        assert log_numbers(tmp_path) == [0, 1]
        assert_sound(tmp_path)


@contextmanager
def full(disk: FailingDisk, suffix: str, error: Callable[[], OSError] = no_space) -> Iterator[None]:
    """Files whose names end so cannot be written meanwhile."""
    disk.write_fails = on(suffix, error)
    try:
        yield
    finally:
        disk.write_fails = never


@pytest.mark.crash
class TestFullDisk:
    @pytest.mark.parametrize("torn_bytes", [0, 1, 100])
    def test_group_is_taken_back_and_the_next_one_works(self, tmp_path: Path, torn_bytes: int) -> None:
        disk = FailingDisk()
        disk.torn_bytes = torn_bytes
        with CommitLog.open(tmp_path, disk=disk) as log:
            log.append([numbered(0)])
            before = (tmp_path / segment_name(0)).read_bytes()
            for _ in range(2):
                with full(disk, ".log"), refused("log.disk_full") as refusal:
                    log.append([numbered(7), numbered(8)])
                assert refusal.value.place is not None
                assert refusal.value.place.file == str(tmp_path / segment_name(0))
                assert (tmp_path / segment_name(0)).read_bytes() == before
                assert log_numbers(tmp_path) == [0]
            assert log.append([numbered(1)]) == (1, 2)
        assert log_numbers(tmp_path) == [0, 1]
        assert_sound(tmp_path)

    def test_disk_that_fills_up_in_the_middle_of_a_group(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        disk.torn_bytes = MIB
        with CommitLog.open(tmp_path, disk=disk) as log:
            log.append([numbered(0)])
            size = (tmp_path / segment_name(0)).stat().st_size
            with full(disk, "nothing"), refused("log.disk_full"), log.group() as group:
                for number in range(7, 12):
                    group.add(bulky(number, MIB))
                assert (tmp_path / segment_name(0)).stat().st_size > size
                disk.write_fails = on(".log", no_space)
                for number in range(12, 20):
                    group.add(bulky(number, MIB))
            assert (tmp_path / segment_name(0)).stat().st_size == size
            assert log.append([numbered(1)]) == (1, 2)
        assert log_numbers(tmp_path) == [0, 1]
        assert_sound(tmp_path)

    def test_index_without_room_leaves_no_trace_of_the_group(self, tmp_path: Path) -> None:
        """Least of all its batch id: a batch that seems to be in the log would never be appended."""
        disk = FailingDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            with full(disk, ".index"), refused("log.disk_full"):
                log.append([numbered(7, timestamp=99)], batch_id="b")
            assert log.append([numbered(0)]) == (0, 1)
            log.roll()
            assert log.append([numbered(1)], batch_id="b") == (1, 2)
        assert_sound(tmp_path)
        with CommitLog.open(tmp_path) as log:
            assert log.report.is_clean
            assert log.append([numbered(9)], batch_id="b") == (1, 2)
        assert log_numbers(tmp_path) == [0, 1]

    def test_index_without_room_does_not_go_wrong(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            log.append([bulky(0, INDEX_INTERVAL_BYTES - 100 * KIB)])
            with full(disk, ".index"), refused("log.disk_full"):
                log.append([bulky(7, 100 * KIB), numbered(7, timestamp=99)])  # the second one is due in the index
            log.append([bulky(1, INDEX_INTERVAL_BYTES)])
            log.append([numbered(2)])
            log.roll()
        assert_sound(tmp_path)
        assert log_numbers(tmp_path) == [0, 1, 2]

    def test_segment_that_cannot_be_sealed_yet_is_sealed_later(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        with CommitLog.open(tmp_path, ROLLING, disk=disk) as log:
            log.append([numbered(0)])
            for _ in range(2):
                with full(disk, ".tmp"), refused("log.disk_full"):
                    log.append([numbered(7)])
                assert log_numbers(tmp_path) == [0]
            assert log.append([numbered(1)]) == (1, 2)
        assert log_numbers(tmp_path) == [0, 1]
        assert_sound(tmp_path)

    def test_new_segment_that_finds_no_room_is_made_later(self, tmp_path: Path) -> None:
        """The old segment is sealed, then the disk is full."""

        class Full(CountingDisk):
            is_full = False

            def create(self, path: str) -> int:
                if self.is_full and path.endswith(".log"):
                    raise no_space()
                return super().create(path)

        disk = Full()
        with CommitLog.open(tmp_path, ROLLING, disk=disk) as log:
            log.append([numbered(0)])
            disk.is_full = True
            with refused("log.disk_full"):
                log.append([numbered(7)])
            disk.is_full = False
            assert log.append([numbered(1)]) == (1, 2)
        assert log_numbers(tmp_path) == [0, 1]
        assert_sound(tmp_path)

    def test_group_that_cannot_be_taken_back_stops_the_log(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        disk.torn_bytes = 100
        with CommitLog.open(tmp_path, disk=disk) as log:
            log.append([numbered(0)])
            disk.truncate_fails = on(".log", io_error)
            with full(disk, ".log"), refused("log.disk_full"):
                log.append([numbered(7)])
            with refused("log.failed", saying="taking back"):
                log.append([numbered(7)])
        with CommitLog.open(tmp_path) as log:
            assert log.report.cut is not None
            assert log.report.cut.cut_bytes == 100
            assert log.append([numbered(1)]) == (1, 2)
        assert log_numbers(tmp_path) == [0, 1]

    def test_group_that_cannot_be_published_is_not_lost_and_not_doubled(self, tmp_path: Path) -> None:
        """It is on disk already. An error after which the same group could be appended again would double it."""
        disk = FailingDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            log.append([numbered(0)])
            with full(disk, "/head"), refused("log.disk_full"):
                log.append([numbered(1)])
            with refused("log.failed"):
                log.append([numbered(1)])
        with CommitLog.open(tmp_path) as log:
            assert log.next_offset == 2
        assert log_numbers(tmp_path) == [0, 1]

    def test_writes_that_take_only_a_part_are_gone_on_with(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stingy(fd: int, buffers: Sequence[Any], at: int) -> int:
            return os.pwrite(fd, b"".join(map(bytes, buffers))[:7], at)

        with CommitLog.open(tmp_path) as log:
            monkeypatch.setattr(os, "pwritev", stingy)
            log.append([numbered(0), numbered(1, namespace="other")])
            log.append([numbered(2)])
        assert log_numbers(tmp_path) == [0, 1, 2]
        assert_sound(tmp_path)

    def test_disk_that_takes_nothing_is_an_error_and_no_endless_loop(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            with monkeypatch.context() as patched:
                patched.setattr(os, "pwritev", lambda fd, buffers, at: 0)
                with refused("log.io"):
                    log.append([numbered(7)])
            log.append([numbered(1)])
        assert log_numbers(tmp_path) == [0, 1]


@contextmanager
def nobody(directory: Path) -> Iterator[str]:
    """A path to a directory in which we may not write. Root may everywhere, so for a while we are somebody else."""
    parent = os.open(directory.parent, os.O_RDONLY)  # the way to it may be closed to somebody else
    for path in (directory, directory.parent):
        path.chmod(0o555)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65534)
        yield f"/proc/self/fd/{parent}/{directory.name}"
    finally:
        if is_root:
            os.seteuid(0)
        for path in (directory, directory.parent):
            path.chmod(0o700)
        os.close(parent)


class TestReadOnly:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        (tmp_path / "log").mkdir()
        return tmp_path / "log"

    def test_new_log_in_a_read_only_directory_is_refused(self, directory: Path) -> None:
        with nobody(directory) as path:
            with refused("log.read_only", saying=path):
                CommitLog.open(path)
            with refused("log.read_only", saying=path):
                CommitLog.open(f"{path}/new")
        assert list(directory.iterdir()) == []

    def test_log_in_a_read_only_directory_is_read_but_not_written(self, directory: Path) -> None:
        with CommitLog.open(directory) as log:
            log.append([numbered(0)])
        for file in directory.iterdir():
            file.chmod(0o444)
        with nobody(directory) as path:
            with refused("log.read_only", saying=path):
                CommitLog.open(path)
            assert log_numbers(path) == [0]

    def test_disk_that_turns_read_only_takes_nothing_more(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            log.append([numbered(0)])
            with full(disk, ".log", read_only), refused("log.read_only"):
                log.append([numbered(7)])
            assert log_numbers(tmp_path) == [0]

    def test_directory_that_cannot_be_made_is_an_error_of_ours(self, tmp_path: Path) -> None:
        with refused("log.io", saying="No such file"):
            CommitLog.open(tmp_path / "missing" / "log")
        (tmp_path / "file").touch()
        with refused("log.io", saying="Not a directory"):
            CommitLog.open(tmp_path / "file")
