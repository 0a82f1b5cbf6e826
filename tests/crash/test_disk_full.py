"""A disk that is full, and one that may not be written: nothing acknowledged is lost, everything can be read, and when
there is space again the log goes on."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tailrace.errors import TailraceError
from tailrace.limits import KIB
from tailrace.log.agreement import Hold, Policy
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.compaction import compact
from tailrace.log.consumers import Consumers
from tailrace.log.lag import lag_behind
from tailrace.log.reader import LogReader
from tailrace.log.retention import retain
from tailrace.log.session import ConsumerSession
from tailrace.log.verification import verify
from tests.crash.ledger import LOG, Expected, check, look, offsets_of
from tests.crash.mounts import make_read_only, make_writable, needs_mounts, on_small_disk, show_read_only
from tests.crash.workload import Work

pytestmark = pytest.mark.crash

CONFIG: Final = LogConfig(segment_bytes=32 * KIB)
BALLAST_BYTES: Final = 64 * KIB


def refused(code: str, action: Callable[[], object]) -> None:
    """The action fails with that code."""
    try:
        action()
    except TailraceError as error:
        assert error.code == code, error
    else:
        raise AssertionError(f"it was not refused with {code}")


def fill(work: Work) -> None:
    """Append until there is no space."""
    for _ in range(10_000):
        try:
            work.append(5, 300)
        except TailraceError as error:
            assert error.code == "log.disk_full", error
            work.take_stock()
            return
    raise AssertionError("the disk does not become full")


def fill_up(path: Path) -> None:
    """Take the last byte that is left."""
    with open(path, "ab", buffering=0) as file, no_space_is_fine():
        while True:
            file.write(bytes(KIB))


@contextmanager
def no_space_is_fine() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def assert_readable(log: Path, expected: Expected) -> None:
    rows = offsets_of(expected.groups)
    assert [(seen.offset, seen.number) for seen in look(str(log))] == [(at, row.number) for at, row in rows.items()]
    assert verify(log).problems == []


def begin(disk: Path) -> tuple[Work, Path]:
    """A log on a full disk, some ballast to be thrown off, and a consumer."""
    (disk / "ballast").write_bytes(bytes(BALLAST_BYTES))
    work = Work(str(disk / LOG), lambda expected: None, config=CONFIG)
    work.open()
    work.append(3)
    work.register("one")
    work.commit("one", 100)
    fill(work)
    fill_up(disk / "crumbs")
    return work, disk / LOG


@needs_mounts
class TestFull:
    def test_all_is_readable_and_it_goes_on_when_there_is_space(self, tmp_path: Path) -> None:
        on_small_disk(tmp_path, _goes_on_when_there_is_space)

    def test_it_can_be_opened_while_the_disk_is_full(self, tmp_path: Path) -> None:
        on_small_disk(tmp_path, _opened_while_full)

    def test_retention_makes_space(self, tmp_path: Path) -> None:
        on_small_disk(tmp_path, _retention_makes_space)

    def test_compaction_and_staging_do_no_harm(self, tmp_path: Path) -> None:
        on_small_disk(tmp_path, _compaction_and_staging)

    def test_a_group_that_does_not_fit_is_taken_back_whole(self, tmp_path: Path) -> None:
        on_small_disk(tmp_path, _large_group)


def _goes_on_when_there_is_space(disk: Path) -> None:
    work, log = begin(disk)
    refused("log.disk_full", lambda: work.append(5, 300))
    work.take_stock()
    assert_readable(log, work.expected)
    consumers = Consumers(log)
    assert consumers.position(consumers.get("one")) == 2
    assert lag_behind(consumers.view, 2, 0.0).messages == work.expected.end - 3
    (disk / "ballast").unlink()
    for _ in range(5):
        work.append(5, 300)
    work.commit("one", 100)
    work.close()
    check(str(log), work.expected, config=CONFIG)


def _opened_while_full(disk: Path) -> None:
    work, log = begin(disk)
    work.close()
    work.open()
    refused("log.disk_full", lambda: work.append(5, 300))
    work.take_stock()
    assert_readable(log, work.expected)
    work.close()
    (disk / "ballast").unlink()
    check(str(log), work.expected, config=CONFIG)


def _retention_makes_space(disk: Path) -> None:
    work, _ = begin(disk)
    work.commit("one", 100)
    work.retain()
    assert work.expected.oldest[0] > 0
    for _ in range(10):
        work.append(5, 300)
    work.close()
    check(str(disk / LOG), work.expected, config=CONFIG)


def _compaction_and_staging(disk: Path) -> None:
    work, log = begin(disk)
    work.commit("one", 100)
    refused("log.disk_full", lambda: compact(log))
    refused("log.disk_full", lambda: work.stage("batch", 1, 50))
    work.take_stock()
    assert_readable(log, work.expected)
    (disk / "ballast").unlink()
    work.stage("batch", 1, 5)
    fill_up(disk / "crumbs")
    refused("log.disk_full", partial(work.publish, "batch"))
    (disk / "crumbs").unlink()
    work.take_stock()
    work.publish("batch")
    work.compact()
    work.close()
    check(str(log), work.expected, config=CONFIG)


def _large_group(disk: Path) -> None:
    """Half of it is on the disk when there is no more space."""
    work, log = begin(disk)
    (disk / "ballast").unlink()
    refused("log.disk_full", lambda: work.append(400, 300))
    work.take_stock()
    assert_readable(log, work.expected)
    work.append(5, 300)
    work.close()
    check(str(log), work.expected, config=CONFIG)


@needs_mounts
class TestReadOnly:
    def test_a_disk_that_became_read_only_can_be_read(self, tmp_path: Path) -> None:
        on_small_disk(tmp_path, _read_only_disk)

    def test_a_writer_elsewhere_can_be_followed(self, tmp_path: Path) -> None:
        on_small_disk(tmp_path, _read_only_view)


def _read_only_disk(disk: Path) -> None:
    work, log = begin(disk)
    work.close()
    make_read_only(disk)
    assert_readable(log, work.expected)
    assert Consumers(log).get("one").positions.of("alpha") == 2
    refused("log.read_only", lambda: CommitLog.open(log, CONFIG))
    refused("log.read_only", lambda: retain(log))
    refused("log.read_only", lambda: compact(log))
    refused("log.read_only", lambda: Consumers(log).register("two", hold=Hold(Policy.NONE)))
    refused("log.read_only", lambda: ConsumerSession(Consumers(log), "one"))
    make_writable(disk)
    (disk / "ballast").unlink()
    check(str(log), work.expected, config=CONFIG)


def _read_only_view(disk: Path) -> None:
    (disk / "ballast").touch()
    work = Work(str(disk / LOG), lambda expected: None, config=CONFIG)
    work.open()
    show_read_only(disk / LOG, disk / "view")
    for _ in range(3):
        work.append(5)
        assert_readable(disk / "view", work.expected)
    assert LogReader(disk / "view").next_offset == work.expected.end
    refused("log.read_only", lambda: CommitLog.open(disk / "view", CONFIG))
    work.append(1)
    work.close()


def test_a_write_that_stops_half_way(tmp_path: Path) -> None:
    """The kernel writes what a limit on the file's length allows, says how much that was, and refuses the rest."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    work = Work(str(tmp_path / LOG), lambda expected: None)
    work.open()
    work.append(3)
    size = os.path.getsize(tmp_path / LOG / "00000000000000000000.log")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 700, before[1]))
    try:
        refused("log.io", lambda: work.append(5, 300))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    work.take_stock()
    work.append(5, 300)
    work.close()
    check(str(tmp_path / LOG), work.expected)
