"""The promises of `source/contract.py` and `deliver/contract.py` as tests, for every adaptor.

An adaptor's test module derives a class from a suite here and supplies one fixture, `source` or `destination`, that
uses the outside system as its own users would. `docs/guides/add-an-adaptor.md` shows how.
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from tailrace.adaptor.options import ReaderOptions, WriterOptions
from tailrace.deliver.conforming import conform, frame_schema
from tailrace.deliver.contract import ClearingFrames, FrameWriter, Spread, Target, Writer
from tailrace.deliver.evolution import Evolution
from tailrace.deliver.frames import TypedFrame
from tailrace.deliver.framewriting import FrameWriting
from tailrace.deliver.messages import Messages
from tailrace.deliver.passing import PASSED, Passing
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, key_of, message_rows
from tailrace.message import Message, Mode, Offset, Op
from tailrace.pipeline.spec import SchemaPolicy
from tailrace.source.contract import Piece, Position, Reader, Table
from tailrace.spark.types import spark_schema, spark_type
from tests.forked import FORKED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOSTILE_NAMES = (
    "select",
    "a b",
    'quo"te',
    "it's",
    "semi;colon -- comment",
    "grüße 日本",
    "back`tick",
    "br[ack]et",
    "100%",
    "x.y",
)
"""What users call tables and columns."""

Row = dict[str, Any]
Changes = Sequence[tuple[Op, Row] | tuple[Op, Row, Row | None]]
"""Ops with their data and, for rows that move, what they were."""


class Source(ABC):
    """An outside system that is read, in the hands of its users. Its tables have the columns `id` (a whole number, the
    key), `name` (text) and `amount` (a float). It must survive pickling: a test writes from another process."""

    @abstractmethod
    def options(self) -> ReaderOptions:
        """Options with which it is read, in pieces of a few rows."""

    @abstractmethod
    def create(self, table: str) -> str:
        """Make an empty table; gives its namespace."""

    @abstractmethod
    def insert(self, table: str, rows: Sequence[Row]) -> None: ...

    @abstractmethod
    def rows(self, table: str) -> list[Row]:
        """What is in it now."""

    def leftovers(self) -> set[str]:
        """Names of everything in the system that is no data of its users."""
        return set()


class ChangingSource(Source):
    """A source whose rows change."""

    @abstractmethod
    def update(self, table: str, id_: int, **values: Any) -> None:
        """Change a row; a new `id` moves it."""

    @abstractmethod
    def delete(self, table: str, id_: int) -> None: ...

    @abstractmethod
    def add_column(self, table: str, column: str) -> None:
        """Add a text column."""


def some_rows(first: int, count: int) -> list[Row]:
    """Rows that differ in every column."""
    return [{"id": number, "name": f"name {number}", "amount": number / 4} for number in range(first, first + count)]


def table_of(reader: Reader, namespace: str) -> Table:
    return next(table for table in reader.tables() if table.namespace == namespace)


def messages(batches: Iterable[Batch]) -> list[Message]:
    return [message for batch in batches for message in message_rows(batch.rows, batch.namespace, batch.origin)]


def plain(value: Any) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(value))


class ReaderContract(ABC):
    """What every reader promises."""

    @pytest.fixture
    @abstractmethod
    def source(self) -> Any:
        """A `Source` without tables."""

    @pytest.fixture
    def open_reader(self, source: Source) -> Iterator[Callable[[], Reader]]:
        """Readers made anew from the same options; nothing else connects them."""
        opened: list[Reader] = []

        def open_one() -> Reader:
            opened.append(source.options().open())
            return opened[-1]

        yield open_one
        for reader in opened:
            reader.close()

    def copy(self, open_reader: Callable[[], Reader], namespace: str, pieces: Iterable[Piece]) -> list[Message]:
        """Every piece by a reader of its own, as tasks do."""
        return messages(b for piece in pieces for b in open_reader().read_copy(namespace, plain(piece)))

    def changes(self, open_reader: Callable[[], Reader], start: Position, end: Position) -> list[Message]:
        with closing(open_reader()) as planner:
            pieces = planner.plan_changes(plain(start), plain(end))
        with closing(open_reader()) as task:
            return messages(batch for piece in pieces for batch in task.read_changes(plain(piece)))

    def install(self, open_reader: Callable[[], Reader]) -> Position:
        reader = open_reader()
        reader.install(reader.tables())
        return plain(reader.position())  # type: ignore[no-any-return]

    def test_tables_have_schema_and_key(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        namespace = source.create("t")
        source.insert("t", some_rows(1, 3))
        table = table_of(open_reader(), namespace)
        assert {"id", "name", "amount"} <= set(table.schema.names)
        assert set(table.key) <= set(table.schema.names)

    def test_new_tables_are_found(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        first = source.create("first")
        reader = open_reader()
        assert first in [table.namespace for table in reader.tables()]
        second = source.create("second")
        assert {first, second} <= {table.namespace for table in reader.tables()}

    @pytest.mark.parametrize("count", [0, 1, 2, 100, 1234])
    def test_pieces_are_all_of_the_table_once(
        self, source: Source, open_reader: Callable[[], Reader], count: int
    ) -> None:
        namespace = source.create("t")
        source.insert("t", some_rows(1, count))
        pieces = open_reader().plan_copy(table_of(open_reader(), namespace))
        read = self.copy(open_reader, namespace, pieces)
        assert sorted(message.data["id"] for message in read if message.data) == list(range(1, count + 1))
        assert all(message.namespace == namespace and message.op is Op.INSERT for message in read)

    def test_a_copy_has_its_values_key_and_mode(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        namespace = source.create("t")
        source.insert("t", [*some_rows(1, 3), {"id": 4, "name": None, "amount": None}])
        table = table_of(open_reader(), namespace)
        batches = [b for p in open_reader().plan_copy(table) for b in open_reader().read_copy(namespace, plain(p))]
        found = [message.data for message in messages(batches)]
        picked = [{name: row[name] for name in ("id", "name", "amount")} for row in found if row]
        assert sorted(picked, key=lambda row: row["id"]) == source.rows("t")
        assert {batch.mode for batch in batches} == {Mode.COPY}
        assert {key_of(batch.rows.schema) for batch in batches} == {table.key}

    def test_rows_that_come_after_planning_have_a_piece(
        self, source: Source, open_reader: Callable[[], Reader]
    ) -> None:
        namespace = source.create("t")
        source.insert("t", some_rows(1000, 50))
        pieces = open_reader().plan_copy(table_of(open_reader(), namespace))
        source.insert("t", some_rows(1, 5))
        source.insert("t", some_rows(5000, 5))
        read = [message.data["id"] for message in self.copy(open_reader, namespace, pieces) if message.data]
        assert sorted(read) == sorted(row["id"] for row in source.rows("t"))

    def test_a_piece_read_twice_is_the_same(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        namespace = source.create("t")
        source.insert("t", some_rows(1, 300))
        pieces = open_reader().plan_copy(table_of(open_reader(), namespace))
        first = [message.data for message in self.copy(open_reader, namespace, pieces)]
        assert first == [message.data for message in self.copy(open_reader, namespace, pieces)]

    def test_an_abandoned_piece_holds_nothing(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        namespace = source.create("t")
        source.insert("t", some_rows(1, 2000))
        for piece in open_reader().plan_copy(table_of(open_reader(), namespace)):
            batches = iter(open_reader().read_copy(namespace, piece))
            next(batches, None)
            source.insert("t", [])
            del batches
        source.insert("t", some_rows(9000, 1))
        assert {"id": 9000, "name": "name 9000", "amount": 2250.0} in source.rows("t")

    def test_nothing_changed(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        source.create("t")
        start = self.install(open_reader)
        end = open_reader().position()
        assert list(open_reader().plan_changes(start, end)) == []

    def test_inserts_are_changes(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        namespace = source.create("t")
        source.insert("t", some_rows(1, 5))
        start = self.install(open_reader)
        source.insert("t", some_rows(6, 3))
        read = self.changes(open_reader, start, open_reader().position())
        assert [(m.op, m.namespace, m.data["id"]) for m in read if m.data] == [
            (Op.INSERT, namespace, 6),
            (Op.INSERT, namespace, 7),
            (Op.INSERT, namespace, 8),
        ]

    def test_changes_are_read_from_the_position_alone(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        """Steps of any length, each by readers made anew, give each change once and in order."""
        source.create("t")
        position = self.install(open_reader)
        read: list[int] = []
        for step in range(5):
            source.insert("t", some_rows(100 * step, step * 7))
            end = plain(open_reader().position())
            read += [message.data["id"] for message in self.changes(open_reader, position, end) if message.data]
            position = end
        assert read == [100 * step + number for step in range(5) for number in range(step * 7)]

    def test_changes_read_twice_are_the_same(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        source.create("t")
        start = self.install(open_reader)
        source.insert("t", some_rows(1, 20))
        end = open_reader().position()
        first = self.changes(open_reader, start, end)
        assert len(first) == 20
        assert first == self.changes(open_reader, start, end)

    def test_the_order_of_a_namespace(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        names = {source.create("a"), source.create("b")}
        start = self.install(open_reader)
        for number in range(30):
            source.insert("a" if number % 3 else "b", some_rows(number, 1))
        read = self.changes(open_reader, start, open_reader().position())
        for namespace in names:
            ids = [m.data["id"] for m in read if m.namespace == namespace and m.data]
            assert ids == sorted(ids)
            assert ids

    def test_what_was_forgotten_is_not_needed(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        source.create("t")
        start = self.install(open_reader)
        source.insert("t", some_rows(1, 10))
        middle = plain(open_reader().position())
        assert len(self.changes(open_reader, start, middle)) == 10
        source.insert("t", some_rows(11, 2))
        for _ in range(2):
            open_reader().forget(middle)
        source.insert("t", some_rows(13, 3))
        read = self.changes(open_reader, middle, open_reader().position())
        assert [message.data["id"] for message in read if message.data] == [11, 12, 13, 14, 15]

    def test_install_twice(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        source.create("t")
        start = self.install(open_reader)
        once = source.leftovers()
        self.install(open_reader)
        assert source.leftovers() == once
        source.insert("t", some_rows(1, 3))
        assert len(self.changes(open_reader, start, open_reader().position())) == 3

    def test_uninstall_leaves_nothing(self, source: Source, open_reader: Callable[[], Reader]) -> None:
        source.create("t")
        source.insert("t", some_rows(1, 3))
        before = source.leftovers()
        open_reader().uninstall()
        self.install(open_reader)
        source.insert("t", some_rows(4, 3))
        for _ in range(2):
            open_reader().uninstall()
        assert source.leftovers() == before
        source.insert("t", some_rows(7, 1))
        assert len(source.rows("t")) == 7


class ChangingReaderContract(ReaderContract):
    """What readers of sources promise whose rows change."""

    @pytest.fixture
    @abstractmethod
    def source(self) -> Any:
        """A `ChangingSource` without tables."""

    def test_lsn_is_the_order_across_namespaces(
        self, source: ChangingSource, open_reader: Callable[[], Reader]
    ) -> None:
        for table in ("a", "b"):
            source.create(table)
        start = self.install(open_reader)
        for number in range(30):
            source.insert("a" if number % 3 else "b", some_rows(number, 1))
        read = self.changes(open_reader, start, open_reader().position())
        by_lsn = sorted(read, key=lambda message: message.lsn)
        assert [message.data["id"] for message in by_lsn if message.data] == list(range(30))

    def test_an_update(self, source: ChangingSource, open_reader: Callable[[], Reader]) -> None:
        source.create("t")
        source.insert("t", some_rows(1, 3))
        start = self.install(open_reader)
        source.update("t", 2, name="other", amount=None)
        (message,) = self.changes(open_reader, start, open_reader().position())
        assert message.op is Op.UPDATE
        assert message.data is not None
        assert {name: message.data[name] for name in ("id", "name", "amount")} == {
            "id": 2,
            "name": "other",
            "amount": None,
        }

    def test_a_delete_has_the_key(self, source: ChangingSource, open_reader: Callable[[], Reader]) -> None:
        namespace = source.create("t")
        source.insert("t", some_rows(1, 3))
        start = self.install(open_reader)
        source.delete("t", 2)
        (message,) = self.changes(open_reader, start, open_reader().position())
        assert message.op is Op.DELETE
        assert message.data is not None
        assert all(message.data[name] is not None for name in table_of(open_reader(), namespace).key)
        assert message.data["id"] == 2

    def test_a_row_that_moves_says_where_it_was(
        self, source: ChangingSource, open_reader: Callable[[], Reader]
    ) -> None:
        source.create("t")
        source.insert("t", some_rows(1, 3))
        start = self.install(open_reader)
        source.update("t", 2, id=20)
        state = {row["id"]: row for row in some_rows(1, 3)}
        read = self.changes(open_reader, start, open_reader().position())
        assert replay(state, read) == {row["id"]: row for row in source.rows("t")}
        moved = next(message for message in read if message.op is Op.UPDATE)
        assert moved.before is not None
        assert moved.before["id"] == 2

    def test_changes_carry_the_key(self, source: ChangingSource, open_reader: Callable[[], Reader]) -> None:
        namespace = source.create("t")
        start = self.install(open_reader)
        source.insert("t", some_rows(1, 2))
        source.delete("t", 1)
        reader = open_reader()
        pieces = reader.plan_changes(start, reader.position())
        batches = [batch for piece in pieces for batch in reader.read_changes(piece)]
        assert {key_of(batch.rows.schema) for batch in batches} == {table_of(reader, namespace).key}
        assert {batch.mode for batch in batches} == {Mode.SYNC}

    def test_a_new_column(self, source: ChangingSource, open_reader: Callable[[], Reader]) -> None:
        namespace = source.create("t")
        source.insert("t", some_rows(1, 2))
        start = self.install(open_reader)
        source.update("t", 1, name="before")
        source.add_column("t", "note")
        assert "note" in table_of(open_reader(), namespace).schema.names
        self.install(open_reader)
        source.update("t", 2, note="seen")
        read = self.changes(open_reader, start, open_reader().position())
        assert next(m.data["name"] for m in read if m.data) == "before"
        last = read[-1].data
        assert last is not None
        assert (last["id"], last["note"]) == (2, "seen")

    def test_copy_then_changes_converge_while_others_write(
        self, source: ChangingSource, open_reader: Callable[[], Reader]
    ) -> None:
        """Position first, then the copy, then the changes: whoever replays them has the table."""
        namespace = source.create("t")
        source.insert("t", some_rows(0, 300))
        position = self.install(open_reader)
        state: dict[int, Row] = {}
        with written_meanwhile(source, "t", seed=7, writes=400) as still_writing:
            for piece in open_reader().plan_copy(table_of(open_reader(), namespace)):
                replay(state, self.copy(open_reader, namespace, [piece]))
            while still_writing():
                position = self.follow(open_reader, state, position)
        self.follow(open_reader, state, position)
        assert state == {row["id"]: row for row in source.rows("t")}

    def follow(self, open_reader: Callable[[], Reader], state: dict[int, Row], position: Position) -> Position:
        with closing(open_reader()) as reader:
            end: Position = plain(reader.position())
            replay(state, self.changes(open_reader, position, end))
            reader.forget(end)
        return end


def replay(state: dict[int, Row], changes: Iterable[Message]) -> dict[int, Row]:
    """Apply messages to rows by `id`."""
    for message in changes:
        if message.before is not None:
            state.pop(message.before["id"], None)
        assert message.data is not None
        if message.op is Op.DELETE:
            state.pop(message.data["id"], None)
        else:
            state[message.data["id"]] = {name: message.data[name] for name in ("id", "name", "amount")}
    return state


@contextmanager
def written_meanwhile(source: ChangingSource, table: str, seed: int, writes: int) -> Iterator[Callable[[], bool]]:
    """Another process writes at random while the body runs."""
    process = FORKED.Process(target=write_at_random, args=(source, table, seed, writes))
    process.start()
    try:
        yield process.is_alive
        process.join(timeout=120)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()


def write_at_random(source: ChangingSource, table: str, seed: int, writes: int) -> None:
    """Inserts, updates, deletes and moves."""
    chance = random.Random(seed)
    present = {row["id"] for row in source.rows(table)}
    for number in range(writes):
        if not present or chance.random() < 0.3:
            new = chance.randrange(10_000)
            if new not in present:
                source.insert(table, [{"id": new, "name": f"new {number}", "amount": chance.random()}])
                present.add(new)
            continue
        chosen = chance.choice(sorted(present))
        what = chance.random()
        if what < 0.3:
            source.delete(table, chosen)
            present.discard(chosen)
        elif what < 0.5 and (other := chance.randrange(10_000)) not in present:
            source.update(table, chosen, id=other)
            present.symmetric_difference_update({chosen, other})
        else:
            source.update(table, chosen, name=f"changed {number}")


class Destination(ABC):
    """An outside system that is written, in the hands of its users."""

    @abstractmethod
    def options(self) -> WriterOptions:
        """Options with which it is written."""

    @abstractmethod
    def rows(self, namespace: str) -> list[Row]:
        """What anybody sees of a namespace now, with the names of its columns; nothing when it is not there."""


def fields(*pairs: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, type_) for name, type_ in pairs])


KEY = ("id",)
FIELDS = fields(("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64()))


def write_of(
    changes: Changes,
    *,
    first: int = 0,
    namespace: str = "main.t",
    schema: pa.Schema = FIELDS,
    key: tuple[str, ...] = KEY,
) -> Messages:
    """Messages from offset `first` on: op, data and, for rows that move, what they were."""
    struct = pa.struct(list(schema))
    count = len(changes)
    columns: dict[str, pa.Array[Any]] = {
        "offset": pa.array(range(first, first + count), pa.int64()),
        "op": pa.array([int(change[0]) for change in changes], pa.int8()),
        "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        "lsn": pa.array(range(count), pa.int64()),
        "data": pa.array([change[1] for change in changes], struct),
    }
    befores: list[Any] = [change[2] if len(change) > 2 else None for change in changes]
    if any(before is not None for before in befores):
        columns["before"] = pa.array(befores, struct)
    return Messages(namespace, pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), key)


def row(id_: int, name: str | None = "n", amount: float | None = 1.5) -> Row:
    return {"id": id_, "name": name, "amount": amount}


SAMPLES: dict[str, pa.Array[Any]] = {
    "bool": pa.array([True]),
    "int8": pa.array([-8], pa.int8()),
    "int64": pa.array([-(2**63)], pa.int64()),
    "uint32": pa.array([2**32 - 1], pa.uint32()),
    "float32": pa.array([0.5], pa.float32()),
    "float64": pa.array([1e300]),
    "infinite": pa.array([float("-inf")]),
    "text": pa.array(["grüße \0 日本 'quoted'"]),
    "empty": pa.array([""]),
    "large_text": pa.array(["large"], pa.large_string()),
    "binary": pa.array([b"\x00\xff"]),
    "fixed": pa.array([b"abc"], pa.binary(3)),
    "decimal": pa.array([Decimal("12345678901234567890.10")], pa.decimal128(30, 2)),
    "moment": pa.array([datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin")),
    "local": pa.array([datetime(2024, 2, 29, 12, 30)], pa.timestamp("ms")),
    "date": pa.array([date(1969, 12, 31)]),
    "time": pa.array([time_of_day(23, 59, 59, 1)], pa.time64("us")),
    "duration": pa.array([1_500_000], pa.duration("us")),
    "list": pa.array([[1, None, 3]]),
    "struct": pa.array([{"a": 1, "b": "x"}]),
    "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array(["red"]).dictionary_encode(),
    "null": pa.nulls(1),
}
"""One value of every Arrow type that messages have."""
REFUSED = object()
"""For a value that a destination cannot hold, and says so."""


class WriterContract(ABC):
    """What every writer promises."""

    stored: ClassVar[Mapping[str, Any]]
    """For every name in SAMPLES, what `Destination.rows` gives of it, or REFUSED."""

    @pytest.fixture
    @abstractmethod
    def destination(self) -> Any:
        """A `Destination` with nothing in it."""

    @pytest.fixture
    def open_writer(self, destination: Destination) -> Iterator[Callable[[], Writer]]:
        opened: list[Any] = []

        def open_one() -> Writer:
            opened.append(destination.options().open())
            return opened[-1]  # type: ignore[no-any-return]

        yield open_one
        for writer in opened:
            writer.close()

    def deliver(self, open_writer: Callable[[], Writer], *batches: Messages) -> None:
        """What a task does."""
        writer = open_writer()
        last = 0
        for batch in batches:
            writer.prepare(Target(batch.namespace, pa.schema(list(batch.data.type)), batch.key))
            writer.write(batch)
            last = batch.offsets()[-1].as_py() or 0
        writer.commit(Offset(last))
        writer.close()

    def state(self, destination: Destination, namespace: str = "main.t") -> list[Row]:
        return sorted(destination.rows(namespace), key=lambda found: (found["id"] is None, found["id"]))

    def test_it_says_how_it_spreads(self, open_writer: Callable[[], Writer]) -> None:
        assert open_writer().spread in Spread

    def test_rows_are_there_after_commit(self, destination: Destination, open_writer: Callable[[], Writer]) -> None:
        self.deliver(open_writer, write_of([(Op.INSERT, row(1)), (Op.INSERT, row(2, None, None))]))
        assert self.state(destination) == [row(1), row(2, None, None)]

    def test_close_without_commit_leaves_nothing(
        self, destination: Destination, open_writer: Callable[[], Writer]
    ) -> None:
        self.deliver(open_writer, write_of([(Op.INSERT, row(1))]))
        writer = open_writer()
        writer.prepare(Target("main.t", FIELDS, KEY))
        writer.write(write_of([(Op.INSERT, row(2))], first=1))
        writer.close()
        assert self.state(destination) == [row(1)]
        assert open_writer().applied("main.t") in (None, 0)

    def test_applied_is_what_was_committed(self, open_writer: Callable[[], Writer]) -> None:
        assert open_writer().applied("main.t") is None
        self.deliver(open_writer, write_of([(Op.INSERT, row(1)), (Op.INSERT, row(2))], first=40))
        assert open_writer().applied("main.t") in (None, 41)
        assert open_writer().applied("main.other") is None

    def test_no_messages_at_all(self, destination: Destination, open_writer: Callable[[], Writer]) -> None:
        writer = open_writer()
        writer.commit(Offset(5))
        writer.close()
        assert destination.rows("main.t") == []

    def test_several_namespaces_in_one_commit(
        self, destination: Destination, open_writer: Callable[[], Writer]
    ) -> None:
        a = write_of([(Op.INSERT, row(1))], namespace="main.a")
        b = write_of([(Op.INSERT, row(2))], namespace="main.b", first=1)
        self.deliver(open_writer, a, b)
        assert self.state(destination, "main.a") == [row(1)]
        assert self.state(destination, "main.b") == [row(2)]

    def test_a_new_field(self, destination: Destination, open_writer: Callable[[], Writer]) -> None:
        self.deliver(open_writer, write_of([(Op.INSERT, row(1))]))
        wider = FIELDS.append(pa.field("note", pa.string()))
        self.deliver(open_writer, write_of([(Op.INSERT, {**row(2), "note": "new"})], first=1, schema=wider))
        found = self.state(destination)
        assert [entry.get("note") for entry in found] == [None, "new"]
        assert [entry["name"] for entry in found] == ["n", "n"]

    def test_a_field_that_no_longer_comes_stays(
        self, destination: Destination, open_writer: Callable[[], Writer]
    ) -> None:
        self.deliver(open_writer, write_of([(Op.INSERT, row(1, "kept"))]))
        narrow = fields(("id", pa.int64()), ("amount", pa.float64()))
        self.deliver(open_writer, write_of([(Op.INSERT, {"id": 2, "amount": 2.0})], first=1, schema=narrow))
        assert [entry.get("name") for entry in self.state(destination)] == ["kept", None]

    @pytest.mark.parametrize("name", SAMPLES)
    def test_every_type(self, destination: Destination, open_writer: Callable[[], Writer], name: str) -> None:
        column = SAMPLES[name]
        data = pa.StructArray.from_arrays([pa.array([1], pa.int64()), column], names=["id", "value"])
        message = write_of([(Op.INSERT, row(1))]).with_column("data", data)
        if self.stored[name] is REFUSED:
            with pytest.raises(TailraceError, match="value"):
                self.deliver(open_writer, message)
            return
        self.deliver(open_writer, message)
        assert [entry["value"] for entry in destination.rows("main.t")] == [self.stored[name]]

    @pytest.mark.parametrize("name", HOSTILE_NAMES)
    def test_hostile_names(self, destination: Destination, open_writer: Callable[[], Writer], name: str) -> None:
        schema = fields(("id", pa.int64()), (name, pa.string()))
        self.deliver(open_writer, write_of([(Op.INSERT, row(1))], namespace="main.canary"))
        batch = write_of([(Op.INSERT, {"id": 1, name: name})], first=1, namespace=f"main.{name}", schema=schema)
        self.deliver(open_writer, batch)
        assert [entry[name] for entry in destination.rows(f"main.{name}")] == [name]
        assert self.state(destination, "main.canary") == [row(1)]


class KeyedWriterContract(WriterContract):
    """What writers promise that hold the current state by key."""

    story = (
        (Op.INSERT, row(1, "one")),
        (Op.INSERT, row(2, "two")),
        (Op.UPDATE, row(1, "one changed"), row(1, "one")),
        (Op.DELETE, row(2, "two")),
        (Op.INSERT, row(2, "two again")),
        (Op.INSERT, row(3, "three")),
        (Op.UPDATE, row(30, "moved"), row(3, "three")),
        (Op.INSERT, row(3, "three again")),
        (Op.UPDATE, row(31, "moved on"), row(30, "moved")),
        (Op.INSERT, row(4, "four")),
        (Op.DELETE, row(4, "four")),
    )
    outcome = (row(1, "one changed"), row(2, "two again"), row(3, "three again"), row(31, "moved on"))

    def test_the_last_change_of_a_key_stays(self, destination: Destination, open_writer: Callable[[], Writer]) -> None:
        self.deliver(open_writer, write_of(self.story))
        assert self.state(destination) == list(self.outcome)

    def test_one_at_a_time_is_the_same(self, destination: Destination, open_writer: Callable[[], Writer]) -> None:
        everything = write_of(self.story)
        writer = open_writer()
        writer.prepare(Target("main.t", FIELDS, KEY))
        for at in range(len(everything)):
            writer.write(everything.slice(at, 1))
            writer.commit(Offset(at))
        writer.close()
        assert self.state(destination) == list(self.outcome)

    @pytest.mark.parametrize("border", range(1, 11))
    def test_other_borders_are_the_same(
        self, destination: Destination, open_writer: Callable[[], Writer], border: int
    ) -> None:
        everything = write_of(self.story)
        self.deliver(open_writer, everything.slice(0, border))
        self.deliver(open_writer, everything.slice(border, len(everything)))
        assert self.state(destination) == list(self.outcome)

    def test_the_same_messages_twice(self, destination: Destination, open_writer: Callable[[], Writer]) -> None:
        for _ in range(2):
            self.deliver(open_writer, write_of(self.story))
            assert self.state(destination) == list(self.outcome)

    def test_an_update_without_all_fields_keeps_the_others(
        self, destination: Destination, open_writer: Callable[[], Writer]
    ) -> None:
        self.deliver(open_writer, write_of([(Op.INSERT, row(1, "kept", 1.0))]))
        part = fields(("id", pa.int64()), ("amount", pa.float64()))
        self.deliver(open_writer, write_of([(Op.UPDATE, {"id": 1, "amount": 2.0})], first=1, schema=part))
        assert self.state(destination) == [row(1, "kept", 2.0)]

    def test_deleting_what_is_not_there(self, destination: Destination, open_writer: Callable[[], Writer]) -> None:
        self.deliver(open_writer, write_of([(Op.INSERT, row(1)), (Op.DELETE, row(7))]))
        assert self.state(destination) == [row(1)]

    def test_keys_of_several_columns(self, destination: Destination, open_writer: Callable[[], Writer]) -> None:
        changes = [
            (Op.INSERT, row(1, "a", 1.0)),
            (Op.INSERT, row(1, "b", 2.0)),
            (Op.UPDATE, row(1, "a", 3.0)),
            (Op.DELETE, row(1, "b")),
            (Op.INSERT, row(2, "a", 4.0)),
        ]
        self.deliver(open_writer, write_of(changes, key=("id", "name")))
        assert self.state(destination) == [row(1, "a", 3.0), row(2, "a", 4.0)]

    def test_without_a_key_a_delete_is_refused(self, open_writer: Callable[[], Writer]) -> None:
        with pytest.raises(TailraceError) as caught:
            self.deliver(open_writer, write_of([(Op.INSERT, row(1)), (Op.DELETE, row(1))], first=70, key=()))
        assert caught.value.code == "destination.refused"
        assert "main.t" in caught.value.what
        assert "71" in caught.value.what


class FrameDestination(Destination):
    """A destination whose writer gets DataFrames."""

    def state(self, namespace: str, key: tuple[str, ...]) -> list[Row]:
        """What is there now, one row per key; of a history what its users would make of it."""
        return self.rows(namespace)

    @abstractmethod
    def trace(self, namespace: str) -> object:
        """Something that changes with everything that is written, be it what was there before."""


class Frames:
    """Delivers to a destination as a pipeline does: each batch by a writer made anew, which was told of all fields."""

    def __init__(self, destination: FrameDestination, spark: SparkSession) -> None:
        self._destination = destination
        self._spark = spark
        self._known: dict[str, pa.Schema] = {}

    def deliver(
        self,
        messages: Messages,
        *,
        upto: int | None = None,
        copy: int | None = None,
        rewound: int = PASSED,
        change: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    ) -> None:
        """Messages that are all of their namespace up to `upto`, or up to the last of them."""
        offsets: list[Any] = messages.offsets().to_pylist() or [upto]
        typed = TypedFrame(messages.namespace, messages.key, change(self.frame(messages)), keeps_keys=True)
        evolution = Evolution(SchemaPolicy.EVOLVE, dict(self._known))
        writing = FrameWriting(self._destination.options(), evolution, Passing(rewound=rewound))
        end = offsets[-1] if upto is None else upto
        try:
            writing.write(typed, None if copy is None else Offset(copy), Offset(offsets[0]), Offset(end))
        finally:
            writing.close()
        self._known = evolution.known

    def applied(self, namespace: str = "main.t") -> Offset | None:
        """What a writer made anew says."""
        opened: Any = self._destination.options().open()
        writer: FrameWriter = opened
        try:
            return writer.applied(namespace)
        finally:
            writer.close()

    def frame(self, messages: Messages) -> DataFrame:
        """Messages as functions get them, in several partitions and in no order."""
        before = messages.before
        was = pa.struct([pa.field("_", pa.string())]) if before is None else spark_type(before.type)
        schema = frame_schema(spark_type(messages.data.type), was)
        rows = pa.Table.from_batches([conform(messages, schema)])
        backwards = rows.take(pa.array(range(len(messages) - 1, -1, -1), pa.int64()))
        return self._spark.createDataFrame(backwards, spark_schema(schema)).repartition(2)


class FrameWriterContract(ABC):
    """What every writer of DataFrames promises, be it of a state or of a history."""

    stored: ClassVar[Mapping[str, Any]]
    """For every name in SAMPLES, what `FrameDestination.state` gives of it."""
    story: ClassVar = KeyedWriterContract.story
    outcome: ClassVar = KeyedWriterContract.outcome

    @pytest.fixture
    @abstractmethod
    def destination(self) -> Any:
        """A `FrameDestination` with nothing in it."""

    @pytest.fixture
    def frames(self, destination: FrameDestination, spark: SparkSession) -> Frames:
        return Frames(destination, spark)

    def state(self, destination: FrameDestination, namespace: str = "main.t", key: tuple[str, ...] = KEY) -> list[Row]:
        return sorted(destination.state(namespace, key), key=str)

    def test_the_last_change_of_a_key_stays(self, destination: FrameDestination, frames: Frames) -> None:
        """Whatever the order of the rows, once and again: when the offset was lost, and when an operator rewinds."""
        assert frames.applied() is None
        frames.deliver(write_of(self.story, first=40))
        assert self.state(destination) == list(self.outcome)
        assert frames.applied() == 50
        assert frames.applied("main.other") is None
        trace = destination.trace("main.t")
        frames.deliver(write_of(self.story, first=40))
        assert destination.trace("main.t") == trace, "what the destination had was written again"
        frames.deliver(write_of(self.story, first=40), rewound=50)
        assert self.state(destination) == list(self.outcome)
        assert destination.trace("main.t") != trace

    def test_no_messages_make_the_table(self, destination: FrameDestination, frames: Frames) -> None:
        frames.deliver(write_of([(Op.INSERT, row(1))]).slice(0, 0), upto=7)
        assert frames.applied() == 7
        assert destination.rows("main.t") == []

    def test_a_restart_in_the_middle_is_the_same(self, destination: FrameDestination, frames: Frames) -> None:
        """The offset was lost after the first batch, and the second one has other borders."""
        everything = write_of(self.story)
        frames.deliver(everything.slice(0, 5))
        frames.deliver(everything.slice(0, 8))
        frames.deliver(everything.slice(8, 3))
        assert self.state(destination) == list(self.outcome)
        assert frames.applied() == 10

    def test_a_batch_that_fails_leaves_nothing(self, destination: FrameDestination, frames: Frames) -> None:
        """One of its tasks has written its rows when another one fails."""
        frames.deliver(write_of([(Op.INSERT, row(1, "one")), (Op.INSERT, row(2, "two"))]))
        changes = write_of([(Op.UPDATE, row(1, "changed")), (Op.DELETE, row(2)), (Op.INSERT, row(3))], first=2)
        with pytest.raises(TailraceError) as caught:
            frames.deliver(changes, change=lambda frame: failing(frame, at=4))
        assert caught.value.code == "destination.refused"
        assert self.state(destination) == [row(1, "one"), row(2, "two")]
        assert frames.applied() == 1
        frames.deliver(changes)
        assert self.state(destination) == [row(1, "changed"), row(3)]

    def test_a_copy_then_changes_then_a_copy(self, destination: FrameDestination, frames: Frames) -> None:
        """A copy comes in several batches and may be told to be one; a second one replaces the rows of the first."""
        frames.deliver(write_of([(Op.INSERT, row(1)), (Op.INSERT, row(2))], first=1), copy=0)
        frames.deliver(write_of([(Op.INSERT, row(3)), (Op.INSERT, row(4))], first=3), copy=0)
        frames.deliver(write_of([(Op.UPDATE, row(1, "new")), (Op.DELETE, row(2))], first=5))
        assert self.state(destination) == [row(1, "new"), row(3), row(4)]
        frames.deliver(write_of([(Op.INSERT, row(3, "again")), (Op.INSERT, row(5))], first=9), copy=8)
        assert self.state(destination) == [row(1, "new"), row(3, "again"), row(4), row(5)]

    def test_fields_come_widen_and_go(self, destination: FrameDestination, frames: Frames) -> None:
        """No value is lost or changed on the way, and all rows have like columns."""
        id_, whole, large = ("id", pa.int64()), ("v", pa.int64()), 2**53 + 1
        narrow = fields(id_, whole, ("large", pa.int64()), ("deep", pa.struct([whole])))
        one, two = plain([{"id": number, "v": number, "large": large, "deep": {"v": number}} for number in (1, 2)])
        frames.deliver(write_of([(Op.INSERT, one), (Op.INSERT, two)], schema=narrow))
        real = ("v", pa.float64())
        deep = ("deep", pa.struct([real, ("w", pa.string())]))
        wide = fields(id_, real, deep, ("note", pa.string()), ("local", pa.timestamp("us")))
        local = datetime(2024, 2, 29, 12, 30)
        three = {"id": 3, "v": 2.5, "large": None, "deep": {"v": 0.5, "w": "new"}, "note": "new", "local": local}
        frames.deliver(write_of([(Op.INSERT, three)], first=2, schema=wide))
        rest = {"note": None, "local": None}
        one, two = ({**old, "deep": {**old["deep"], "w": None}, **rest} for old in (one, two))
        assert self.state(destination) == [one, two, three]
        gone: Changes = [(Op.INSERT, {"id": 4, "v": 4}), (Op.DELETE, {"id": 1})]
        frames.deliver(write_of(gone, first=3, schema=fields(id_, whole)))
        found = [two, three, {"id": 4, "v": 4.0, "large": None, "deep": None, **rest}]
        assert self.state(destination) == found
        with pytest.raises(TailraceError) as caught:  # no double holds the number that is there
            frames.deliver(write_of([(Op.INSERT, three)], first=5, schema=fields(id_, ("large", pa.float64()))))
        assert caught.value.code == "schema.changed"
        assert "field large" in caught.value.what
        text = fields(id_, ("v", pa.string()))
        frames.deliver(write_of([(Op.INSERT, {"id": 5, "v": "five"})], first=5, schema=text))
        texts = self.state(destination)
        assert texts.pop() == {"id": 5, "v": "five", "large": None, "deep": None, **rest}
        assert [{**entry, "v": float(entry["v"])} for entry in texts] == found

    def test_every_type(self, destination: FrameDestination, frames: Frames) -> None:
        """When the table is made, and when it is there."""
        columns = [pa.array([1], pa.int64()), *SAMPLES.values()]
        data = pa.StructArray.from_arrays(columns, names=["id", *SAMPLES])
        for first in (0, 1):
            frames.deliver(write_of([(Op.INSERT, row(1))], first=first).with_column("data", data))
            (found,) = self.state(destination)
            assert {name: found.get(name) for name in SAMPLES} == dict(self.stored)

    def test_hostile_names(self, destination: FrameDestination, frames: Frames) -> None:
        """As tables, columns and keys; some are those of columns that messages have."""
        names = (*HOSTILE_NAMES, "offset", "op", "data", "before")
        key = ("x.y", "back`tick", 'quo"te', "offset", "op", "data")
        schema = fields(*[(name, pa.string()) for name in names], ("value", pa.int64()))
        namespace = "main." + " ".join(HOSTILE_NAMES)
        frames.deliver(write_of([(Op.INSERT, row(1))], namespace="main.canary"))
        rows = [{**dict.fromkeys(names, at), "value": 1} for at in ("a", "b", "c")]
        frames.deliver(write_of([(Op.INSERT, each) for each in rows], namespace=namespace, schema=schema, key=key))
        assert self.state(destination, namespace, key) == rows
        changes: Changes = [
            (Op.UPDATE, {**rows[0], "value": 2}, rows[0]),
            (Op.DELETE, rows[1]),
            (Op.UPDATE, rows[1], rows[2]),
        ]
        frames.deliver(write_of(changes, first=3, namespace=namespace, schema=schema, key=key))
        assert self.state(destination, namespace, key) == [{**rows[0], "value": 2}, rows[1]]
        assert self.state(destination, "main.canary") == [row(1)]

    def test_names_never_become_paths(self, destination: FrameDestination, frames: Frames, tmp_path: Path) -> None:
        """A namespace that looks like a path is refused; one that readers of directories would pass over is not, nor
        one that is long."""
        for namespace in ("../beside", "..", "main/t", f"{tmp_path}/beside", "main\\t"):
            with pytest.raises(TailraceError) as caught:
                frames.deliver(write_of([(Op.INSERT, row(1))], namespace=namespace))
            assert caught.value.code == "name.invalid"
        for namespace in ("_hidden", "日本" * 40):
            frames.deliver(write_of([(Op.INSERT, row(1))], namespace=namespace))
            assert self.state(destination, namespace) == [row(1)]
        assert len(list(tmp_path.iterdir())) == 1, "something was written beside the destination"


class KeyedFrameWriterContract(FrameWriterContract):
    """What writers of DataFrames promise that hold the current state by key."""

    def test_an_update_without_all_fields_keeps_the_others(self, destination: FrameDestination, frames: Frames) -> None:
        frames.deliver(write_of([(Op.INSERT, row(1, "kept", 1.0)), (Op.INSERT, row(2, "gone", 1.0))]))
        part = fields(("id", pa.int64()), ("amount", pa.float64()))
        again = {"id": 2, "amount": 3.0}
        changes: Changes = [(Op.UPDATE, {"id": 1, "amount": 2.0}), (Op.DELETE, {"id": 2}), (Op.INSERT, again)]
        frames.deliver(write_of(changes, first=2, schema=part))
        assert self.state(destination) == [row(1, "kept", 2.0), row(2, None, 3.0)]

    def test_deleting_what_is_not_there(self, destination: FrameDestination, frames: Frames) -> None:
        frames.deliver(write_of([(Op.DELETE, row(1))]))
        assert self.state(destination) == []
        frames.deliver(write_of([(Op.INSERT, row(1)), (Op.DELETE, row(2))], first=1))
        assert self.state(destination) == [row(1)]

    def test_a_table_that_is_emptied(self, destination: FrameDestination, frames: Frames) -> None:
        opened: Any = destination.options().open()
        writer: FrameWriter = opened
        if not isinstance(opened, ClearingFrames):
            return
        opened.clear("main.t", Offset(0))
        assert frames.applied() is None, "there was nothing to empty"
        frames.deliver(write_of([(Op.INSERT, row(1)), (Op.INSERT, row(2))], first=1))
        opened.clear("main.t", Offset(5))
        writer.close()
        assert destination.rows("main.t") == []
        assert frames.applied() == 5

    def test_a_key_with_null_names_no_row(self, destination: FrameDestination, frames: Frames) -> None:
        """Neither in a change nor in a copy. A row that had such a key before was never written."""
        key = ("id", "name")
        for copy in (None, 0):
            with pytest.raises(TailraceError) as caught:
                frames.deliver(write_of([(Op.INSERT, row(1)), (Op.INSERT, row(2, None))], first=1, key=key), copy=copy)
            assert caught.value.code == "destination.refused"
            assert "NULL in its key column name" in caught.value.what
        frames.deliver(write_of([(Op.INSERT, row(1)), (Op.UPDATE, row(2), row(2, None))], first=1, key=key))
        assert self.state(destination, key=key) == [row(1), row(2)]

    def test_without_a_key_only_inserts(self, destination: FrameDestination, frames: Frames) -> None:
        frames.deliver(write_of([(Op.INSERT, row(1)), (Op.INSERT, row(1))], key=()))
        frames.deliver(write_of([(Op.INSERT, row(1))], first=2, key=()))
        assert self.state(destination, key=()) == [row(1), row(1), row(1)]
        with pytest.raises(TailraceError) as caught:
            frames.deliver(write_of([(Op.INSERT, row(1)), (Op.DELETE, row(1)), (Op.DELETE, row(1))], first=70, key=()))
        assert caught.value.code == "destination.refused"
        assert "main.t" in caught.value.what
        assert "71" in caught.value.what


def failing(frame: DataFrame, at: int) -> DataFrame:
    """The same rows, but the task that comes to one of them fails."""
    from pyspark.sql import functions as sql

    is_bad = frame["offset"] == at
    return frame.withColumn("op", sql.when(is_bad, sql.raise_error(sql.lit("broken"))).otherwise(frame["op"]))
