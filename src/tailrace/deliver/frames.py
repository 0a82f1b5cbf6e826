"""Delivery through DataFrames: for functions that need Spark's SQL engine, and destinations that Spark writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import ipc

from tailrace.deliver.conforming import conform, frame_schema, ops_of
from tailrace.deliver.gathering import gathered
from tailrace.deliver.messages import Messages, no_messages
from tailrace.deliver.originals import COLUMN, Marks, in_json, mark, marks_of, originals, originals_type, restored
from tailrace.deliver.passing import Passing
from tailrace.deliver.schemas import unified
from tailrace.deliver.spilling import ReadSpill, SpillRange
from tailrace.deliver.stretch import Share, divide
from tailrace.deliver.task import ApplyRange, DeliverItem
from tailrace.errors import TailraceError
from tailrace.log.batch import TIMESTAMP
from tailrace.log.documents import is_json
from tailrace.spark.tasklog import Besides
from tailrace.spark.tasks import run_tasks, telling_driver
from tailrace.spark.types import arrow_schema, spark_schema, spark_type
from tailrace.transform.chain import Chain
from tailrace.transform.contract import FrameFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tailrace.transform.options import FunctionOptions

_NOTHING: Final = pa.struct([pa.field("_", pa.string())])
"""Spark wants at least one field in a struct."""


@dataclass(frozen=True, slots=True)
class RowRanges:
    """Ranges of the log whose messages are the rows of a frame; a task can read each by itself. Travels to tasks."""

    read: Callable[[DeliverItem], Iterator[Messages]]
    items: tuple[DeliverItem, ...]
    schema: pa.Schema
    """The columns of the frame."""
    label: str
    """Whose work it is."""

    def rows(self, item: DeliverItem) -> Iterator[pa.RecordBatch]:
        """The rows of one range, in log order."""
        return (conform(messages, self.schema) for messages in gathered(self.read(item)))


@dataclass(frozen=True, slots=True)
class TypedFrame:
    """The messages of one namespace as a DataFrame."""

    namespace: str
    key: tuple[str, ...]
    frame: DataFrame
    keeps_keys: bool
    """Whether every row still has the key that it has in the source."""
    ranges: RowRanges | None = None
    """Where the rows come from, when nothing but functions on columns was done to them."""


@dataclass(frozen=True, slots=True)
class Decode:
    """Ranges of the log as rows of a common schema."""

    read: Callable[[DeliverItem], Iterator[Messages]]
    items: tuple[DeliverItem, ...]
    schema: pa.Schema
    originals: pa.StructType | None = None
    besides: Besides | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling_driver(self.besides):
            for batch in batches:
                numbers: list[Any] = batch.column(0).to_pylist()
                for number in numbers:
                    for messages in gathered(self.read(self.items[number])):
                        yield _rows(messages, self.schema, self.originals)


@dataclass(frozen=True, slots=True)
class FrameMaker:
    """Makes DataFrames of stretches of one log, for one writer."""

    session: SparkSession
    log: str
    label: str
    chain: Chain
    """Functions on columns, applied before there is a DataFrame."""
    spill: str
    """A directory for what must wait."""
    passing: Passing = field(default_factory=Passing)
    known: Mapping[str, pa.Schema] = field(default_factory=dict)
    """What the writer knows of the fields, if they reach it as they come out of here."""
    keeps_originals: bool = False
    """Whether values of fields that have several types are wanted beside their text."""
    besides: Besides | None = None
    """For what the functions log."""
    examine: Callable[[Messages], None] = lambda _: None
    """Refuses what the writer cannot have, if it gets it as it comes out of here; asked once, without any rows."""

    def frame(self, namespace: str, share: Share, tasks: int) -> TypedFrame | None:
        """The share of one namespace; None when the functions leave nothing of it."""
        items = divide(namespace, share, tasks)
        if self.chain.knows_columns:
            if share.schema is None:
                raise TailraceError("spark.failed", f"nobody knows the columns of {namespace}", hint="run again")
            empty = self.chain.apply(no_messages(namespace, share.schema))
            return self._frame(empty, ApplyRange(self.log, self.chain, self.passing), items)
        return self._spilled(items)

    def empty_frame(self, nothing: Messages) -> TypedFrame:
        """No messages, in the form in which they would come."""
        return self._frame(self.chain.apply(nothing), ApplyRange(self.log, self.chain, self.passing), ())

    def _spilled(self, items: tuple[DeliverItem, ...]) -> TypedFrame | None:
        work = SpillRange(self.spill, ApplyRange(self.log, self.chain, self.passing))
        receipts = run_tasks(self.session, self.label, work, items).all()
        schema: pa.Schema | None = None
        for text in (text for receipt in receipts for text in receipt["schemas"]):
            schema = unified(schema, ipc.read_schema(pa.py_buffer(bytes.fromhex(text))))
        if schema is None:
            return None
        namespace: str = next(receipt["namespace"] for receipt in receipts if receipt["schemas"])
        return self._frame(no_messages(namespace, schema), ReadSpill(self.spill), items)

    def _frame(
        self,
        empty: Messages,
        read: Callable[[DeliverItem], Iterator[Messages]],
        items: tuple[DeliverItem, ...],
    ) -> TypedFrame:
        self.examine(empty)
        known = self.known.get(empty.namespace, pa.schema([]))
        schema = frame_schema(_struct_type(empty.data, known), _struct_type(empty.before, known))
        kept = originals_type(empty) if self.keeps_originals else None
        ids = self.session.range(0, len(items), 1, max(1, len(items)))
        frame = ids.mapInArrow(Decode(read, items, schema, kept, self.besides), _in_spark(schema, kept))
        ranges = RowRanges(read, items, schema, self.label) if items and kept is None else None
        return TypedFrame(empty.namespace, empty.key, frame, self.chain.keeps_keys, ranges)


def together(frames: Sequence[TypedFrame]) -> TypedFrame:
    """Frames that have come to bear the same name, as one."""
    first = frames[0]
    if len(frames) == 1:
        return first
    key = first.key if all(each.key == first.key for each in frames) else ()
    frame = first.frame
    for each in frames[1:]:
        frame = frame.unionByName(each.frame, allowMissingColumns=True)
    return TypedFrame(first.namespace, key, frame, keeps_keys=False)


def through(typed: TypedFrame, functions: Sequence[FunctionOptions], besides: Besides | None = None) -> TypedFrame:
    """The frame after further functions, of either kind."""
    for function in functions:
        if not function.applies_to(typed.namespace):
            continue
        if isinstance(function, FrameFunction):
            frame = function.apply_frame(typed.frame, typed.namespace)
            fields = arrow_schema(frame.schema).field("data").type
            names = {entry.name for entry in fields}
            key = typed.key if set(typed.key) <= names else ()
            typed = TypedFrame(typed.namespace, key, frame, keeps_keys=False)
        else:
            typed = _lift(typed, Chain((function,)), besides)
    return typed


def _lift(typed: TypedFrame, chain: Chain, besides: Besides | None) -> TypedFrame:
    """A function on columns, applied to a frame."""
    given, marks = arrow_schema(typed.frame.schema), marks_of(typed.frame.schema)
    nothing = pa.RecordBatch.from_pylist([], schema=given)
    empty = chain.apply(messages_from(typed.namespace, typed.key, nothing, marks))
    schema = frame_schema(_struct_type(empty.data), _struct_type(empty.before))
    kept = originals_type(empty)

    namespace, key = typed.namespace, typed.key  # the frame itself cannot travel

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling_driver(besides):
            for batch in batches:
                yield _rows(chain.apply(messages_from(namespace, key, batch, marks)), schema, kept)

    frame = typed.frame.mapInArrow(run, _in_spark(schema, kept))
    return TypedFrame(empty.namespace, empty.key, frame, typed.keeps_keys and chain.keeps_keys)


def as_rows(messages: Messages) -> pa.RecordBatch:
    """Messages by themselves as rows of a DataFrame."""
    return conform(messages, frame_schema(_struct_type(messages.data), _struct_type(messages.before)))


def _rows(messages: Messages, schema: pa.Schema, kept: pa.StructType | None) -> pa.RecordBatch:
    if kept is None:
        return conform(messages, schema)
    messages = in_json(messages, kept)
    return conform(messages, schema).append_column(COLUMN, originals(messages, kept))


def _in_spark(schema: pa.Schema, kept: pa.StructType | None) -> StructType:
    """The schema of rows in Spark."""
    return spark_schema(schema) if kept is None else mark(spark_schema(schema.append(pa.field(COLUMN, kept))), kept)


def messages_from(
    namespace: str, key: tuple[str, ...], batch: pa.RecordBatch, marks: Marks = MappingProxyType({})
) -> Messages:
    """Rows of a DataFrame as messages again."""
    columns = {
        "offset": batch.column("offset"),
        "op": ops_of(batch.column("op")),
        "timestamp": batch.column("timestamp").cast(TIMESTAMP),
        "lsn": batch.column("lsn"),
        "tx": batch.column("tx"),
        "data": restored(batch, "data", marks),
        "before": restored(batch, "before", marks),
    }
    return Messages(namespace, pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), key)


def _struct_type(column: pa.StructArray | None, known: Iterable[pa.Field[Any]] = ()) -> pa.DataType:
    """The type of a column in Spark. Values of several types are blobs where the writer knows a field as such: as text
    they would be others."""
    if column is None or not len(column.type):
        return _NOTHING
    blobs = {entry.name: entry for entry in known if pa.types.is_binary(entry.type)}
    return spark_type(pa.struct([blobs.get(entry.name, entry) if is_json(entry) else entry for entry in column.type]))
