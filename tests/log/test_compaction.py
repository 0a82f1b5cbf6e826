"""Compaction: what goes, what stays, and that everything else is as if nothing had happened."""

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold, Policy
from tailrace.log.batch import key_of
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.compaction import By, compact
from tailrace.log.consumers import Consumers
from tailrace.log.contents import contents_path
from tailrace.log.disk import DRAFT_SUFFIX, Disk
from tailrace.log.index import index_path
from tailrace.log.maintenance import maintaining
from tailrace.log.operator import Operator
from tailrace.log.reader import LogReader
from tailrace.log.segment import Segment, list_segments, segment_name
from tailrace.log.selection import Selection
from tailrace.log.session import ConsumerSession
from tailrace.log.verification import verify
from tailrace.message import Entry, Lsn, Micros, NodeId, Offset, Op
from tests.log.material import (
    NEVER_S,
    SECOND,
    ActingDisk,
    TellingDisk,
    append_keyed,
    batch,
    change,
    contents_of,
    eventually,
    fill,
    has_read,
    make_log,
    offset_log,
    offsets_of,
    write_plain,
)

INSERT, UPDATE, DELETE = Op.INSERT, Op.UPDATE, Op.DELETE


def segment_bytes(directory: Path) -> dict[int, bytes]:
    return {base: (directory / segment_name(base)).read_bytes() for base in list_segments(str(directory))}


def check_whole(directory: Path) -> None:
    """The log is sound: frames tile the offsets, side files fit, and the next writer finds nothing to do."""
    found = verify(directory)
    assert (found.problems, found.remarks) == ([], [])
    for base in list_segments(str(directory)):
        with Segment(str(directory), base) as segment:
            reached = base
            for located in segment.heads():
                assert located.head.offset == reached
                reached = located.head.end
                closes = located.head.closes_group
            assert not segment.size() or closes
    with CommitLog.open(directory) as log:
        assert log.report.is_clean


def read_by_everyone(directory: Path) -> None:
    """There is one consumer, and it has acknowledged all there is."""
    consumers = Consumers(directory)
    consumers.register("everyone", start=consumers.view.head().next_offset)


