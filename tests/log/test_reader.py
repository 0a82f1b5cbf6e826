"""Readers: by offset, namespace, destination, moment and (origin, lsn); at the end they wait; groups are seen whole."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.limits import INDEX_INTERVAL_BYTES, KIB, MIB
from tailrace.log.batch import batches_of, encode_frame
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.frame import Codec
from tailrace.log.reader import LogReader
from tailrace.log.segment import list_segments, segment_name
from tailrace.log.selection import Selection
from tailrace.log.view import LogView
from tailrace.message import Lsn, Message, Micros, NodeId, Offset, Op
from tests.log.batches import bulky, log_numbers, message, number_of, numbered, numbers
from tests.log.children import DEADLINE_S, Child, wait_until
from tests.log.disks import GatedDisk
from tests.log.refusals import refused


@pytest.fixture
def log_of_ten(tmp_path: Path) -> Path:
    """Offsets 0 to 9 in frames of 3, 3, 1 and 3, over three segments."""
    with CommitLog.open(tmp_path) as log:
        log.append([numbered(0, 1, 2)])
        log.roll()
        log.append([numbered(3, 4, 5), numbered(6)])
        log.roll()
        log.append([numbered(7, 8, 9)])
    return tmp_path


def column(rows: pa.RecordBatch) -> list[int]:
    data: Any = rows.column("data")
    found: list[int] = data.field("n").to_pylist()
    return found


class TestRanges:
    def test_every_range_gives_exactly_its_messages(self, log_of_ten: Path) -> None:
        reader = LogReader(log_of_ten)
        for start in range(11):
            for end in range(start, 11):
                expected = [(number, number) for number in range(start, end)]
                assert numbers(reader.entries(start, end)) == expected
                offsets = [offset for frame in reader.frames(start, end) for offset in frame.offsets().to_pylist()]
                rows = [n for frame in reader.frames(start, end) for n in column(frame.rows())]
                assert list(zip(offsets, rows, strict=True)) == expected

    def test_without_bounds_it_is_everything(self, log_of_ten: Path) -> None:
        reader = LogReader(log_of_ten)
        assert (reader.oldest, reader.next_offset) == (0, 10)
        assert [number for _, number in numbers(reader.entries())] == list(range(10))
        assert [number for _, number in numbers(reader.entries(start=8))] == [8, 9]
        assert [number for _, number in numbers(reader.entries(end=2))] == [0, 1]

    def test_below_the_oldest_says_the_oldest(self, log_of_ten: Path) -> None:
        for suffix in (".log", ".index", ".toc"):
            (log_of_ten / f"{0:020d}{suffix}").unlink()
        reader = LogReader(log_of_ten)
        assert reader.oldest == 3
        with refused("log.below_oldest", saying="offset 2 is not in the log, the oldest is 3"):
            list(reader.entries(2))
        with refused("log.below_oldest", saying="tailrace log show 3"):
            list(reader.entries(-1, 4))

    def test_past_the_end_says_the_newest(self, log_of_ten: Path) -> None:
        reader = LogReader(log_of_ten)
        for start, end in ((11, None), (0, 11), (12, 13)):
            with refused("log.past_end", saying="the newest is 9"):
                list(reader.entries(start, end))
        assert list(reader.entries(10)) == []

    def test_backwards_is_refused(self, log_of_ten: Path) -> None:
        with refused("log.bad_range", saying="from 5 to 4"):
            list(LogReader(log_of_ten).entries(5, 4))

    def test_where_there_is_no_log(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for path in (tmp_path, tmp_path / "missing", tmp_path / "file"):
            with refused("log.not_found", saying=str(path)):
                list(LogReader(path).entries())
        assert sorted(os.listdir(tmp_path)) == ["file"]

    def test_offset_that_retention_removes_meanwhile(self, log_of_ten: Path) -> None:
        entries = LogReader(log_of_ten).entries()
        assert next(entries).offset == 0
        for base in (0, 3):
            (log_of_ten / segment_name(base)).unlink()
        with refused("log.below_oldest", saying="the oldest is 7"):
            list(entries)

    def test_reader_changes_nothing(self, log_of_ten: Path) -> None:
        def state() -> dict[str, tuple[bytes, int]]:
            return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in log_of_ten.iterdir()}

        before = state()
        reader = LogReader(log_of_ten)
        list(reader.entries(selection=Selection(destination="north")))
        reader.offset_at(Micros(1))
        reader.offset_of(NodeId(0), Lsn(0))
        assert state() == before


@dataclass(frozen=True)
class Sent:
    namespace: str
    destinations: tuple[str, ...]
    origin: int
    lsn: int
    timestamp: int


SENT = st.builds(
    Sent,
    namespace=st.sampled_from(["shop.orders", "shop.users", "log"]),
    destinations=st.lists(st.sampled_from(["north", "south"]), max_size=2, unique=True).map(tuple),
    origin=st.integers(0, 2),
    lsn=st.integers(0, 6),
    timestamp=st.integers(0, 6),
)
GROUPS = st.lists(st.lists(SENT, min_size=1, max_size=5), min_size=1, max_size=6)
SELECTIONS = st.builds(
    Selection,
    namespace=st.sampled_from(
        [None, re.compile("shop"), re.compile("^shop.orders$"), re.compile("o"), re.compile("x")]
    ),
    destination=st.sampled_from([None, "north", "south", "nowhere"]),
    since=st.none() | st.dictionaries(st.integers(0, 3).map(NodeId), st.integers(0, 6).map(Lsn), max_size=3),
)


def written(directory: Path, groups: list[list[Sent]], rolls: set[int]) -> list[Message]:
    """The messages of a log of these groups, by offset; a new segment is begun after some of them."""
    messages: list[Message] = []
    with CommitLog.open(directory, LogConfig(sync_every_s=None)) as log:
        for at, group in enumerate(groups):
            new = [
                Message(
                    Op.INSERT,
                    Micros(sent.timestamp),
                    sent.namespace,
                    {"n": len(messages) + number},
                    origin=NodeId(sent.origin),
                    lsn=Lsn(sent.lsn),
                    destinations=sent.destinations,
                )
                for number, sent in enumerate(group)
            ]
            log.append(batches_of(new))
            messages += new
            if at in rolls:
                log.roll()
    return messages


def wants(selection: Selection, sent: Message) -> bool:
    return (
        (selection.namespace is None or selection.namespace.search(sent.namespace) is not None)
        and (selection.destination is None or selection.destination in sent.destinations)
        and (selection.since is None or sent.lsn > selection.since.get(sent.origin, 0))
    )


class TestSelections:
    @given(groups=GROUPS, rolls=st.sets(st.integers(0, 5)), selections=st.lists(SELECTIONS, min_size=3), data=st.data())
    def test_any_selection_of_any_range_gives_exactly_its_messages(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        groups: list[list[Sent]],
        rolls: set[int],
        selections: list[Selection],
        data: st.DataObject,
    ) -> None:
        directory = tmp_path_factory.mktemp("log")
        messages = written(directory, groups, rolls)
        reader = LogReader(directory)
        for selection in selections:
            start = data.draw(st.integers(0, len(messages)))
            end = data.draw(st.integers(start, len(messages)))
            expected = [(at, messages[at]) for at in range(start, end) if wants(selection, messages[at])]
            found = list(reader.entries(start, end, selection))
            assert [(entry.offset, entry.message) for entry in found] == expected

    @given(groups=GROUPS, rolls=st.sets(st.integers(0, 5)))
    def test_moments_and_origins_are_found(
        self, tmp_path_factory: pytest.TempPathFactory, groups: list[list[Sent]], rolls: set[int]
    ) -> None:
        """Timestamps and lsns come in any order: the answer is the first message that is late enough."""
        directory = tmp_path_factory.mktemp("log")
        messages = written(directory, groups, rolls)
        reader = LogReader(directory)
        for moment in range(8):
            late = (Offset(at) for at, sent in enumerate(messages) if sent.timestamp >= moment)
            assert reader.offset_at(Micros(moment)) == next(late, len(messages))
        for origin in range(4):
            for lsn in range(8):
                late = (Offset(at) for at, sent in enumerate(messages) if sent.origin == origin and sent.lsn >= lsn)
                assert reader.offset_of(NodeId(origin), Lsn(lsn)) == next(late, None)

    def test_namespace_is_searched_for_anywhere(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(at, namespace=name) for at, name in enumerate(["a.users", "users.a", "b", "a.user"])])
        reader = LogReader(tmp_path)
        for pattern, expected in (("users", [0, 1]), ("^users", [1]), ("users$", [0]), (".*", [0, 1, 2, 3])):
            found = reader.entries(selection=Selection(namespace=re.compile(pattern)))
            assert [entry.offset for entry in found] == expected

    def test_moments_with_timestamps_out_of_order(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            for at, timestamp in enumerate([10, 50, 20]):
                log.append([numbered(at, timestamp=timestamp)])
            log.roll()
            for at, timestamp in enumerate([5, 40, 60]):
                log.append([numbered(at, timestamp=timestamp)])
        reader = LogReader(tmp_path)
        assert [reader.offset_at(Micros(at)) for at in (0, 10, 11, 20, 50, 51, 60, 61)] == [0, 0, 1, 1, 1, 5, 5, 6]


class Meter:
    """Counts what is read from files of frames."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self.calls = 0
        pread = os.pread

        def counted(fd: int, size: int, at: int) -> bytes:
            raw = pread(fd, size, at)
            self.bytes += len(raw)
            self.calls += 1
            return raw

        monkeypatch.setattr(os, "pread", counted)

    def reset(self) -> None:
        self.bytes = self.calls = 0


