"""Staging: what many tasks wrote is published in one step, once, or not at all."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.limits import FRAME_BYTES_MAX, MIB, STAGING_KEEP_S
from tailrace.log.batch import Batch, batches_of
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.compaction import compact
from tailrace.log.frame import encode_plain
from tailrace.log.reader import LogReader
from tailrace.log.segment import segment_name
from tailrace.log.staging import Staged, Staging
from tailrace.log.verification import verify
from tailrace.message import Message, Micros, Mode, NodeId, Op
from tests.log.batches import bulky, log_numbers, message, numbered, numbers
from tests.log.children import Child
from tests.log.disks import CountingDisk, FailingDisk, no_space, on, sync_failed
from tests.log.files import flipped, overwrite
from tests.log.refusals import refused


def stage(directory: Path, batch_id: str, task: str, *batches: Batch) -> Staged:
    writer = Staging(directory).writer(batch_id, task)
    for batch in batches:
        writer.add(batch)
    return writer.close()


TASK = """
import sys
from tailrace.log.staging import Staging
from tests.log.batches import numbered
writer = Staging(sys.argv[1]).writer("b", "task-" + sys.argv[2])
writer.add(numbered(int(sys.argv[2])))
staged = writer.close()
print(staged.name, staged.frames, staged.messages, staged.size)
"""


def staging_files(directory: Path) -> list[str]:
    root = directory / "staging"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


class TestPublish:
    def test_all_tasks_become_one_group_in_the_order_given(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            parts = [
                stage(tmp_path, "b", f"t{task}", numbered(2 * task + 1), numbered(2 * task + 2)) for task in (0, 1)
            ]
            assert log_numbers(tmp_path) == [0]
            assert log.publish("b", parts) == (1, 5)
        assert log_numbers(tmp_path) == [0, 1, 2, 3, 4]
        heads = [frame.head for frame in LogReader(tmp_path).frames()]
        assert [head.closes_group for head in heads] == [True, False, False, False, True]
        assert [head.batch_ids for head in heads] == [(), (), (), (), ("b",)]
        assert staging_files(tmp_path) == []
        assert verify(tmp_path).problems == []

    def test_messages_keep_all_they_had(self, tmp_path: Path) -> None:
        given = [
            Message(
                Op.UPDATE, Micros(9), "shop.orders", {"n": 1}, {"n": 0}, NodeId(3), tx="x", destinations=("north",)
            ),
            Message(Op.DELETE, Micros(8), "shop.orders", None, {"n": 1}, NodeId(3)),
        ]
        with CommitLog.open(tmp_path) as log:
            log.publish("b", [stage(tmp_path, "b", "t", *batches_of(given, Mode.COPY))])
        entries = list(LogReader(tmp_path).entries())
        assert [entry.message for entry in entries] == given
        assert {entry.mode for entry in entries} == {Mode.COPY}

    def test_staged_frames_are_on_disk_before_the_task_is_done(self, tmp_path: Path) -> None:
        disk = CountingDisk()
        writer = Staging(tmp_path, disk=disk).writer("b", "t")
        writer.add(numbered(1))
        assert not any(name.endswith(".frames") for name in disk.synced)
        staged = writer.close()
        assert disk.synced[-2:] == [staged.name, "b/"]

    def test_batches_above_the_limit_are_split(self, tmp_path: Path) -> None:
        whole = [message(n) for n in range(2)]
        (batch,) = batches_of(
            [replace(one, data={**(one.data or {}), "noise": os.urandom(FRAME_BYTES_MAX // 3)}) for one in whole]
        )
        with CommitLog.open(tmp_path) as log:
            staged = stage(tmp_path, "b", "t", batch)
            assert (staged.frames, staged.messages) == (2, 2)
            assert log.publish("b", [staged]) == (0, 2)
        assert log_numbers(tmp_path) == [0, 1]

    def test_nothing_staged_is_nothing_published(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            assert log.publish("b", []) == (0, 0)
            assert log.publish("c", [stage(tmp_path, "c", "t", numbered())]) == (0, 0)
            assert log.append([numbered(0)]) == (0, 1)
        assert log_numbers(tmp_path) == [0]

    def test_exception_in_a_task_removes_its_file(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError), Staging(tmp_path).writer("b", "t") as writer:
            writer.add(numbered(1))
            raise ValueError
        assert staging_files(tmp_path) == []

    def test_exception_after_a_task_was_done_closes_nothing_twice(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError), Staging(tmp_path).writer("b", "t") as writer:
            writer.add(numbered(1))
            writer.close()
            stranger = os.open(tmp_path, os.O_RDONLY)  # gets the number of the file that was just closed
            raise ValueError
        os.close(stranger)
        assert staging_files(tmp_path) == []

    def test_attempts_of_one_task_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        """A task that was thought dead goes on beside its replacement; only the file that was reported counts."""
        dead = Staging(tmp_path).writer("b", "t")
        dead.add(numbered(7))
        with CommitLog.open(tmp_path) as log:
            staged = stage(tmp_path, "b", "t", numbered(0))
            dead.close()
            assert len(staging_files(tmp_path)) == 2
            assert log.publish("b", [staged]) == (0, 1)
        assert log_numbers(tmp_path) == [0]
        assert staging_files(tmp_path) == []

    def test_tasks_in_other_processes_stage_beside_the_writer(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            with Child(TASK, str(tmp_path), "0") as zero, Child(TASK, str(tmp_path), "1") as one:
                told = [child.rest()[0].split() for child in (zero, one)]
            parts = [Staged(name, *map(int, counts)) for name, *counts in told]
            assert log.publish("b", parts) == (0, 2)
        assert log_numbers(tmp_path) == [0, 1]


class TestOnce:
    """Publishing a batch a second time changes nothing, whatever happened in between."""

    def published(self, directory: Path, log: CommitLog, batch_id: str = "b", *values: int) -> tuple[int, int]:
        return log.publish(batch_id, [stage(directory, batch_id, "t", numbered(*values))])

    def test_at_once(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            assert self.published(tmp_path, log, "b", 0, 1) == (0, 2)
            log.append([numbered(2)])
            assert self.published(tmp_path, log, "b", 7, 8, 9) == (0, 2)
            assert log.publish("b", []) == (0, 2)
            assert log.append([numbered(7)], batch_id="b") == (0, 2)
        assert log_numbers(tmp_path) == [0, 1, 2]
        assert staging_files(tmp_path) == []

    def test_after_the_log_was_opened_again(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            assert self.published(tmp_path, log, "b", 1, 2) == (1, 3)
        with CommitLog.open(tmp_path) as log:
            assert self.published(tmp_path, log, "b", 7) == (1, 3)
        assert log_numbers(tmp_path) == [0, 1, 2]

    @pytest.mark.parametrize("lose", [(), (".toc",), (".index", ".toc"), ("head",)])
    def test_after_the_segment_was_sealed(self, tmp_path: Path, lose: tuple[str, ...]) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            assert self.published(tmp_path, log, "b", 1, 2) == (1, 3)
            log.roll()
            log.append([numbered(3)])
        for path in list(tmp_path.iterdir()):
            if path.name.endswith(lose or ("nothing",)):
                path.unlink()
        with CommitLog.open(tmp_path) as log:
            assert self.published(tmp_path, log, "b", 7) == (1, 3)
            assert self.published(tmp_path, log, "c", 4) == (4, 5)
        assert log_numbers(tmp_path) == [0, 1, 2, 3, 4]

    def test_after_its_messages_were_compacted_away(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            for number in range(6):
                assert self.published(tmp_path, log, f"b{number}", number) == (number, number + 1)
            log.roll()
            assert compact(tmp_path, upto=5).segments
            for number in range(6):
                self.published(tmp_path, log, f"b{number}", 7)
        with CommitLog.open(tmp_path) as log:
            for number in range(6):
                first, end = self.published(tmp_path, log, f"b{number}", 7)
                assert first <= number < end
            assert log.next_offset == 6
        assert numbers(LogReader(tmp_path).entries()) == [(5, 5)]

    @pytest.mark.crash
    def test_after_a_crash_between_publishing_and_sweeping(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            staged = stage(tmp_path, "b", "t", numbered(0))
            shutil.copytree(tmp_path / "staging" / "b", tmp_path / "kept")
            log.publish("b", [staged])
        shutil.copytree(tmp_path / "kept", tmp_path / "staging" / "b")
        with CommitLog.open(tmp_path) as log:
            assert log.report.removed == ["staging/b"]
            assert staging_files(tmp_path) == []
            assert log.publish("b", [staged]) == (0, 1)
        assert log_numbers(tmp_path) == [0]


class TestRefusals:
    def test_missing_file_publishes_nothing(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            there = stage(tmp_path, "b", "t1", numbered(7))
            gone = stage(tmp_path, "b", "t2", numbered(8))
            (tmp_path / "staging" / "b" / gone.name).unlink()
            with refused("log.staging_missing", saying=gone.name):
                log.publish("b", [there, gone])
            assert log.next_offset == 0
            again = stage(tmp_path, "b", "t2", numbered(1))
            assert log.publish("b", [again]) == (0, 1)
        assert log_numbers(tmp_path) == [1]

    @pytest.mark.parametrize("field", ["frames", "messages", "size"])
    def test_file_that_is_not_as_its_task_said_publishes_nothing(self, tmp_path: Path, field: str) -> None:
        with CommitLog.open(tmp_path) as log:
            staged = stage(tmp_path, "b", "t", numbered(0), numbered(1))
            wrong = replace(staged, **{field: getattr(staged, field) + 1})
            with refused("log.staging_mismatch", saying=staged.name):
                log.publish("b", [wrong])
            assert log.next_offset == 0
            assert log.publish("b", [staged]) == (0, 2)
        assert log_numbers(tmp_path) == [0, 1]

    def test_damaged_file_publishes_nothing(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            staged = stage(tmp_path, "b", "t", numbered(0), numbered(1))
            path = tmp_path / "staging" / "b" / staged.name
            whole = path.read_bytes()
            for at in range(0, len(whole), 7):
                overwrite(path, flipped(whole, at * 8 + at % 8))
                with pytest.raises(TailraceError):
                    log.publish("b", [staged])
                overwrite(path, whole[:at])
                with pytest.raises(TailraceError):
                    log.publish("b", [staged])
            assert log.next_offset == 0
            path.write_bytes(whole)
            assert log.publish("b", [staged]) == (0, 2)
        assert log_numbers(tmp_path) == [0, 1]

    def test_file_of_documents_is_refused(self, tmp_path: Path) -> None:
        """A frame without a checksum did not come from a task of ours."""
        with CommitLog.open(tmp_path) as log:
            staged = stage(tmp_path, "b", "t", numbered(0))
            raw = encode_plain(offset=0, timestamp_s=0, mode=Mode.COPY, op=Op.INSERT, key=b"a", data=b"{}")
            (tmp_path / "staging" / "b" / staged.name).write_bytes(raw)
            with refused("log.staging_mismatch"):
                log.publish("b", [replace(staged, size=len(raw))])
            log.append([numbered(0)])
        assert log_numbers(tmp_path) == [0]

    @pytest.mark.parametrize("name", ["../head", "/etc/passwd", "a/b", "..", "nul\0", "x" * 300, ""])
    def test_names_that_are_paths_are_refused(self, tmp_path: Path, name: str) -> None:
        with CommitLog.open(tmp_path) as log:
            staged = stage(tmp_path, "b", "t", numbered(0))
            for step in (
                lambda: log.publish(name, [staged]),
                lambda: log.publish("b", [replace(staged, name=name)]),
                lambda: log.append([numbered(1)], batch_id=name),
                lambda: log.staging.writer(name, "t"),
                lambda: log.staging.writer("b", name),
                lambda: log.staging.discard(name),
            ):
                with refused("name.invalid"):
                    step()
            assert log.publish("b", [staged]) == (0, 1)

    @pytest.mark.crash
    def test_full_disk_is_an_error_of_ours(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        staging = Staging(tmp_path, disk=disk)
        writer = staging.writer("b", "t")
        disk.write_fails = on(".frames", no_space)
        with refused("log.disk_full"):
            writer.add(numbered(1))
        disk.sync_fails = on(".frames", sync_failed)
        with refused("log.fsync_failed"):
            writer.close()

    @pytest.mark.crash
    def test_full_disk_while_publishing_takes_the_batch_back(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        disk.torn_bytes = 1000
        with CommitLog.open(tmp_path, disk=disk) as log:
            staged = stage(tmp_path, "b", "t", *(bulky(number, 3 * MIB) for number in range(3)))
            disk.write_fails = on(".log", no_space)
            with refused("log.disk_full"):
                log.publish("b", [staged])
            disk.write_fails = on("nothing", no_space)
            assert log.publish("b", [staged]) == (0, 3)
        assert log_numbers(tmp_path) == [0, 1, 2]


class TestSweep:
    def age(self, path: Path, seconds: float) -> None:
        moment = time.time() - seconds
        os.utime(path, (moment, moment))

    def test_old_leftovers_go_and_young_ones_stay(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            stage(tmp_path, "old", "t", numbered(7))
            young = stage(tmp_path, "young", "t", numbered(0))
            assert log.staging.waiting().keys() == {"old", "young"}
            assert log.staging.waiting()["young"] == young.size
        self.age(tmp_path / "staging" / "old", STAGING_KEEP_S + 60)
        self.age(tmp_path / "staging" / "young", STAGING_KEEP_S - 600)
        with CommitLog.open(tmp_path) as log:
            assert log.report.removed == ["staging/old"]
            assert log.staging.waiting().keys() == {"young"}
            assert log.publish("young", [young]) == (0, 1)
        assert log_numbers(tmp_path) == [0]

    @pytest.mark.parametrize("name", [".DS_Store", "lost+found", "notes.txt"])
    @pytest.mark.parametrize("is_directory", [True, False])
    def test_strangers_hinder_nobody(self, tmp_path: Path, name: str, is_directory: bool) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
        stranger = tmp_path / "staging" / name
        stranger.parent.mkdir()
        if is_directory:
            stranger.mkdir()
        else:
            stranger.touch()
        self.age(stranger, STAGING_KEEP_S + 60)
        for _ in range(2):
            with CommitLog.open(tmp_path) as log:
                log.append([numbered(1)])
        assert stranger.exists() is not (is_directory and name == "notes.txt")

    def test_log_without_a_staging_area_has_nothing_waiting(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path, LogConfig()) as log:
            assert log.staging.waiting() == {}
        assert not (tmp_path / "staging").exists()
        assert (tmp_path / segment_name(0)).exists()
