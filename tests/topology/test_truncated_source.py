"""A source whose log was cut: all tiers go back to the last record that is equal, while they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.standing import Standing
from tailrace.message import Offset
from tailrace.topology.copied import CopiedLog, Spot
from tailrace.topology.following import Following
from tailrace.topology.request import Extent
from tests.relay.nodes import wait_for
from tests.topology.logs import BEAT_S, SMALL_SEGMENTS, Copying, Served, append, segments


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def put_back(directory: Path, kept: dict[str, bytes]) -> None:
    """The log as it was, under the same name."""
    for path in directory.iterdir():
        if path.is_file() and path.name != "log.id":
            path.unlink()
    for name, raw in kept.items():
        (directory / name).write_bytes(raw)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("regrown", [0, 200], ids=["shorter", "longer than it was"])
def test_all_tiers_go_back_to_where_they_match(stack: ExitStack, tmp_path: Path, waits: bool, regrown: int) -> None:
    """Nobody is restarted but the source. What it has now is as long, word for word, as what it lost."""
    root = tmp_path / "root"
    with CommitLog.open(root, SMALL_SEGMENTS) as log:
        append(log, 0, 100)
    kept = segments(root)
    with CommitLog.open(root, SMALL_SEGMENTS) as log, Served(root) as served:
        port = served.server.port
        append(log, 100, 150, word="lost" * 10)
        first = stack.enter_context(Copying(tmp_path / "first", [served.source], waits=waits))
        first.reaches(log)
        middle = stack.enter_context(Served(tmp_path / "first"))
        second = stack.enter_context(Copying(tmp_path / "second", [middle.source], waits=waits))
        second.reaches(log)
        low = stack.enter_context(Served(tmp_path / "second"))
        third = stack.enter_context(Copying(tmp_path / "third", [low.source], waits=waits))
        third.reaches(log)
    put_back(root, kept)
    log = stack.enter_context(CommitLog.open(root, SMALL_SEGMENTS))
    append(log, 100, regrown, word="news" * 10)
    stack.enter_context(Served(root, port=port))
    wait_for(lambda: all(is_equal(copy.directory, root) for copy in (first, second, third)), 60)
    append(log, 500, 20)
    for copy in (first, second, third):
        copy.reaches(log)
        assert segments(copy.directory) == segments(root)
        assert copy.progress.thrown_bytes > 0
        assert len(list(copy.directory.glob("diverged-*"))) == 1, "what was thrown away is put aside"


@pytest.mark.parametrize("waits", [True, False])
def test_a_cut_is_noticed_when_the_log_has_grown_again(stack: ExitStack, tmp_path: Path, waits: bool) -> None:
    """By as many bytes as it lost, between two looks of the one who copies it: nothing in the bytes tells."""
    with CommitLog.open(tmp_path / "root", SMALL_SEGMENTS) as log:
        append(log, 0, 3)
    with Served(tmp_path / "root") as root, Copying(tmp_path / "middle", [root.source]) as copied:
        wait_for(lambda: copied.progress.behind_bytes == 0)
    middle = stack.enter_context(CopiedLog.open(tmp_path / "middle"))
    match_at = Spot(middle.spot.base, 0)
    lost = segments(tmp_path / "root")
    served = stack.enter_context(Served(tmp_path / "middle"))
    following = stack.enter_context(Following(served.source, "leaf", beat_s=BEAT_S))
    extent: Extent = following.extent()
    leaf_of(tmp_path / "leaf", extent)
    leaf = stack.enter_context(CopiedLog.open(tmp_path / "leaf"))
    arrivals = following.pull(leaf, extent, waits=waits, is_over=lambda: False)
    next(arrivals)
    middle.cut(match_at)
    regrow(middle, tmp_path / "other", lost)
    with pytest.raises(TailraceError) as caught:
        for _ in arrivals if waits else following.pull(leaf, extent, waits=False, is_over=lambda: False):
            pass
    assert caught.value.code == "topology.mismatch"
    assert segments(tmp_path / "leaf") == lost, "it has got nothing that does not belong to it"


def is_equal(copy: Path, root: Path) -> bool:
    try:
        return segments(copy) == segments(root)
    except FileNotFoundError:  # it is being cut
        return False


def leaf_of(directory: Path, extent: Extent) -> None:
    CopiedLog.begin(str(directory), Offset(extent.first), extent.log, Standing(extent.generation))


def regrow(middle: CopiedLog, directory: Path, lost: dict[str, bytes]) -> None:
    """As long as it was and a little longer, with other words."""
    with CommitLog.open(directory, SMALL_SEGMENTS) as log:
        append(log, 0, 5, word="y" * 50)
    with Served(directory) as served, Following(served.source, "middle", beat_s=BEAT_S) as following:
        extent = following.extent()
        assert extent.position > sum(map(len, lost.values()))
        for _ in following.pull(middle, extent, waits=False, is_over=lambda: False):
            pass
