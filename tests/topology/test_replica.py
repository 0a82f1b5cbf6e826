"""Copies of a log: the same bytes, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.repair import find_damage
from tailrace.log.retention import Keep, retain
from tailrace.log.view import LogView
from tailrace.relay.applier import Source
from tailrace.topology.answers import Reason, Refusal
from tailrace.topology.copied import promote
from tailrace.topology.matching import Rollback
from tailrace.topology.pulling import Bytes
from tailrace.topology.replica import State
from tailrace.topology.request import Pull
from tests.relay.nodes import wait_for
from tests.topology.logs import SMALL_SEGMENTS, Copying, Served, append, segments


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def log(stack: ExitStack, tmp_path: Path) -> CommitLog:
    made = stack.enter_context(CommitLog.open(tmp_path / "root", SMALL_SEGMENTS))
    append(made, 0, 200)
    return made


@pytest.mark.parametrize("waits", [True, False])
def test_same_bytes_in_the_same_files(log: CommitLog, stack: ExitStack, tmp_path: Path, waits: bool) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    copy = stack.enter_context(Copying(tmp_path / "copy", [root.source], waits=waits))
    copy.reaches(log)
    append(log, 200, 100)
    copy.reaches(log)
    assert len(segments(tmp_path / "root")) > 3
    assert segments(tmp_path / "copy") == segments(tmp_path / "root")
    assert copy.progress.state is State.FOLLOW
    assert LogView(str(tmp_path / "copy")).last_offsets() == LogView(str(tmp_path / "root")).last_offsets()
    assert find_damage(tmp_path / "copy") is None


def test_a_copy_of_a_copy(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    first = stack.enter_context(Copying(tmp_path / "first", [root.source]))
    first.reaches(log)
    middle = stack.enter_context(Served(tmp_path / "first"))
    second = stack.enter_context(Copying(tmp_path / "second", [middle.source]))
    append(log, 200, 50)
    second.reaches(log)
    assert segments(tmp_path / "second") == segments(tmp_path / "root")


def test_after_a_restart_nothing_is_copied_twice(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    with Copying(tmp_path / "copy", [root.source]) as copy:
        copy.reaches(log)
    before = root.pulling.sent_bytes
    append(log, 200, 10)
    grown = sum(map(len, segments(tmp_path / "root").values())) - before
    with Copying(tmp_path / "copy", [root.source]) as copy:
        copy.reaches(log)
    assert root.pulling.sent_bytes - before == grown
    assert segments(tmp_path / "copy") == segments(tmp_path / "root")


def test_a_copy_is_read_only_until_it_is_promoted(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    with Copying(tmp_path / "copy", [root.source]) as copy:
        copy.reaches(log)
    with pytest.raises(TailraceError) as caught:
        CommitLog.open(tmp_path / "copy")
    assert caught.value.code == "log.is_copy"
    assert promote(str(tmp_path / "copy")).generation == 1
    with CommitLog.open(tmp_path / "copy") as risen:
        assert risen.next_offset == log.next_offset
        append(risen, 500, 3)


def test_a_source_that_lost_its_end(stack: ExitStack, tmp_path: Path) -> None:
    """As after a promotion elsewhere: the copies go back to the last record that is equal, tier by tier."""
    root = tmp_path / "root"
    with CommitLog.open(root, SMALL_SEGMENTS) as log:
        append(log, 0, 100)
    kept = segments(root)
    with CommitLog.open(root, SMALL_SEGMENTS) as log:
        append(log, 100, 150, word="lost")
        with (
            Served(root) as served,
            Copying(tmp_path / "first", [served.source]) as first,
        ):
            first.reaches(log)
            with Served(tmp_path / "first") as middle, Copying(tmp_path / "second", [middle.source]) as second:
                second.reaches(log)
    for path in root.iterdir():
        if path.is_file() and path.name != "log.id":
            path.unlink()
    for name, raw in kept.items():
        (root / name).write_bytes(raw)
    log = stack.enter_context(CommitLog.open(root, SMALL_SEGMENTS))
    append(log, 300, 20, word="new")
    served = stack.enter_context(Served(root))
    first = stack.enter_context(Copying(tmp_path / "first", [served.source]))
    middle = stack.enter_context(Served(tmp_path / "first"))
    second = stack.enter_context(Copying(tmp_path / "second", [middle.source]))
    first.reaches(log)
    second.reaches(log)
    assert segments(root) == segments(tmp_path / "first") == segments(tmp_path / "second")
    assert first.progress.thrown_bytes > 0
    assert len(list((tmp_path / "first").glob("diverged-*"))) == 1, "what was thrown away is put aside"


def test_more_than_may_be_thrown_away(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    with Copying(tmp_path / "copy", [root.source]) as copy:
        copy.reaches(log)
    promote(str(tmp_path / "copy"))
    with CommitLog.open(tmp_path / "copy", SMALL_SEGMENTS) as risen:
        append(risen, 500, 100)
    before = segments(tmp_path / "copy")
    (tmp_path / "copy" / "standing.json").write_text('{"generation": 0, "is_copy": true}')
    copy = stack.enter_context(Copying(tmp_path / "copy", [root.source], max_rollback=Rollback(1000), may_recopy=True))
    wait_for(lambda: copy.progress.state is State.NO_SOURCE, 30)
    assert segments(tmp_path / "copy") == before, "nothing is thrown away"
    assert any("no viable source" in line for line in copy.said)


def test_an_old_primary_is_not_followed(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    for name in ("first", "second"):
        with Copying(tmp_path / name, [root.source]) as copy:
            copy.reaches(log)
    promote(str(tmp_path / "first"))
    risen = stack.enter_context(CommitLog.open(tmp_path / "first", SMALL_SEGMENTS))
    append(risen, 700, 5)
    append(log, 800, 5)
    promoted = stack.enter_context(Served(tmp_path / "first"))
    with Copying(tmp_path / "second", [promoted.source]) as copy:
        copy.reaches(risen)
    copy = stack.enter_context(Copying(tmp_path / "second", [root.source], may_recopy=True))
    wait_for(lambda: copy.progress.state is State.NO_SOURCE, 30)
    copy.__exit__()
    assert segments(tmp_path / "second") == segments(tmp_path / "first")


def test_what_the_source_has_no_more_is_copied_anew_if_allowed(
    log: CommitLog, stack: ExitStack, tmp_path: Path
) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    with Copying(tmp_path / "copy", [root.source]) as copy:
        copy.reaches(log)
    root.holds.release("replica-copy", "test")
    append(log, 200, 300)
    names = sorted(segments(tmp_path / "root"))
    for name in names[:-2]:
        for path in (tmp_path / "root").glob(name.removesuffix("log") + "*"):
            path.unlink()
    refused = stack.enter_context(Copying(tmp_path / "copy", [root.source]))
    wait_for(lambda: refused.progress.state is State.NO_SOURCE, 30)
    refused.__exit__()
    copy = stack.enter_context(Copying(tmp_path / "copy", [root.source], may_recopy=True))
    copy.reaches(log)
    assert segments(tmp_path / "copy") == segments(tmp_path / "root")


def test_no_more_copies_than_the_fanout(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root", fanout=2))
    copies = [stack.enter_context(Copying(tmp_path / f"c{at}", [root.source])) for at in range(2)]
    for copy in copies:
        copy.reaches(log)
    late = stack.enter_context(Copying(tmp_path / "late", [root.source]))
    wait_for(lambda: late.progress.error is not None and late.progress.error.code == "topology.full", 30)
    copies[0].__exit__()
    late.reaches(log)


def test_damage_in_a_copy_is_fetched_again(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    with Copying(tmp_path / "copy", [root.source]) as copy:
        copy.reaches(log)
    last = sorted((tmp_path / "copy").glob("*.log"))[-1]
    raw = bytearray(last.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    last.write_bytes(raw)
    (tmp_path / "copy" / "head").unlink()
    copy = stack.enter_context(Copying(tmp_path / "copy", [root.source]))
    copy.reaches(log)
    assert segments(tmp_path / "copy") == segments(tmp_path / "root")


def test_how_the_log_is_read_is_changed_while_it_runs(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    asked: list[bool] = []
    pull = root.pulling.pull

    def seen(request: Pull, is_over: Callable[[], bool]) -> Generator[Bytes]:
        asked.append(request.waits)
        return pull(request, is_over)

    root.pulling.pull = seen  # type: ignore[method-assign]
    copy = stack.enter_context(Copying(tmp_path / "copy", [root.source], waits=False, poll_s=3600.0))
    copy.reaches(log)
    assert asked == [False]
    copy.replica.settings = replace(copy.replica.settings, poll_s=0.01)
    wait_for(lambda: len(asked) > 4)
    copy.replica.settings = replace(copy.replica.settings, waits=True)
    wait_for(lambda: asked[-1])
    append(log, 200, 10)
    copy.reaches(log)
    copy.replica.settings = replace(copy.replica.settings, waits=False)
    wait_for(lambda: not asked[-1])
    append(log, 210, 10)
    copy.reaches(log)
    assert copy.said == [], "the source was not left for that"


def diverge(log: CommitLog, stack: ExitStack, directory: Path) -> Served:
    """Make `copy` a copy that has several segments which its source has not."""
    root = stack.enter_context(Served(directory / "root"))
    with Copying(directory / "copy", [root.source]) as copy:
        copy.reaches(log)
    promote(str(directory / "copy"))
    with CommitLog.open(directory / "copy", SMALL_SEGMENTS) as risen:
        append(risen, 500, 100)
    (directory / "copy" / "standing.json").write_text('{"generation": 0, "is_copy": true}')
    return root


def test_more_segments_than_may_be_thrown_away(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = diverge(log, stack, tmp_path)
    before = segments(tmp_path / "copy")
    back = len(before) - len(segments(tmp_path / "root"))
    with Copying(tmp_path / "copy", [root.source], max_rollback=Rollback(segments_max=back - 1)) as copy:
        wait_for(lambda: copy.progress.state is State.NO_SOURCE, 30)
        assert segments(tmp_path / "copy") == before, "nothing is thrown away"
        copy.replica.settings = replace(copy.replica.settings, max_rollback=Rollback(segments_max=back))
        copy.reaches(log)
    assert segments(tmp_path / "copy") == segments(tmp_path / "root")


@pytest.mark.parametrize(("allowed", "code"), [(0, "topology.diverged"), (1000, "topology.rollback")])
def test_it_ends_when_the_log_is_not_continued(
    log: CommitLog, stack: ExitStack, tmp_path: Path, allowed: int, code: str
) -> None:
    root = diverge(log, stack, tmp_path)
    before = segments(tmp_path / "copy")
    copy = stack.enter_context(
        Copying(tmp_path / "copy", [root.source], ends_when_invalid=True, max_rollback=Rollback(allowed))
    )
    wait_for(lambda: copy.replica.failure is not None, 30)
    copy.__exit__()
    assert copy.replica.failure is not None
    assert (copy.replica.failure.code, copy.replica.failure.exit_status) == (code, 1)
    assert segments(tmp_path / "copy") == before
    again = stack.enter_context(Copying(tmp_path / "copy", [root.source]))
    again.reaches(log)
    assert again.replica.failure is None, "without, it goes back to where they are equal"


def test_a_copy_is_not_thrown_away_for_another_log(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    with Copying(tmp_path / "copy", [root.source]) as copy:
        copy.reaches(log)
    other = stack.enter_context(CommitLog.open(tmp_path / "other", SMALL_SEGMENTS))
    append(other, 0, 10, word="other")
    foreign = stack.enter_context(Served(tmp_path / "other"))
    copy = stack.enter_context(Copying(tmp_path / "copy", [foreign.source]))
    wait_for(lambda: copy.progress.error is not None and copy.progress.error.code == "topology.other_log", 30)
    assert segments(tmp_path / "copy") == segments(tmp_path / "root")


def test_a_copy_that_ends_where_a_segment_does(stack: ExitStack, tmp_path: Path) -> None:
    """The record by which it is matched is kept for it."""
    log = stack.enter_context(CommitLog.open(tmp_path / "root", SMALL_SEGMENTS))
    append(log, 0, 50)
    root = stack.enter_context(Served(tmp_path / "root"))
    with Copying(tmp_path / "copy", [root.source]) as copy:
        copy.reaches(log)
        consumers = Consumers(log.directory)
        wait_for(lambda: consumers.position(consumers.get("replica-copy")) == log.next_offset - 2, 30)
    log.roll()
    append(log, 50, 200)
    retain(log.directory, keep=Keep())
    assert segments(tmp_path / "root").keys() < {*segments(tmp_path / "copy"), *segments(tmp_path / "root")}
    with Copying(tmp_path / "copy", [root.source]) as copy:
        copy.reaches(log)
    tail = segments(tmp_path / "root")
    assert {name: raw for name, raw in segments(tmp_path / "copy").items() if name in tail} == tail


def test_a_copy_that_is_not_served_is_not_held_for(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root", fanout=1))
    first = stack.enter_context(Copying(tmp_path / "first", [root.source]))
    first.reaches(log)
    second = stack.enter_context(Copying(tmp_path / "second", [root.source]))
    wait_for(lambda: second.progress.error is not None, 30)
    assert Consumers(log.directory).names() == ["replica-first"]
    assert list(root.pulling.heard()) == ["first"]


def test_a_source_does_not_wait_for_a_copy_that_went_elsewhere(
    log: CommitLog, stack: ExitStack, tmp_path: Path
) -> None:
    """As when the registry wants it elsewhere, after the source was asked to keep its log."""
    root = stack.enter_context(Served(tmp_path / "root"))
    copy = Copying(tmp_path / "copy", [root.source])

    def refuse(_: Source) -> None:
        raise TailraceError("topology.refused", "there is no free slot", hint="ask again")

    copy.replica.connected = refuse
    stack.enter_context(copy)
    wait_for(lambda: copy.progress.error is not None and copy.progress.error.code == "topology.refused", 30)
    assert root.pulling.kept and not root.pulling.heard()


def test_a_copy_that_has_nothing_yet_says_so(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    """To those who copy it, while everything is copied anew, too; they go on when it has something."""
    first = stack.enter_context(Served(tmp_path / "first"))
    second = stack.enter_context(Copying(tmp_path / "second", [first.source]))
    wait_for(lambda: bool(second.said), 30)
    assert second.progress.error is not None and second.progress.error.code == "topology.nothing_yet"
    assert str(tmp_path) not in second.said[0], "where a source keeps its log is its own business"
    root = stack.enter_context(Served(tmp_path / "root"))
    stack.enter_context(Copying(tmp_path / "first", [root.source]))
    second.reaches(log)


def test_a_source_that_the_registry_refuses_has_not_failed(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    copy = Copying(tmp_path / "copy", [root.source])
    failed: list[Source] = []
    refusals = [Refusal(Reason.FULL, "no slot", 1.0)]

    def connected(_: Source) -> None:
        if refusals:
            raise refusals.pop().error()

    copy.replica.connected, copy.replica.failed = connected, failed.append
    stack.enter_context(copy)
    copy.reaches(log)
    assert any("topology.refused" in line for line in copy.said)
    assert failed == [], "nobody else is to doubt it"


def test_the_log_is_kept_for_a_copy_that_is_stopped(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root = stack.enter_context(Served(tmp_path / "root"))
    copy = stack.enter_context(Copying(tmp_path / "copy", [root.source]))
    copy.reaches(log)
    has = log.next_offset
    copy.replica.pause(is_paused=True)
    wait_for(lambda: copy.progress.state is State.STOPPED)
    append(log, 200, 20)
    told = len(root.pulling.kept)
    wait_for(lambda: len(root.pulling.kept) > told + 1)
    assert {kept.offset for kept in root.pulling.kept[told:]} == {has}
