"""Planning: ranges, parts, the ends of micro-batches, and what retention took."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log import removed
from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import compact
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.retention import retain
from tailrace.log.segment import segment_name
from tailrace.message import Offset, Op
from tailrace.spark.source_options import read_options
from tailrace.spark.source_plan import divide, end_of_batch, range_of, start_after_loss, wanted_by
from tailrace.spark.source_wanted import Wanted
from tests.log.batches import bulky, numbered
from tests.log.material import change, make_log

EVERYTHING = Wanted()
KILO = 1000


def grouped_log(directory: Path, *groups: list[tuple[str, int]]) -> LogReader:
    """A log whose groups are lists of frames: namespace and size."""
    with CommitLog.open(directory) as log:
        for group in groups:
            log.append([bulky(0, size, namespace) for namespace, size in group])
    return LogReader(directory)


def batch_ends(reader: LogReader, wanted: Wanted, bytes_max: int) -> list[int]:
    """Where micro-batches end from the log's beginning to its end."""
    ends = [reader.oldest]
    while ends[-1] < reader.next_offset:
        ends.append(end_of_batch(reader.view, ends[-1], reader.next_offset, wanted, bytes_max))
        assert ends[-1] > ends[-2]
    return list(ends[1:])


def test_a_micro_batch_ends_where_a_group_ends_and_before_it_is_too_large(tmp_path: Path) -> None:
    small, large = [("a", 10 * KILO), ("b", 10 * KILO)], [("a", 100 * KILO)]
    reader = grouped_log(tmp_path, small, small, small, large, small)
    assert batch_ends(reader, EVERYTHING, 60 * KILO) == [4, 6, 7, 9]
    assert batch_ends(reader, EVERYTHING, 1) == [2, 4, 6, 7, 9]
    assert batch_ends(reader, EVERYTHING, KILO * KILO) == [9]


def test_what_is_not_wanted_counts_nothing_and_makes_no_batch_of_its_own(tmp_path: Path) -> None:
    groups = [[("a", KILO)], [("b", 90 * KILO)], [("b", 90 * KILO)], [("a", KILO)], [("b", KILO)]]
    reader = grouped_log(tmp_path, *groups)
    assert batch_ends(reader, Wanted(name="a"), 20 * KILO) == [5]
    assert batch_ends(reader, Wanted(name="a"), 1) == [3, 5]


def test_nothing_past_the_limit_is_taken(tmp_path: Path) -> None:
    reader = grouped_log(tmp_path, *([("a", KILO)] for _ in range(5)))
    assert end_of_batch(reader.view, Offset(1), Offset(3), EVERYTHING, KILO * KILO) == 3