def many_frames(directory: Path, count: int) -> None:
    """One sealed segment with many small frames."""
    head, body = encode_frame(numbered(7), Codec.NONE)
    with CommitLog.open(directory, LogConfig(sync_every_s=None)) as log:
        with log.group() as group:
            for _ in range(count):
                group.add_frame(head, body)
        log.append([numbered(8)])
        log.roll()
        log.append([numbered(9)])


class TestCosts:
    def test_offset_is_found_without_walking_the_segment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """One interval of the sparse index is walked at most, however long the segment is."""
        meter = Meter(monkeypatch)
        for count in (1_000, 20_000):
            directory = tmp_path / str(count)
            many_frames(directory, count)
            segment_bytes = (directory / segment_name(0)).stat().st_size
            view = LogView(str(directory))
            for offset in range(0, count, count // 19):
                meter.reset()
                assert view.find(Offset(offset)).head.offset == offset
                assert meter.bytes < 2 * INDEX_INTERVAL_BYTES
        assert segment_bytes > 50 * INDEX_INTERVAL_BYTES

    def test_without_an_index_it_is_found_all_the_same(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The measure above measures something: without the index the segment is walked."""
        many_frames(tmp_path, 1_000)
        (tmp_path / f"{0:020d}.index").unlink()
        meter = Meter(monkeypatch)
        assert LogView(str(tmp_path)).find(Offset(990)).head.offset == 990
        assert meter.bytes > (tmp_path / segment_name(0)).stat().st_size

    def test_reading_one_message_reads_no_more_than_it_needs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        many_frames(tmp_path, 20_000)
        reader = LogReader(tmp_path)
        meter = Meter(monkeypatch)
        assert numbers(reader.entries(15_000, 15_001)) == [(15_000, 7)]
        assert meter.bytes < 3 * INDEX_INTERVAL_BYTES

    def test_destination_in_a_sealed_segment_is_found_by_its_tags(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with CommitLog.open(tmp_path) as log:
            for at in range(40):
                (batch,) = batches_of([message(at, "shop.orders", "north" if at == 30 else "south")])
                log.append([batch, bulky(at, 100 * KIB)])
            log.roll()
        meter = Meter(monkeypatch)
        found = LogReader(tmp_path).entries(selection=Selection(destination="north"))
        assert [entry.offset for entry in found] == [60]
        assert meter.bytes < 200 * KIB
        assert (tmp_path / segment_name(0)).stat().st_size > 3 * MIB

    def test_destination_in_the_active_segment_is_found_by_heads(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with CommitLog.open(tmp_path) as log:
            for at in range(8):
                (batch,) = batches_of([message(at, "shop.orders", "north" if at == 5 else "south")])
                log.append([batch, bulky(at, MIB)])
        meter = Meter(monkeypatch)
        found = LogReader(tmp_path).entries(selection=Selection(destination="north"))
        assert [entry.offset for entry in found] == [10]
        assert meter.bytes < 3 * MIB

    def test_unwanted_namespace_costs_heads_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with CommitLog.open(tmp_path) as log:
            for at in range(8):
                log.append([bulky(at, MIB, namespace="big"), numbered(at, namespace="small")])
        meter = Meter(monkeypatch)
        found = LogReader(tmp_path).entries(selection=Selection(namespace=re.compile("small")))
        assert len(list(found)) == 8
        assert meter.bytes < 3 * MIB


class TestTail:
    def test_append_wakes_a_reader_that_never_looks_by_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tailrace.log.watch.LOOK_EVERY_S", 3600.0)
        monkeypatch.setattr("tailrace.log.reader.LOOK_EVERY_S", 3600.0)
        with CommitLog.open(tmp_path, LogConfig(segment_bytes=1)) as log:
            log.append([numbered(0)])
            seen: list[int] = []
            grown = threading.Semaphore(0)

            def follow() -> None:
                for frame in LogReader(tmp_path).tail(0):
                    seen.extend(frame.offsets().to_pylist())  # type: ignore[arg-type]
                    grown.release()
                    if len(seen) == 6:
                        return

            thread = threading.Thread(target=follow, daemon=True)
            thread.start()
            for number in range(1, 6):
                assert grown.acquire(timeout=DEADLINE_S)
                log.append([numbered(number)])  # in a new segment each time
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        assert seen == list(range(6))

    def test_growth_while_a_frame_is_worked_on_is_not_missed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tailrace.log.watch.LOOK_EVERY_S", 3600.0)
        monkeypatch.setattr("tailrace.log.reader.LOOK_EVERY_S", 3600.0)
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            tail = LogReader(tmp_path).tail(0)
            for number in range(5):
                frame = next(tail)
                assert frame.offsets().to_pylist() == [number]
                log.append([numbered(number + 1)])

    def test_group_is_not_seen_before_it_is_durable(self, tmp_path: Path) -> None:
        disk = GatedDisk()
        with CommitLog.open(tmp_path, disk=disk) as log:
            pending = log.append_soon([numbered(0)])
            assert disk.waiting.wait(DEADLINE_S)
            assert list(LogReader(tmp_path).tail(0, idle_s=0.0)) == []
            disk.gate.set()
            pending.wait()
            assert len(list(LogReader(tmp_path).tail(0, idle_s=0.0))) == 1

    def test_stop_ends_it(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            log.append([numbered(0)])
            stop = threading.Event()
            seen: list[int] = []
            thread = threading.Thread(
                target=lambda: seen.extend(frame.head.offset for frame in LogReader(tmp_path).tail(0, stop=stop))
            )
            thread.start()
            wait_until(lambda: seen == [0])
            assert thread.is_alive()
            stop.set()
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
        assert seen == [0]

    def test_without_growth_it_ends_when_told_so(self, log_of_ten: Path) -> None:
        assert [frame.head.offset for frame in LogReader(log_of_ten).tail(2, idle_s=0.05)] == [0, 3, 6, 7]
        assert list(LogReader(log_of_ten).tail(10, idle_s=0.0)) == []

    def test_from_outside_the_log_is_refused(self, log_of_ten: Path) -> None:
        with refused("log.past_end"):
            next(LogReader(log_of_ten).tail(11))

    def test_selection_goes_on_over_segments(self, tmp_path: Path) -> None:
        with CommitLog.open(tmp_path) as log:
            tail: Iterator[Any] = iter(())
            for at in range(6):
                destination = "north" if at % 2 else "south"
                log.append(batches_of([message(at, "shop.orders", destination)]))
                if at == 0:
                    tail = LogReader(tmp_path).tail(0, Selection(destination="north"))
                if at % 2:
                    assert next(tail).head.offset == at
                    log.roll()


READ = """
import sys, threading
from tailrace.log.reader import LogReader
group, total = [], 0
print("ready", flush=True)
for frame in LogReader(sys.argv[1]).tail(0):
    for entry in frame.entries():
        assert entry.offset == total, (entry.offset, total)
        total += 1
        group.append(entry.message.data["group"])
    if frame.head.closes_group:
        assert len(set(group)) == 1, group
        assert len(group) == entry.message.data["size"], group
        group.clear()
        if entry.message.data["is_last"]:
            break
    # What a fresh look at the log shows are whole groups, too.
    if total in (50, 150, 300):
        counts = {}
        sizes = {}
        for seen in LogReader(sys.argv[1]).entries():
            counts[seen.message.data["group"]] = counts.get(seen.message.data["group"], 0) + 1
            sizes[seen.message.data["group"]] = seen.message.data["size"]
        assert counts == sizes, (counts, sizes)
print(total, flush=True)
"""
WRITE = """
import sys
from tailrace.log.batch import batches_of
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.message import Message, Op
groups = int(sys.argv[2])
with CommitLog.open(sys.argv[1], LogConfig(segment_bytes=20_000)) as log:
    print("open", flush=True)
    sys.stdin.readline()
    for at in range(groups):
        size = at % 5 + 1
        data = {"group": at, "size": size, "is_last": at == groups - 1}
        log.append(batches_of(Message(Op.INSERT, 1, f"part-{n % 2}", data) for n in range(size)))
print(log.next_offset, flush=True)
"""


@pytest.mark.parametrize(
    ("groups", "readers"), [(150, 3), pytest.param(1_500, 6, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_readers_in_other_processes_see_every_group_whole_and_in_order(
    tmp_path: Path, groups: int, readers: int
) -> None:
    with Child(WRITE, str(tmp_path), str(groups)) as writer:
        assert writer.line() == "open"
        children = [Child(READ, str(tmp_path)) for _ in range(readers)]
        try:
            for child in children:
                assert child.line() == "ready"
            writer.tell("go")
            (total,) = writer.rest()
            assert int(total) == sum(at % 5 + 1 for at in range(groups))
            assert [child.rest() for child in children] == [[total]] * readers
        finally:
            for child in children:
                child.__exit__(None, None, None)
    assert len(list_segments(str(tmp_path))) > 3


def test_group_of_one_process_is_in_the_next_look_of_another(tmp_path: Path) -> None:
    """Acknowledged means readable, at once and everywhere."""
    look = (
        "import sys; from tailrace.log.reader import LogReader; reader = LogReader(sys.argv[1]);"
        "[print(reader.next_offset, flush=True) for _ in sys.stdin]"
    )
    with CommitLog.open(tmp_path, LogConfig(segment_bytes=3000)) as log, Child(look, str(tmp_path)) as child:
        for number in range(20):
            log.append([numbered(number)])
            child.tell("look")
            assert int(child.line()) == number + 1
    assert log_numbers(tmp_path) == list(range(20))


def test_rows_of_a_frame_are_columns(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path) as log:
        log.append([numbered(4, 5, 6)])
    (frame,) = LogReader(tmp_path).frames(1, 3)
    rows = frame.rows()
    assert rows.schema.names == ["op", "timestamp", "lsn", "data"]
    assert column(rows) == [5, 6]
    assert isinstance(frame.offsets(), pa.Int64Array)
    assert [number_of(entry) for entry in frame.entries()] == [5, 6]
