"""Locks: one holder at a time, and word of a holder that died."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from pathlib import Path

import pytest

from tailrace.log.lock import Holder, Lock, LockHeld, holder_of, short_lock
from tests.log.children import Child, wait_until

HOLD = """
import sys
from tailrace.log.lock import Lock
Lock(sys.argv[1]).acquire()
print("held", flush=True)
sys.stdin.read()
"""
WAIT = """
import sys
from tailrace.log.lock import short_lock
print("waiting", flush=True)
with short_lock(sys.argv[1]):
    print("in", flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


def test_second_holder_in_the_same_process_is_told_who_holds_it(path: str) -> None:
    first = Lock(path)
    assert first.acquire() is None
    with pytest.raises(LockHeld) as held:
        Lock(path).acquire()
    assert held.value.holder is not None
    assert (held.value.holder.pid, held.value.holder.host) == (os.getpid(), socket.gethostname())
    assert datetime.fromisoformat(held.value.holder.since).tzinfo is not None
    assert str(os.getpid()) in str(held.value)
    first.release()


def test_released_lock_can_be_taken_and_nobody_died(path: str) -> None:
    for _ in range(3):
        lock = Lock(path)
        assert lock.acquire() is None
        lock.release()
        lock.release()


def test_abandoned_lock_can_be_taken_and_says_who_did_not_finish(path: str) -> None:
    lock = Lock(path)
    lock.acquire()
    lock.abandon()
    left = Lock(path).acquire()
    assert left is not None
    assert left.pid == os.getpid()


@pytest.mark.crash
def test_lock_of_another_process_holds_until_it_dies(path: str) -> None:
    with Child(HOLD, path) as child:
        assert child.line() == "held"
        with pytest.raises(LockHeld) as held:
            Lock(path).acquire()
        assert held.value.holder is not None
        assert held.value.holder.pid == child.pid
        found = holder_of(path)
        assert found == held.value.holder
        child.kill()
        assert holder_of(path) is None
        lock = Lock(path)
        assert lock.acquire() == found
        lock.release()
    assert Lock(path).acquire() is None


def test_asking_who_holds_it_changes_nothing(path: str) -> None:
    assert holder_of(path) is None
    assert not os.path.exists(path)
    lock = Lock(path)
    lock.acquire()
    before = Path(path).read_bytes()
    found = holder_of(path)
    assert found is not None
    assert found.pid == os.getpid()
    assert Path(path).read_bytes() == before
    lock.release()
    assert holder_of(path) is None


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe", b"{}", b"[1]", b'{"pid": "x"}', b"{" * 10_000, b"null"])
def test_garbage_in_the_file_hinders_nobody(path: str, garbage: bytes) -> None:
    Path(path).write_bytes(garbage)
    lock = Lock(path)
    assert lock.acquire() is None
    with pytest.raises(LockHeld):
        Lock(path).acquire()
    Path(path).write_bytes(garbage)
    with pytest.raises(LockHeld) as held:
        Lock(path).acquire()
    assert held.value.holder is None
    assert str(held.value) == "another process"
    lock.release()


def test_holder_is_read_back_as_it_was_written(path: str) -> None:
    Path(path).write_text('{"pid": 7, "host": "elsewhere", "since": "2020-01-01T00:00:00+00:00"}')
    assert Lock(path).acquire() == Holder(7, "elsewhere", "2020-01-01T00:00:00+00:00")


def test_short_lock_is_waited_for(path: str) -> None:
    with Child(WAIT, path) as child:
        with short_lock(path):
            assert child.line() == "waiting"
            wait_until(lambda: is_blocked(child.pid))
        assert child.line() == "in"


def is_blocked(pid: int) -> bool:
    """Whether the kernel keeps a process waiting for a lock."""
    return any("->" in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_link_is_not_followed(tmp_path: Path, path: str) -> None:
    os.symlink(tmp_path / "elsewhere", path)
    for take in (Lock(path).acquire, lambda: holder_of(path)):
        with pytest.raises(OSError, match="lock"):
            take()
    assert not (tmp_path / "elsewhere").exists()


def test_file_is_for_its_owner_only(path: str) -> None:
    Lock(path).acquire()
    assert os.stat(path).st_mode & 0o777 == 0o600