class TestByNamespace:
    def test_the_last_of_all_sealed_segments_together(self, tmp_path: Path) -> None:
        make_log(tmp_path, "ABAB", "AAA", "CA", "B")
        read_by_everyone(tmp_path)
        done = compact(tmp_path)
        assert contents_of(tmp_path) == [(3, "B"), (7, "C"), (8, "A"), (9, "B")]
        assert [segment.base for segment in done.segments] == [0, 4]
        assert done.looked_at == 3
        check_whole(tmp_path)

    def test_what_a_holder_needs_stays(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "AAAA", "A")
        read_by_everyone(tmp_path)
        Consumers(tmp_path).register("slow", start=2)
        done = compact(tmp_path)
        assert offsets_of(tmp_path) == [2, 3, 4, 5, 6, 7, 8]
        assert done.held_by == ["slow"]
        check_whole(tmp_path)

    def test_each_namespace_up_to_its_own_offset(self, tmp_path: Path) -> None:
        make_log(tmp_path, "ABABAB", "ABAB", "A")
        Consumers(tmp_path).register("c")
        has_read(tmp_path, "c", 7, "B")
        has_read(tmp_path, "c", 2, "A")
        compact(tmp_path)
        assert contents_of(tmp_path) == [*((4, "A"), (6, "A"), (8, "A")), *((9, "B"), (10, "A"))]
        check_whole(tmp_path)

    def test_a_consumer_that_never_acknowledged_blocks_it(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "A")
        read_by_everyone(tmp_path)
        Consumers(tmp_path).register("new")
        before = segment_bytes(tmp_path)
        done = compact(tmp_path)
        assert (done.segments, done.held_by) == ([], ["new"])
        assert segment_bytes(tmp_path) == before

    def test_a_consumer_that_holds_nothing_does_not(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "A")
        Consumers(tmp_path).register("new", hold=Hold(Policy.NONE))
        done = compact(tmp_path)
        assert offsets_of(tmp_path) == [3, 4]
        assert done.held_by == []

    def test_without_a_consumer_nothing_goes_unless_told_up_to_where(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "A")
        assert compact(tmp_path).segments == []
        compact(tmp_path, upto=1)
        assert offsets_of(tmp_path) == [2, 3, 4]
        check_whole(tmp_path)

    def test_never_beyond_what_was_asked_for(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "A")
        read_by_everyone(tmp_path)
        compact(tmp_path, upto=0)
        assert offsets_of(tmp_path) == [1, 2, 3, 4]

    @pytest.mark.parametrize("last", ["A", ""])
    def test_the_active_segment_is_left_alone(self, tmp_path: Path, last: str) -> None:
        make_log(tmp_path, "AAAA", last * 3)
        read_by_everyone(tmp_path)
        active = (tmp_path / segment_name(4)).read_bytes()
        done = compact(tmp_path)
        assert done.looked_at == 1
        assert (tmp_path / segment_name(4)).read_bytes() == active
        check_whole(tmp_path)

    def test_an_unsealed_log(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA")
        read_by_everyone(tmp_path)
        assert compact(tmp_path).looked_at == 0
        assert offsets_of(tmp_path) == [0, 1, 2, 3]

    def test_inside_a_frame(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append_messages([change("A", number) for number in range(100)])
            log.roll()
        Consumers(tmp_path).register("c", start=40)
        compact(tmp_path)
        assert offsets_of(tmp_path) == list(range(40, 100))
        check_whole(tmp_path)

    def test_a_segment_that_would_not_become_shorter_stays(self, tmp_path: Path) -> None:
        """To leave out one of many small messages costs more than it saves: a hole, or a column of offsets."""
        with CommitLog.open(tmp_path) as log:
            log.append_messages([change("A", 0), change("A", 1)])
            log.roll()
        Consumers(tmp_path).register("c", start=1)
        before = segment_bytes(tmp_path)
        assert compact(tmp_path).segments == []
        assert segment_bytes(tmp_path) == before
        assert [file for file in os.listdir(tmp_path) if file.endswith(DRAFT_SUFFIX)] == []

    def test_what_it_says_it_did(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "AB", "A")
        read_by_everyone(tmp_path)
        before = segment_bytes(tmp_path)
        seen: list[tuple[int, int]] = []
        (first,) = compact(tmp_path, progress=lambda done, total: seen.append((done, total))).segments
        after = segment_bytes(tmp_path)
        assert (first.base, first.messages_before, first.messages_after) == (0, 4, 0)
        assert (first.bytes_before, first.bytes_after) == (len(before[0]), len(after[0]))
        total = len(before[0]) + len(before[4])
        assert seen == [(len(before[0]), total), (total, total)]


class TestByKey:
    def test_the_last_of_each_key_stays(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            for number in range(6):
                append_keyed(log, "t", [(INSERT, {"id": number % 3, "text": "x" * 200}, None)])
            log.roll()
            append_keyed(log, "t", [(UPDATE, {"id": 0, "text": "y"}, None)])
            log.roll()
        read_by_everyone(tmp_path)
        compact(tmp_path, by=By.KEY)
        assert offsets_of(tmp_path) == [4, 5, 6]
        check_whole(tmp_path)

    def test_in_the_middle_of_frames(self, tmp_path: Path) -> None:
        """Of every frame some rows stay; the rest of the log does not change, nor does what it says of the key."""
        text = "x" * 50
        with CommitLog.open(tmp_path) as log:
            append_keyed(log, "t", [(INSERT, {"id": n % 50, "text": text}, None) for n in range(200)])
            append_keyed(log, "t", [(UPDATE, {"id": n * 2, "text": text}, None) for n in range(25)])
            append_keyed(log, "t", [(DELETE, None, {"id": 5, "text": text})])
            log.roll()
        before = {entry.offset: entry for entry in LogReader(tmp_path).entries()}
        read_by_everyone(tmp_path)
        compact(tmp_path, by=By.KEY)
        kept = [150 + n for n in range(50) if n % 2 and n != 5] + list(range(200, 226))
        assert list(LogReader(tmp_path).entries()) == [before[Offset(offset)] for offset in kept]
        assert {key_of(frame.rows().schema) for frame in LogReader(tmp_path).frames()} == {("id",)}
        check_whole(tmp_path)

    def test_a_key_that_is_deleted_or_changed(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            for op, data, before in (
                (INSERT, {"id": 1, "text": "x" * 300}, None),
                (INSERT, {"id": 2, "text": "x" * 300}, None),
                (DELETE, None, {"id": 1, "text": "x" * 300}),
                (UPDATE, {"id": 3, "text": "x" * 300}, {"id": 2, "text": "x" * 300}),
                (INSERT, {"id": 3, "text": "x" * 300}, None),
            ):
                append_keyed(log, "t", [(op, data, before)])
            log.roll()
        read_by_everyone(tmp_path)
        compact(tmp_path, by=By.KEY)
        assert offsets_of(tmp_path) == [2, 3, 4]

    def test_namespaces_without_a_key_keep_everything(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            for number in range(4):
                append_keyed(log, "keyed", [(INSERT, {"id": 1, "text": "x" * 300}, None)])
                log.append_messages([change("plain", number)])
            log.roll()
        read_by_everyone(tmp_path)
        compact(tmp_path, by=By.KEY)
        assert contents_of(tmp_path) == [(1, "plain"), (3, "plain"), (5, "plain"), (6, "keyed"), (7, "plain")]
        check_whole(tmp_path)

    def test_only_what_was_acknowledged(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            for _ in range(6):
                append_keyed(log, "t", [(INSERT, {"id": 1, "text": "x" * 300}, None)])
            log.roll()
        Consumers(tmp_path).register("c", start=3)
        compact(tmp_path, by=By.KEY)
        assert offsets_of(tmp_path) == [3, 4, 5]

    def test_by_key_and_then_by_namespace(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            append_keyed(log, "t", [(INSERT, {"id": n % 10, "text": "x" * 50}, None) for n in range(95)])
            log.append_messages([change("u", number) for number in range(5)])
            log.roll()
        read_by_everyone(tmp_path)
        compact(tmp_path, by=By.KEY)
        assert offsets_of(tmp_path) == list(range(85, 100))
        compact(tmp_path, by=By.NAMESPACE)
        assert contents_of(tmp_path) == [(94, "t"), (99, "u")]
        check_whole(tmp_path)


class TestTransporter:
    DOCUMENT = b'{"_id":%d,"text":"' + b"x" * 100 + b'"}'

    def write(self, directory: Path, *segments: Iterable[int]) -> None:
        """Segments of plain frames at the given offsets; the key is the offset's last digit."""
        for offsets in segments:
            first, *_ = found = list(offsets)
            write_plain(directory, first, [(at, "t", self.DOCUMENT % (at % 10)) for at in found])

    def test_documents_by_their_id(self, tmp_path: Path) -> None:
        self.write(tmp_path, range(25), range(25, 30))
        read_by_everyone(tmp_path)
        CommitLog.open(tmp_path).close()
        compact(tmp_path, by=By.KEY)
        assert offsets_of(tmp_path) == list(range(15, 30))
        check_whole(tmp_path)

    @pytest.mark.parametrize("by", list(By))
    @pytest.mark.parametrize("ours", [False, True])
    def test_the_gaps_that_its_own_compaction_left(self, tmp_path: Path, by: By, ours: bool) -> None:
        """Gaps between its frames and behind its segments are closed by holes where they would look like damage."""
        self.write(tmp_path, [0, 5, 6, 9, 20, 21], [40, 41, 45], [60, 65])
        if ours:
            with CommitLog.open(tmp_path) as log:
                fill(log, "uuu")
                log.roll()
        read_by_everyone(tmp_path)
        CommitLog.open(tmp_path).close()
        before = offsets_of(tmp_path)
        compact(tmp_path, by=by)
        left = offsets_of(tmp_path)
        assert set(left) < set(before)
        if by is By.NAMESPACE:
            assert left == ([65, 68] if ours else [45, 60, 65])
        else:
            assert left == ([6, 9, 41, 60, 65, 66, 67, 68] if ours else [6, 9, 40, 41, 45, 60, 65])
        assert verify(tmp_path).problems == []
        with CommitLog.open(tmp_path) as log:
            assert log.report.is_clean
            fill(log, "u")
        assert offsets_of(tmp_path)[:-1] == left
        for start in range(66):
            assert [entry.offset for entry in LogReader(tmp_path).entries(start, 66)] == [
                offset for offset in left if start <= offset < 66
            ]


class TestGroups:
    groups = st.lists(st.lists(st.sampled_from("AABC"), min_size=1, max_size=5), min_size=1, max_size=8)

    @settings(max_examples=40)
    @given(groups, st.integers(0, 40))
    def test_they_stay_whole_and_closed(self, groups: list[list[str]], upto: int) -> None:
        """What is left of a group is a group, and nothing of another one is in it."""
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name) / "log"
            with CommitLog.open(directory) as log:
                origin = {}
                for number, group in enumerate(groups):
                    offsets = log.append_messages([change(namespace, at) for at, namespace in enumerate(group)])
                    origin.update(dict.fromkeys(range(*offsets), number))
                log.roll()
            compact(directory, upto=upto)
            check_whole(directory)
            found: dict[int, set[int]] = {}
            number = 0
            with Segment(str(directory), Offset(0)) as segment:
                for located in segment.heads():
                    kept = LogReader(directory).entries(located.head.offset, located.head.end)
                    found.setdefault(number, set()).update(origin[entry.offset] for entry in kept)
                    number += located.head.closes_group
            old_groups = [old for old in found.values() if old]
            assert all(len(old) == 1 for old in old_groups)
            assert len({next(iter(old)) for old in old_groups}) == len(old_groups)

    def test_batch_ids_survive(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            for number in range(5):
                log.append(batch([change("A", number), change("B", number)]), batch_id=f"batch-{number}")
            log.roll()
        read_by_everyone(tmp_path)
        compact(tmp_path)
        assert offsets_of(tmp_path) == [8, 9]
        with CommitLog.open(tmp_path) as log:
            for number in range(5):
                known = log.append(batch([change("A", 99)]), batch_id=f"batch-{number}")
                assert 0 <= known.first <= 2 * number < known.end <= 10
            assert log.next_offset == 10
            log.append(batch([change("A", 99)]), batch_id="batch-5")
            assert log.next_offset == 11

    def test_very_many_batch_ids_survive(self, tmp_path: Path) -> None:
        count = 2500
        with CommitLog.open(tmp_path, LogConfig(sync_every_s=None)) as log:
            messages = batch([change("A", 0)])
            for number in range(count):
                log.append(messages, batch_id=f"b{number}")
            log.roll()
        read_by_everyone(tmp_path)
        compact(tmp_path)
        assert offsets_of(tmp_path) == [count - 1]
        with CommitLog.open(tmp_path) as log:
            for number in range(count):
                log.append(messages, batch_id=f"b{number}")
            assert log.next_offset == count


class TestLookUps:
    """Whatever is asked of a compacted log is answered from what is left of it."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        """Three sealed segments in which every tenth message is the last of its key, in groups of several frames."""
        with CommitLog.open(tmp_path) as log:
            for number in range(240):
                if number in (80, 160):
                    log.roll()
                if number % 4:
                    continue
                messages = [
                    change(
                        f"ns{at % 3}",
                        at,
                        at_s=1000 + (at * 7) % 100,
                        origin=1 + at % 2,
                        lsn=at + 1,
                        destinations=(f"d{at % 5}",) if at % 2 else (),
                    )
                    for at in range(number, number + 4)
                ]
                log.append_messages(messages)
            log.roll()
            fill(log, ["ns0"])
        return tmp_path

    @pytest.fixture(params=[25, 100, 203, 239])
    def left(self, log: Path, request: pytest.FixtureRequest) -> list[Entry]:
        before = {entry.offset: entry for entry in LogReader(log).entries()}
        Consumers(log).register("c", start=request.param + 1)
        compact(log)
        after = list(LogReader(log).entries())
        assert after == [before[entry.offset] for entry in after]
        assert len(after) < len(before)
        check_whole(log)
        return after

    def test_ranges(self, log: Path, left: list[Entry]) -> None:
        reader = LogReader(log)
        for start, end in itertools.combinations((0, 1, 7, 79, 80, 81, 163, 200, 241), 2):
            assert list(reader.entries(start, end)) == [entry for entry in left if start <= entry.offset < end]

    def test_namespaces(self, log: Path, left: list[Entry]) -> None:
        for name in ("ns0", "ns1", "ns[12]", "none"):
            selection = Selection(namespace=re.compile(name))
            expected = [entry for entry in left if re.search(name, entry.message.namespace)]
            assert list(LogReader(log).entries(selection=selection)) == expected

    def test_destinations(self, log: Path, left: list[Entry]) -> None:
        for name in ("d1", "d2", "d3", "none"):
            expected = [entry for entry in left if name in entry.message.destinations]
            assert list(LogReader(log).entries(selection=Selection(destination=name))) == expected
            middle = [entry for entry in expected if 50 <= entry.offset < 200]
            assert list(LogReader(log).entries(50, 200, Selection(destination=name))) == middle

    def test_timestamps(self, log: Path, left: list[Entry]) -> None:
        for second in (0, 1, 2, 1000, 1033, 1050, 1098, 1099, 1100):
            expected = next((entry.offset for entry in left if entry.message.timestamp >= second * SECOND), 241)
            assert LogReader(log).offset_at(Micros(second * SECOND)) == expected

    def test_origins(self, log: Path, left: list[Entry]) -> None:
        for origin, lsn in itertools.product((0, 1, 2, 3), (0, 1, 60, 61, 120, 199, 240, 241)):
            found = LogReader(log).offset_of(NodeId(origin), Lsn(lsn))
            matching = (entry for entry in left if entry.message.origin == origin and entry.message.lsn >= lsn)
            assert found == next((entry.offset for entry in matching), None)
        since = {NodeId(1): Lsn(101), NodeId(2): Lsn(5)}
        expected = [entry for entry in left if entry.message.lsn > since.get(entry.message.origin, 0)]
        assert list(LogReader(log).entries(selection=Selection(since=since))) == expected

    def test_sparse_frames(self, tmp_path: Path) -> None:
        """A frame of which every third row is left gives the right rows for every range."""
        with CommitLog.open(tmp_path) as log:
            rows: list[tuple[Op, dict[str, Any] | None, dict[str, Any] | None]] = [
                (INSERT, {"id": n if n % 3 == 0 else -1, "text": "x" * 50}, None) for n in range(60)
            ]
            append_keyed(log, "t", [*rows, (INSERT, {"id": -1, "text": ""}, None)])
            log.roll()
        read_by_everyone(tmp_path)
        compact(tmp_path, by=By.KEY)
        kept = [*range(0, 60, 3), 60]
        for start, end in itertools.combinations((0, 1, 2, 3, 4, 29, 30, 31, 56, 57, 58, 59, 60, 61), 2):
            frames = list(LogReader(tmp_path).frames(start, end))
            expected = [offset for offset in kept if start <= offset < end]
            assert [offset for frame in frames for offset in frame.offsets().to_pylist()] == expected
            documents: list[Any] = [row for frame in frames for row in frame.rows().column("data").to_pylist()]
            ids = [row["id"] for row in documents]
            assert ids == [-1 if offset == 60 else offset for offset in expected]
            assert all("offset" not in frame.rows().schema.names for frame in frames)


class TestAgain:
    def test_twice_is_once(self, tmp_path: Path) -> None:
        make_log(tmp_path, "ABCABC", "AAB", "A")
        read_by_everyone(tmp_path)
        assert compact(tmp_path).segments != []
        before = segment_bytes(tmp_path)
        assert compact(tmp_path).segments == []
        assert compact(tmp_path, by=By.KEY).segments == []
        assert segment_bytes(tmp_path) == before

    def test_further_each_time(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            for first in range(0, 100, 10):
                log.append_messages([change("A", number) for number in range(first, first + 10)])
            log.roll()
        Consumers(tmp_path).register("c")
        sizes = [len(segment_bytes(tmp_path)[0])]
        for position in (4, 23, 24, 61, 99):
            has_read(tmp_path, "c", position)
            compact(tmp_path)
            assert set(range(position + 1, 100)) | {99} <= set(offsets_of(tmp_path))
            sizes.append(len(segment_bytes(tmp_path)[0]))
            check_whole(tmp_path)
        assert sizes == sorted(sizes, reverse=True)
        assert offsets_of(tmp_path) == [99]
        with Segment(str(tmp_path), Offset(0)) as segment:
            assert [(found.head.offset, found.head.span) for found in segment.heads()] == [(0, 99), (99, 1)]

    def test_the_offset_logs_that_nobody_uses_are_compacted_too(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAAAAAA", "A")
        consumers = Consumers(tmp_path)
        for name in ("idle", "busy"):
            consumers.register(name)
            for offset in range(5):
                has_read(tmp_path, name, offset)
        sizes = {name: offset_log(tmp_path, name).stat().st_size for name in ("idle", "busy")}
        with ConsumerSession(consumers, "busy", flush_s=NEVER_S) as session:
            compact(tmp_path)
            assert offset_log(tmp_path, "idle").stat().st_size == sizes["idle"] // 5
            assert offset_log(tmp_path, "busy").stat().st_size == sizes["busy"]
            session.commit(6)
        assert consumers.get("idle").positions.of("A") == 4
        assert consumers.get("busy").positions.of("A") == 6


class TestBeside:
    def test_a_consumer_that_registers_meanwhile(self, tmp_path: Path) -> None:
        """It may count on every message from where it begins (I6)."""
        make_log(tmp_path, "AAAA", "AAAA", "A")
        read_by_everyone(tmp_path)
        disk = ActingDisk(lambda: Consumers(tmp_path).register("late", start=2), before_sync=True)
        done = compact(tmp_path, disk=disk)
        assert done.segments == []
        assert offsets_of(tmp_path) == list(range(9))
        check_whole(tmp_path)

    def test_a_consumer_that_registers_behind_it(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "AAAA", "A")
        read_by_everyone(tmp_path)
        disk = ActingDisk(lambda: Consumers(tmp_path).register("late", start=9), before_sync=True)
        compact(tmp_path, disk=disk)
        assert offsets_of(tmp_path) == [7, 8]

    def test_a_consumer_that_is_rewound_meanwhile(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "AAAA", "A")
        read_by_everyone(tmp_path)
        rewinding = lambda: Operator(Consumers(tmp_path)).rewind("everyone", 3, reason="again")  # noqa: E731
        done = compact(tmp_path, disk=ActingDisk(rewinding, before_sync=True))
        assert done.segments == []
        assert offsets_of(tmp_path) == list(range(9))

    def test_readers_that_have_a_segment_open(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "AAAA", "A")
        read_by_everyone(tmp_path)
        entries = LogReader(tmp_path).entries()
        assert [next(entries).offset for _ in range(2)] == [0, 1]
        compact(tmp_path)
        rest = [entry.offset for entry in entries]
        assert rest == [2, 3, 7, 8]

    def test_an_appender_and_readers(self, tmp_path: Path) -> None:
        """Meanwhile one thread appends, others read and acknowledge: what is not acknowledged is always there, whole,
        and what a reader gets is what was appended."""
        consumers = Consumers(tmp_path)
        stop = threading.Event()
        problems: list[object] = []

        def watched(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    work()
                except BaseException as problem:  # noqa: BLE001  told to the main thread
                    problems.append(problem)
                    stop.set()

            return run

        log = CommitLog.open(tmp_path, LogConfig(segment_bytes=20_000, sync_every_s=None))
        log.append_messages([change("A", 0)])
        consumers.register("c")

        def append() -> None:
            while not stop.is_set():
                first = log.next_offset
                log.append_messages([change("AB"[at % 2], first + at) for at in range(6)])

        def acknowledge() -> None:
            with ConsumerSession(Consumers(tmp_path), "c", flush_s=0.01) as session:
                for frame in LogReader(tmp_path).tail(stop=stop):
                    session.commit(frame.head.end - 1)

        def read() -> None:
            while not stop.is_set():
                reader = LogReader(tmp_path)
                end = reader.next_offset
                found = list(reader.entries(0, end))
                assert all(entry.message.data and entry.message.data["id"] == entry.offset for entry in found)
                offsets = [entry.offset for entry in found]
                assert offsets == sorted(set(offsets))
                needed = consumers.get("c").positions.of("A") + 1
                assert set(range(needed, end)) <= set(offsets)

        threads = [threading.Thread(target=watched(work)) for work in (append, acknowledge, read)]
        for thread in threads:
            thread.start()
        compacted = 0

        def is_done() -> bool:
            nonlocal compacted
            compacted += len(compact(tmp_path).segments)
            return compacted >= 12 or stop.is_set()

        try:
            eventually(is_done, limit_s=120)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            log.close()
        assert problems == []
        assert verify(tmp_path).problems == []
        assert len(offsets_of(tmp_path)) < LogReader(tmp_path).next_offset

    def test_a_reader_in_another_process(self, tmp_path: Path) -> None:
        """It reads the log from the beginning, over and over, while it is compacted step by step."""
        code = """
import sys
from tailrace.log.reader import LogReader
print("reading", flush=True)
passes = 0
while True:
    offsets = [entry.offset for entry in LogReader(sys.argv[1]).entries()]
    numbers = [entry.message.data["id"] for entry in LogReader(sys.argv[1]).entries()]
    assert offsets == sorted(set(offsets)) and offsets[-1] == 199 and numbers == sorted(numbers), offsets
    passes += 1
    if len(offsets) <= 9:
        print("passes", passes, flush=True)
        break
"""
        make_log(tmp_path, *["AAABBB" * 4] * 8, "A" * 8)
        consumers = Consumers(tmp_path)
        consumers.register("c")
        command = [sys.executable, "-c", code, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            assert reader.stderr is not None
            try:
                assert reader.stdout.readline() == "reading\n"
                for position in range(19, 200, 20):
                    has_read(tmp_path, "c", position)
                    compact(tmp_path)
                with CommitLog.open(tmp_path) as log:
                    log.roll()
                compact(tmp_path)
                told, problem = reader.stdout.readline(), reader.stderr.read()
                assert told.startswith("passes"), problem
            finally:
                reader.kill()

    def test_one_at_a_time(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "A")
        read_by_everyone(tmp_path)
        with maintaining(str(tmp_path)), pytest.raises(TailraceError) as caught:
            compact(tmp_path)
        assert caught.value.code == "log.busy"
        assert offsets_of(tmp_path) == list(range(5))


class TestSafety:
    def test_the_order_of_the_swap(self, tmp_path: Path) -> None:
        """Side files of the old version go before the new one comes, and then that one is in its place durably."""
        make_log(tmp_path, "AAAA", "A")
        read_by_everyone(tmp_path)
        disk = TellingDisk()
        compact(tmp_path, disk=disk)
        segment = str(tmp_path / segment_name(0))
        names = [Path(path).name for path in (contents_path(segment), index_path(segment), segment)]
        swap = disk.calls.index(("rename", segment_name(0)))
        assert disk.calls[swap - 2 : swap] == [("remove", names[0]), ("remove", names[1])]
        assert disk.calls[swap + 1] == ("sync_directory", tmp_path.name)

    @pytest.mark.crash
    def test_a_crash_at_every_step_leaves_the_old_or_the_new(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        make_log(log, "AAAA", "ABAB", "A")
        read_by_everyone(log)
        outcomes: list[list[int]] = []
        for step in itertools.count():
            copy = tmp_path / f"crash {step}"
            shutil.copytree(log, copy)
            disk = DyingDisk(step)
            with contextlib.suppress(TailraceError):
                compact(copy, disk=disk)
            left = offsets_of(copy)
            if not outcomes or outcomes[-1] != left:
                outcomes.append(left)
            assert verify(copy).problems == []
            CommitLog.open(copy).close()
            assert [file for file in os.listdir(copy) if file.endswith(DRAFT_SUFFIX)] == []
            assert offsets_of(copy) == left
            compact(copy)
            assert offsets_of(copy) == [6, 7, 8]
            if disk.steps:
                break
        assert outcomes == [list(range(9)), [4, 5, 6, 7, 8], [6, 7, 8]]

    def test_damage_stops_it(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "A")
        read_by_everyone(tmp_path)
        raw = bytearray((tmp_path / segment_name(0)).read_bytes())
        raw[-10] ^= 1
        (tmp_path / segment_name(0)).write_bytes(raw)
        with pytest.raises(TailraceError) as caught:
            compact(tmp_path)
        assert caught.value.code == "log.corrupt"
        assert (tmp_path / segment_name(0)).read_bytes() == raw
        assert [file for file in os.listdir(tmp_path) if file.endswith(DRAFT_SUFFIX)] == []

    def test_missing_side_files(self, tmp_path: Path) -> None:
        make_log(tmp_path, "AAAA", "A")
        read_by_everyone(tmp_path)
        for file in [*tmp_path.glob("*.toc"), *tmp_path.glob("*.index")]:
            file.unlink()
        compact(tmp_path)
        assert offsets_of(tmp_path) == [3, 4]

    def test_a_consumer_whose_offsets_are_damaged_holds_everything(self, tmp_path: Path) -> None:
        """Nobody knows what it needs (I6)."""
        make_log(tmp_path, "AAAA", "A")
        read_by_everyone(tmp_path)
        consumers = Consumers(tmp_path)
        consumers.register("damaged", start=4)
        has_read(tmp_path, "damaged", 4)
        raw = bytearray(offset_log(tmp_path, "damaged").read_bytes())
        raw[40] ^= 1
        offset_log(tmp_path, "damaged").write_bytes(raw)
        done = compact(tmp_path)
        assert (done.segments, done.held_by) == ([], ["damaged"])
        assert offsets_of(tmp_path) == list(range(5))
        assert offset_log(tmp_path, "damaged").read_bytes() == raw
        consumers.delete("damaged", "it is")
        compact(tmp_path)
        assert offsets_of(tmp_path) == [3, 4]


class DyingDisk(Disk):
    """After so many steps nothing works any more."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def create(self, path: str) -> int:
        self._step()
        return super().create(path)

    def sync(self, fd: int) -> None:
        self._step()
        super().sync(fd)

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
