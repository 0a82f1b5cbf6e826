"""At one system call after the other the kernel kills the process, refuses the call or lies: strace makes it do so."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import LogConfig
from tailrace.log.reader import LogReader
from tailrace.log.segment import list_segments
from tailrace.log.verification import verify
from tests.crash.children import DEADLINE_S, Child, Refusal, do_again_when_told, do_when_told
from tests.crash.ledger import LOG, Expected, check, explaining, offsets_of
from tests.crash.recording import SEGMENT_BYTES, Deed, life, small_pieces
from tests.crash.simdisk import HastyDisk

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(shutil.which("strace") is None, reason="no strace: install the package strace (make test does)"),
]

CONFIG: Final = LogConfig(segment_bytes=SEGMENT_BYTES)
DEEDS: Final = life(
    *("open", "register one", "append 5", "append 3", "append_soon 2 2", "append 4 300", "commit one 60", "append 5"),
    *("append 3", "roll", "append 4", "stage batch 1 3", "publish batch", "commit one 95", "compact", "append 5"),
    *("retain", "append 3", "compact_offsets", "commit one 100", "append 2", "close"),
)
"""Some forty messages over several segments, with all that is done beside appending."""
DEEDS_OF_ONE_THREAD: Final = tuple(deed for deed in DEEDS if deed.step.name != "append_soon")
"""strace counts the calls of each thread, so that every new one would be refused its first."""
CALLS: Final = {
    "writes": ("pwritev", "pwritev2", "pwrite64"),
    "syncs of files": ("fdatasync",),
    "syncs of directories": ("fsync",),
    "names": ("rename", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir"),
    "lengths": ("ftruncate",),
    "opens": ("openat",),
}
EVERY: Final = {"opens": 45, "lengths": 1}
"""Of the moments of a kind only one in so many is tried, but for the long tests: most opens only read."""
EVERY_ELSE: Final = 3
WRITES: Final = "pwritev,pwritev2"
MOMENTS_MET: Final = 0.8

Story = list[Any]
"""What a child says: what a crash may leave, and the errors it met."""


@contextlib.contextmanager
def traced(child: Child, output: Path, *options: str) -> Iterator[None]:
    """A child whose system calls are watched, and meddled with."""
    command = ["strace", "-f", "-y", "-p", str(child.pid), "-o", str(output), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        line = strace.stderr.readline()
        assert "attached" in line, f"strace cannot attach: {line}"
        yield
        strace.communicate(timeout=DEADLINE_S)


def live(
    root: Path, *options: str, function: Callable[..., None] = do_when_told, deeds: Sequence[Deed] = DEEDS
) -> tuple[Story, int | None, list[str]]:
    """What a child said until it ended, how it ended, and its system calls."""
    root.mkdir()
    with Child(function, str(root / LOG), deeds, CONFIG) as child:
        assert child.hear() == "ready"
        with traced(child, root / "trace", *options):
            child.tell("go")
            story = child.rest()
            status = child.status()
    return story, status, (root / "trace").read_text().splitlines()


def expected_in(story: Story) -> Expected:
    """What the child said last about what may be found."""
    return next((word for word in reversed(story) if isinstance(word, Expected)), Expected())


def refusals_in(story: Story) -> list[Refusal]:
    return [word for word in story if isinstance(word, Refusal)]


def check_and_remove(root: Path, story: Story) -> None:
    with small_pieces(), explaining(f"at {root.name} of {' · '.join(map(str, DEEDS))}"):
        check(str(root / LOG), expected_in(story), config=CONFIG, disk=HastyDisk(), killed=True)
    shutil.rmtree(root)


@cache
def counted(root: Path) -> Counter[str]:
    """How often a life that nobody disturbs makes each call."""
    calls = ",".join(call for calls in CALLS.values() for call in calls)
    story, status, trace = live(root, "-e", f"trace=?{calls.replace(',', ',?')}")
    assert status == 0 and not refusals_in(story)
    by_thread = Counter(found.groups() for line in trace if (found := re.match(r"(\d+) +(\w+)\(", line)))
    counts: Counter[str] = Counter()
    for (_, call), count in by_thread.items():
        counts[call] = max(counts[call], count)  # strace counts by thread as well
    return counts


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    return counted(tmp_path_factory.getbasetemp() / "undisturbed")


def moments(counts: Counter[str], calls: Sequence[str], every: int = 1) -> list[tuple[str, int]]:
    """Each call, and the numbers at which it comes; only one in so many when that is said."""
    found = [(call, number) for call in calls for number in range(1, counts[call] + 1)]
    assert found, f"the log never calls any of {calls}"
    return found[::every]


def die_at(tmp_path: Path, moments: list[tuple[str, int]]) -> None:
    """At each of the moments in one life. Not every life comes to all of them: two threads share the syncs."""
    died = 0
    for call, number in moments:
        root = tmp_path / f"{call}{number}"
        story, status, _ = live(root, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}")
        assert status in (0, -9), f"it failed at {call} {number}: {story[-1:]}"
        died += status == -9
        check_and_remove(root, story)
    assert died >= len(moments) * MOMENTS_MET


@pytest.mark.parametrize("kind", CALLS)
def test_killed_at_a_call(tmp_path: Path, counts: Counter[str], kind: str) -> None:
    die_at(tmp_path, moments(counts, CALLS[kind], EVERY.get(kind, EVERY_ELSE)))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", CALLS)
def test_killed_at_any_call(tmp_path: Path, counts: Counter[str], kind: str) -> None:
    die_at(tmp_path, moments(counts, CALLS[kind]))


@pytest.mark.parametrize("every", [EVERY_ELSE, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_failed_sync_is_the_end(tmp_path: Path, counts: Counter[str], call: str, every: int) -> None:
    """It is reported, nothing is acknowledged after it, the file is not synced again, and nothing is lost (I7)."""
    failures = 0
    tried = moments(counts, [call], every)
    for _, number in tried:
        root = tmp_path / f"{call}{number}"
        story, status, trace = live(
            root, "-e", "trace=fdatasync,fsync,close", "-e", f"inject={call}:error=EIO:when={number}"
        )
        assert status == 0
        failed = next((at for at, line in enumerate(trace) if "(INJECTED)" in line), None)
        if failed is None:
            continue  # the other thread has synced this time
        failures += 1
        first, *others = refusals_in(story)
        assert first.code == "log.fsync_failed" or (first.step, first.code) == ("append_soon", "log.failed"), first
        if re.search(rf"/{LOG}(/head|/\d+\.log)?>", trace[failed]) and first.step.startswith(
            ("append", "publish", "roll")
        ):
            assert [refusal.code for refusal in others] == ["log.failed"], f"it went on: {trace[failed]}"
        assert not synced_again(trace[failed:]), f"synced again after {trace[failed]}"
        check_and_remove(root, story)
    assert failures >= len(tried) * MOMENTS_MET


def synced_again(trace: list[str]) -> bool:
    """Whether the descriptor of the first line is synced once more before it is closed."""
    found = re.match(r"\d+ +\w+\((\d+)<", trace[0])
    assert found is not None, trace[0]
    for line in trace[1:]:
        if re.match(rf"\d+ +close\({found[1]}<", line):
            return False
        if re.match(rf"\d+ +f(data)?sync\({found[1]}<", line):
            return True
    return False


@pytest.mark.parametrize("every", [EVERY_ELSE, pytest.param(1, marks=pytest.mark.long)])
def test_no_space_at_a_write(tmp_path: Path, counts: Counter[str], every: int) -> None:
    """It is reported as a full disk, and doing the same once more succeeds; nothing is there twice."""
    for call, number in moments(counts, WRITES.split(","), every):
        root = tmp_path / f"{call}{number}"
        inject = f"inject={call}:error=ENOSPC:when={number}"
        story, status, _ = live(
            root, "-e", f"trace={call}", "-e", inject, function=do_again_when_told, deeds=DEEDS_OF_ONE_THREAD
        )
        assert status == 0, f"it did not get over {inject}: {refusals_in(story)}"
        assert {refusal.code for refusal in refusals_in(story)} <= {"log.disk_full"}
        check_and_remove(root, story)


def test_a_write_that_did_not_happen(tmp_path: Path, counts: Counter[str]) -> None:
    """The kernel says that forty bytes were written, and none were. Nobody can notice that then, but nobody is ever
    given wrong data: readers and verification stop at the damage and name the place (I5)."""
    call = max(WRITES.split(","), key=counts.__getitem__)
    for number in itertools.count(1):
        root = tmp_path / f"{call}{number}"
        segment = root / LOG / "00000000000000000000.log"
        inject = f"inject={call}:retval=40:when={number}"
        options = ("-P", str(segment), "-e", f"trace={call}", "-e", inject)
        story, status, trace = live(root, *options, deeds=life("open", *["append 3"] * 6, "close"))
        assert status == 0
        if not any("(INJECTED)" in line for line in trace):
            assert number > 3, "hardly anything was written"
            return
        assert_damage_is_named(root / LOG, expected_in(story))


def assert_damage_is_named(log: Path, expected: Expected) -> None:
    right = offsets_of(expected.groups)
    with pytest.raises(TailraceError) as refusal:
        for entry in LogReader(log).entries():
            assert entry.message == right[entry.offset].message
    assert refusal.value.code in ("log.corrupt", "log.frame_too_long")
    assert refusal.value.place is not None
    found = verify(log)
    assert [problem.place.file for problem in found.problems if problem.place] == ["00000000000000000000.log"]
    assert list_segments(str(log))
