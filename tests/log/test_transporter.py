"""A log directory written by the real Transporter: read as its own tool reads it, unchanged, and gone on with."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tailrace.log.batch import message_rows
from tailrace.log.commitlog import CommitLog
from tailrace.log.compaction import By, compact
from tailrace.log.consumers import Consumers
from tailrace.log.frame import encode_plain
from tailrace.log.reader import LogReader
from tailrace.log.segment import list_segments, segment_name
from tailrace.log.selection import Selection
from tailrace.log.session import ConsumerSession
from tailrace.log.verification import verify
from tailrace.message import Entry, Lsn, Micros, Mode, NodeId, Op, moment
from tests.log.batches import number_of, numbered
from tests.log.refusals import refused

XLOG: Final = Path(__file__).parents[1] / "fixtures" / "transporter-xlog"
COUNT: Final = 25


def value(number: int) -> str:
    """The document that the fixture was made of, as Transporter writes it."""
    price = f"{number * 1.5:g}"
    note = '"é\\n\\"quoted\\""' if number % 5 == 0 and number < 24 else "null"
    tags = '["a","b"]' if number % 2 else "[]"
    return (
        f'{{"_id":{number},"name":"customer-{number}","nested":{{"city":"Zürich","zip":{8000 + number}}},'
        f'"note":{note},"price":{price},"tags":{tags}}}'
    )


def printed(entry: Entry, text: str) -> str:
    """What `transporter xlog show` prints."""
    return "\n".join(
        (
            f"offset    : {entry.offset}",
            f"timestamp : {moment(entry.message.timestamp):%Y-%m-%d %H:%M:%S} +0000 UTC",
            f"mode      : {entry.mode.name}",
            f"op        : {entry.message.op.name}",
            f"key       : {entry.message.namespace}",
            f"value     : {text}",
        )
    )


def state(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path.relative_to(directory)): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in (directory, *directory.rglob("*"))
    }


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(XLOG, tmp_path / "xlog"))


class TestReading:
    def test_every_entry_has_the_exact_document(self) -> None:
        reader = LogReader(XLOG)
        frames = list(reader.frames())
        assert [bytes(frame.body).decode() for frame in frames] == [value(number) for number in range(COUNT)]
        entries = list(reader.entries())
        assert [entry.offset for entry in entries] == list(range(COUNT))
        assert [entry.message.data for entry in entries] == [json.loads(value(number)) for number in range(COUNT)]
        assert {(entry.mode, entry.message.op, entry.message.namespace) for entry in entries} == {
            (Mode.COPY, Op.INSERT, "orders.json")
        }

    def test_it_reads_as_transporters_own_tool_prints_it(self) -> None:
        expected = (XLOG / "EXPECTED.md").read_text(encoding="utf-8")
        shown = re.findall(r"\$ transporter xlog show (\d+)\n(.*?)\n\n", expected, re.DOTALL)
        assert [int(offset) for offset, _ in shown] == [0, 1, 5, 9, 10, 24]
        reader = LogReader(XLOG)
        for offset, text in shown:
            (frame,) = reader.frames(int(offset), int(offset) + 1)
            (entry,) = frame.entries()
            assert printed(entry, bytes(frame.body).decode()) == text
        (oldest,) = re.findall(r"\$ transporter xlog oldest\n(\d+)", expected)
        (current,) = re.findall(r"\$ transporter xlog current\n(\d+)", expected)
        assert (reader.oldest, reader.next_offset - 1) == (int(oldest), int(current))
        offsets = re.findall(r"\| (\S+) +\| +(\d+) \|", expected)
        assert offsets == [("sink", "24"), ("orders.json", "24")]
        consumers = Consumers(XLOG)
        assert consumers.names() == ["sink"]
        assert consumers.position(consumers.get("sink")) == 24
        assert consumers.get("sink").positions.by_namespace == {"orders.json": 24}

    def test_ranges_and_selections(self) -> None:
        reader = LogReader(XLOG)
        assert [entry.offset for entry in reader.entries(9, 13)] == [9, 10, 11, 12]
        assert len(list(reader.entries(selection=Selection(namespace=re.compile("orders"))))) == COUNT
        assert list(reader.entries(selection=Selection(namespace=re.compile("users")))) == []
        assert list(reader.entries(selection=Selection(destination="north"))) == []
        assert list(reader.entries(selection=Selection(since={}))) == []
        assert reader.offset_at(Micros(0)) == 0
        assert reader.offset_at(Micros(1)) == COUNT
        assert reader.offset_of(NodeId(0), Lsn(0)) == 0
        assert next(reader.tail(20, idle_s=0.0)).head.offset == 20
        with refused("log.past_end", saying="the newest is 24"):
            list(reader.entries(COUNT + 1))

    def test_documents_are_columns_too(self) -> None:
        rows = [row for frame in LogReader(XLOG).frames() for row in frame.rows().column("data").to_pylist()]
        assert rows == [json.loads(value(number)) for number in range(COUNT)]

    def test_nothing_in_the_directory_changes(self) -> None:
        before = state(XLOG)
        reader = LogReader(XLOG)
        assert len(list(reader.entries())) == COUNT
        list(reader.entries(selection=Selection(destination="north")))
        list(reader.tail(0, idle_s=0.0))
        reader.offset_at(Micros(0))
        consumers = Consumers(XLOG)
        assert [consumer.name for consumer in consumers.all()] == ["sink"]
        found = verify(XLOG)
        assert (found.problems, found.messages, found.segments) == ([], COUNT, 3)
        assert state(XLOG) == before


class TestGoingOn:
    def test_a_copy_is_appended_to_and_read_across(self, copy: Path) -> None:
        before = {path.name: path.read_bytes() for path in copy.glob("*.log")}
        with CommitLog.open(copy) as log:
            assert log.report.cut is None
            assert log.report.previous_writer is None
            assert log.append([numbered(25, 26, namespace="orders.json")]) == (25, 27)
            log.roll()
            assert log.append([numbered(27)]) == (27, 28)
        entries = list(LogReader(copy).entries())
        assert [entry.offset for entry in entries] == list(range(28))
        assert [entry.message.data for entry in entries[:COUNT]] == [json.loads(value(n)) for n in range(COUNT)]
        assert [number_of(entry) for entry in entries[COUNT:]] == [25, 26, 27]
        assert [entry.offset for entry in LogReader(copy).entries(23, 27)] == [23, 24, 25, 26]
        for name, raw in before.items():
            assert (copy / name).read_bytes()[: len(raw)] == raw
        assert list_segments(str(copy)) == [0, 11, 22, 27]
        assert verify(copy).problems == []
        with CommitLog.open(copy) as log:
            assert log.report.is_clean

    def test_its_consumer_goes_on(self, copy: Path) -> None:
        with CommitLog.open(copy) as log:
            log.append([numbered(25, namespace="orders.json")])
        consumers = Consumers(copy)
        with ConsumerSession(consumers, "sink") as session:
            assert session.resume_offset == 25
            session.commit(25, "orders.json")
        assert consumers.position(consumers.get("sink")) == 25

    @pytest.mark.parametrize("by", By)
    def test_a_copy_is_compacted(self, copy: Path, by: By) -> None:
        with CommitLog.open(copy) as log:
            log.append([numbered(25, namespace="orders.json")])
            log.roll()
            with ConsumerSession(Consumers(copy), "sink") as session:
                session.commit(25, "orders.json")
            compact(copy, by=by)
        kept = [entry.offset for entry in LogReader(copy).entries()]
        assert kept == ([25] if by is By.NAMESPACE else list(range(26)))
        assert verify(copy).problems == []


def document(offset: int, data: Any, key: str = "orders.json", second: int = 0) -> bytes:
    return encode_plain(
        offset=offset,
        timestamp_s=second,
        mode=Mode.COPY,
        op=Op.INSERT,
        key=key.encode(),
        data=json.dumps(data).encode(),
    )


class TestOtherDocuments:
    """What Transporter writes and we would not: paths as namespaces, lists of everything, gaps."""

    DOCUMENTS: Final[list[Any]] = [
        {"_id": 1, "mixed": [1, "two", 3.5, None, {"x": 1}]},
        {"_id": 2, "parts": [{"a": 1}, {"b": 2}]},
        {"_id": 3, "huge": 2**70},
        {"_id": {"$oid": "5f"}},
        {"_id": 1, "last": True},
        {},
        None,
    ]

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        raw = b"".join(document(at, data, "/tmp/orders.json") for at, data in enumerate(self.DOCUMENTS))
        (tmp_path / segment_name(0)).write_bytes(raw)
        return tmp_path

    def test_documents_of_any_shape_are_read_as_they_are(self, log: Path) -> None:
        entries = list(LogReader(log).entries())
        assert [entry.message.data for entry in entries] == self.DOCUMENTS
        assert {entry.message.namespace for entry in entries} == {"/tmp/orders.json"}

    def test_they_are_columns_too(self, log: Path) -> None:
        frames = LogReader(log).frames()
        rows = [row for frame in frames for row in message_rows(frame.rows(), frame.head.namespace, NodeId(0))]
        assert [row.data for row in rows] == self.DOCUMENTS

    def test_one_that_fits_no_column_is_read_and_no_damage(self, log: Path) -> None:
        path = log / segment_name(0)
        path.write_bytes(path.read_bytes() + document(7, {"half a character \ud800": 1}))
        (frame,) = LogReader(log).frames(7)
        (entry,) = frame.entries()
        assert entry.message.data == {"half a character \ud800": 1}
        with refused("message.invalid", saying="tailrace log show 7"):
            frame.rows()
        assert verify(log).problems == []

    def test_they_are_no_damage(self, log: Path) -> None:
        assert verify(log).problems == []

    def test_they_are_compacted_by_key(self, log: Path) -> None:
        with CommitLog.open(log) as writer:
            writer.roll()
            compact(log, by=By.KEY, upto=len(self.DOCUMENTS) - 1)
        kept = [entry.message.data for entry in LogReader(log).entries()]
        assert kept == self.DOCUMENTS[1:]

    def test_text_that_is_no_json_is_refused_where_it_is(self, log: Path) -> None:
        raw = encode_plain(offset=7, timestamp_s=0, mode=Mode.COPY, op=Op.INSERT, key=b"a", data=b"{nonsense")
        path = log / segment_name(0)
        size = path.stat().st_size
        path.write_bytes(path.read_bytes() + raw)
        with refused("log.corrupt", saying=f"byte {size}, offset 7"):
            list(LogReader(log).entries(7))
        (problem,) = verify(log).problems
        assert problem.code == "log.corrupt"

    def test_gaps_of_its_compaction_are_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / segment_name(0)).write_bytes(document(3, {"n": 3}) + document(7, {"n": 7}))
        (tmp_path / segment_name(10)).write_bytes(document(12, {"n": 12}) + document(13, {"n": 13}))
        reader = LogReader(tmp_path)
        assert [entry.offset for entry in reader.entries()] == [3, 7, 12, 13]
        assert [entry.offset for entry in reader.entries(4, 13)] == [7, 12]
        assert [entry.offset for entry in reader.entries(9, 11)] == []
        with CommitLog.open(tmp_path) as log:
            assert log.append([numbered(14)]) == (14, 15)
        assert [number_of(entry) for entry in LogReader(tmp_path).entries()] == [3, 7, 12, 13, 14]
        assert verify(tmp_path).problems == []

    def test_timestamps_are_seconds(self, tmp_path: Path) -> None:
        raw = document(0, {"n": 0}, second=1_500_000_000) + document(1, {"n": 1}, second=1_500_000_001)
        (tmp_path / segment_name(0)).write_bytes(raw)
        reader = LogReader(tmp_path)
        first, _ = reader.entries()
        assert moment(first.message.timestamp).isoformat() == "2017-07-14T02:40:00+00:00"
        assert reader.offset_at(Micros(1_500_000_000_000_001)) == 1
