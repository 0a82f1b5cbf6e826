"""How far behind a consumer is, in messages, bytes and seconds."""

from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import compact
from tailrace.log.consumers import Consumers
from tailrace.log.lag import Lag, lag_behind
from tailrace.log.retention import retain
from tailrace.log.segment import Segment
from tailrace.log.view import LogView
from tailrace.message import Offset
from tests.log.material import change, make_log, transporter_log

NOW_S = 1000.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Messages 0 to 8 in three segments, written 10 seconds apart from second 100 on."""
    with CommitLog.open(tmp_path) as writer:
        for number in range(9):
            if number in (3, 6):
                writer.roll()
            writer.append_messages([change("A", number, at_s=100 + 10 * number)])
    return tmp_path


def bytes_from(directory: Path, offset: int) -> int:
    """The bytes of all frames from an offset on, counted one by one."""
    total = 0
    for base in LogView(str(directory)).bases():
        with Segment(str(directory), Offset(base)) as segment:
            total += sum(found.head.frame_bytes for found in segment.heads() if found.head.end > offset)
    return total


def test_nothing_to_do(log: Path) -> None:
    assert lag_behind(LogView(str(log)), 8, NOW_S) == Lag(0, 0, 0.0)


@pytest.mark.parametrize("position", range(-1, 8))
def test_every_position(log: Path, position: int) -> None:
    lag = lag_behind(LogView(str(log)), position, NOW_S)
    assert lag.messages == 8 - position
    assert lag.bytes == bytes_from(log, position + 1)
    assert lag.seconds == NOW_S - (100 + 10 * (position + 1))


def test_all_of_it(log: Path) -> None:
    lag = lag_behind(LogView(str(log)), -1, NOW_S)
    assert lag.bytes == sum(file.stat().st_size for file in log.glob("*.log"))


def test_inside_a_frame(tmp_path: Path) -> None:
    """The frame has to be read as a whole, so all of its bytes count."""
    with CommitLog.open(tmp_path) as log:
        log.append_messages([change("A", number) for number in range(5)])
    lag = lag_behind(LogView(str(tmp_path)), 2, NOW_S)
    assert lag.messages == 2
    assert lag.bytes == bytes_from(tmp_path, 0)


def test_an_empty_log(tmp_path: Path) -> None:
    CommitLog.open(tmp_path).close()
    assert lag_behind(LogView(str(tmp_path)), -1, NOW_S) == Lag(0, 0, 0.0)


def test_an_empty_active_segment(log: Path) -> None:
    with CommitLog.open(log) as writer:
        writer.roll()
    assert lag_behind(LogView(str(log)), 8, NOW_S) == Lag(0, 0, 0.0)
    assert lag_behind(LogView(str(log)), 7, NOW_S).bytes == bytes_from(log, 8)


def test_messages_from_the_future(log: Path) -> None:
    assert lag_behind(LogView(str(log)), 4, now_s=50.0).seconds == 0.0


def test_a_position_before_the_log_begins(log: Path) -> None:
    consumers = Consumers(log)
    consumers.register("c", start=6)
    assert [fate.base for fate in retain(log).removed] == [0, 3]
    assert lag_behind(consumers.view, -1, NOW_S) == Lag(3, bytes_from(log, 6), NOW_S - 160)


def test_it_grows_with_the_log(log: Path) -> None:
    view = LogView(str(log))
    assert lag_behind(view, 8, NOW_S).messages == 0
    with CommitLog.open(log) as writer:
        writer.append_messages([change("B", 9, at_s=500)])
        assert lag_behind(view, 8, NOW_S) == Lag(1, bytes_from(log, 9), NOW_S - 500)
        writer.roll()
        writer.append_messages([change("B", 10, at_s=600)])
        assert lag_behind(view, 8, NOW_S) == Lag(2, bytes_from(log, 9), NOW_S - 500)


def test_after_compaction(tmp_path: Path) -> None:
    make_log(tmp_path, "AAAAAA", "AAA", "A")
    consumers = Consumers(tmp_path)
    consumers.register("c", start=7)
    compact(tmp_path)
    lag = lag_behind(consumers.view, 6, NOW_S)
    assert lag.messages == 3
    assert lag.bytes == bytes_from(tmp_path, 7)


def test_a_log_of_transporters(tmp_path: Path) -> None:
    directory = transporter_log(tmp_path / "xlog")
    lag = lag_behind(LogView(str(directory)), 20, NOW_S)
    assert lag.messages == 4
    assert lag.bytes == bytes_from(directory, 21)