def test_a_hole_inside_a_group_is_no_end(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append([numbered(1, namespace="a"), numbered(2, namespace="b"), numbered(3, namespace="c")])
        log.append([numbered(4, namespace="b")])
        log.roll()
        log.append([numbered(5, namespace="c")])
    compact(tmp_path, upto=3)
    reader = LogReader(tmp_path)
    heads = list(reader.view.heads(Offset(0)))
    assert any(head.is_hole and not head.closes_group for head in heads)
    inside_group = {1, 2}
    assert not inside_group.intersection(batch_ends(reader, EVERYTHING, 1))


def test_parts_cover_the_range_and_have_about_one_size(tmp_path: Path) -> None:
    reader = grouped_log(tmp_path, *([("ab"[number % 2], 10 * KILO)] for number in range(12)))
    parts = divide(reader.view, Offset(1), Offset(11), EVERYTHING, part_bytes=30 * KILO)
    assert [(part.start, part.end) for part in parts] == [(1, 4), (4, 7), (7, 10), (10, 11)]
    only_a = divide(reader.view, Offset(1), Offset(11), Wanted(name="a"), part_bytes=30 * KILO)
    assert [(part.start, part.end, part.frames) for part in only_a] == [(2, 7, 3), (8, 11, 2)]


def test_a_range_may_begin_and_end_inside_a_frame(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append([numbered(*range(10))])
    view = LogReader(tmp_path).view
    assert [(p.start, p.end) for p in divide(view, Offset(3), Offset(7), EVERYTHING)] == [(3, 7)]
    assert divide(view, Offset(7), Offset(7), EVERYTHING) == []
    assert divide(view, Offset(8), Offset(7), EVERYTHING) == []


def test_segments_without_anything_wanted_are_not_read(tmp_path: Path) -> None:
    make_log(tmp_path, "aa", "bb", "ab", "b")
    spoilt = tmp_path / segment_name(2)
    spoilt.write_bytes(bytes(spoilt.stat().st_size))
    with pytest.raises(TailraceError, match="corrupt"):
        divide(LogReader(tmp_path).view, Offset(0), Offset(7), Wanted(name="b"))
    parts = divide(LogReader(tmp_path).view, Offset(0), Offset(7), Wanted(name="a"))
    assert [(part.start, part.end) for part in parts] == [(0, 2), (4, 5)]


def test_our_own_namespaces_and_noops_are_hidden_unless_asked_for(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append_messages([change("shop.orders", 0), change("_tailrace.marks", 1)])
        log.append_messages([change("shop.orders", 2, op=Op.NOOP)])
        log.append_messages([change("shop.orders", 3), change("shop.orders", 4, op=Op.NOOP)])
    view = LogReader(tmp_path).view

    def frames(**options: str) -> list[int]:
        wanted = wanted_by(read_options({"path": str(tmp_path), **options}))
        return [head.offset for head in view.heads(Offset(0)) if wanted.wants(head)]

    assert frames() == [0, 3]
    assert frames(includeInternal="true") == [0, 1, 3]
    assert frames(includeNoop="true") == [0, 2, 3]
    assert frames(namespace="_tailrace.marks") == [1]
    assert frames(namespaces=r"\.orders$") == [0, 3]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0, 6)),
        ({"startingOffset": "2", "endingOffset": "4"}, (2, 4)),
        ({"startingOffset": "latest"}, (6, 6)),
        ({"startingOffset": "earliest", "endingOffset": "earliest"}, (0, 0)),
        ({"startingTimestamp": "1970-01-01T00:00:02Z", "endingTimestamp": "4000000"}, (2, 4)),
        ({"startingTimestamp": "2999-01-01"}, (6, 6)),
    ],
)
def test_ranges(tmp_path: Path, options: dict[str, str], expected: tuple[int, int]) -> None:
    with CommitLog.open(tmp_path) as log:
        for number in range(6):
            log.append_messages([change("a", number, at_s=number)])
    found = range_of(LogReader(tmp_path), read_options({"path": str(tmp_path), **options}), EVERYTHING)
    assert found == expected


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"startingOffset": "7"}, "log.past_end"),
        ({"endingOffset": "7"}, "log.past_end"),
        ({"startingOffset": "4", "endingOffset": "2"}, "log.bad_range"),
    ],
)
def test_ranges_that_are_none(tmp_path: Path, options: dict[str, str], code: str) -> None:
    make_log(tmp_path, "aaa", "aaa")
    with pytest.raises(TailraceError) as raised:
        range_of(LogReader(tmp_path), read_options({"path": str(tmp_path), **options}), EVERYTHING)
    assert raised.value.code == code


class TestLoss:
    @pytest.fixture
    def reader(self, tmp_path: Path) -> LogReader:
        """A log from which 0 to 4 were removed: `quiet` at 0, and `busy`."""
        make_log(tmp_path, ["quiet", "busy"], ["busy", "busy", "busy"], ["busy", "quiet"])
        Consumers(tmp_path).register("c", start=5)
        retain(tmp_path)
        return LogReader(tmp_path)

    def test_what_was_to_come_and_is_gone_is_an_error(self, reader: LogReader) -> None:
        with pytest.raises(TailraceError) as raised:
            start_after_loss(reader, Offset(1), EVERYTHING, fails=True)
        assert raised.value.code == "log.below_oldest"
        assert "from offset 1 on" in raised.value.what
        assert "failOnDataLoss" in raised.value.hint

    def test_or_is_passed_over(self, reader: LogReader) -> None:
        assert start_after_loss(reader, Offset(1), EVERYTHING, fails=False) == 5

    def test_a_namespace_that_lost_nothing_goes_on(self, reader: LogReader) -> None:
        assert start_after_loss(reader, Offset(1), Wanted(name="quiet"), fails=True) == 5
        assert start_after_loss(reader, Offset(1), Wanted(namespace=re.compile("^q")), fails=True) == 5
        with pytest.raises(TailraceError):
            start_after_loss(reader, Offset(0), Wanted(name="quiet"), fails=True)

    def test_without_a_record_of_what_was_removed_it_counts_as_lost(self, reader: LogReader) -> None:
        os.remove(os.path.join(reader.directory, removed.NAME))
        with pytest.raises(TailraceError):
            start_after_loss(reader, Offset(1), Wanted(name="quiet"), fails=True)

    def test_a_range_that_is_wholly_gone_is_empty_when_that_is_no_error(self, reader: LogReader) -> None:
        given = {"path": reader.directory, "startingOffset": "1", "endingOffset": "3"}
        with pytest.raises(TailraceError, match="were removed"):
            range_of(reader, read_options(given), EVERYTHING)
        assert range_of(reader, read_options({**given, "failOnDataLoss": "false"}), EVERYTHING) == (5, 5)

    def test_a_position_past_the_end_is_of_another_log(self, reader: LogReader) -> None:
        with pytest.raises(TailraceError, match="another log"):
            start_after_loss(reader, Offset(8), EVERYTHING, fails=False)
