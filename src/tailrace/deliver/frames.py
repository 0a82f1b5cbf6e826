"""Delivery through DataFrames: for functions that need Spark's SQL engine, and destinations that Spark writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tailrace.deliver.conforming import conform, frame_schema, ops_of
from tailrace.deliver.gathering import gathered
from tailrace.deliver.messages import Messages
from tailrace.deliver.stretch import Share
from tailrace.deliver.task import DeliverItem, read_range
from tailrace.errors import TailraceError
from tailrace.log.batch import TIMESTAMP, key_of
from tailrace.spark.tasks import telling_driver
from tailrace.spark.types import arrow_schema, spark_schema, spark_type
from tailrace.transform.chain import Chain
from tailrace.transform.contract import FrameFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.transform.options import FunctionOptions

_NOTHING: Final = pa.struct([pa.field("_", pa.string())])
"""Spark wants at least one field in a struct."""


@dataclass(frozen=True, slots=True)
class Decode:
    """Ranges of the log as rows, after the functions that work on columns."""

    log: str
    chain: Chain
    items: tuple[DeliverItem, ...]
    schema: pa.Schema
    skipped: frozenset[int] = frozenset()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                with telling_driver():
                    yield from self._rows(self.items[number])

    def _rows(self, item: DeliverItem) -> Iterator[pa.RecordBatch]:
        stream = (self.chain.apply(messages) for messages in read_range(self.log, item, self.skipped))
        for messages in gathered(stream):
            yield conform(messages, self.schema)


@dataclass(frozen=True, slots=True)
class TypedFrame:
    """The messages of one namespace as a DataFrame."""

    namespace: str
    key: tuple[str, ...]
    frame: DataFrame
    keeps_keys: bool
    """Whether every row still has the key that it has in the source."""


def typed_frame(
    session: SparkSession,
    log: str,
    chain: Chain,
    namespace: str,
    share: Share,
    tasks: int,
    skipped: frozenset[int] = frozenset(),
) -> TypedFrame:
    """The share of one namespace, after functions that work on columns."""
    if share.schema is None:
        raise TailraceError("spark.failed", f"nobody knows the schema of {namespace}", hint="run again")
    empty = chain.apply(_empty(namespace, share.schema))
    data = spark_type(empty.data.type) if len(empty.data.type) else _NOTHING
    before = spark_type(empty.before.type) if empty.before is not None and len(empty.before.type) else _NOTHING
    schema = frame_schema(data, before)
    items = tuple(DeliverItem(first, end, (namespace,)) for first, end in _divide(share, tasks))
    ids = session.range(0, len(items), 1, len(items))
    decode = Decode(log, chain, items, schema, skipped)
    keeps_keys = all(function.keeps_keys for function in chain.functions)
    return TypedFrame(empty.namespace, empty.key, ids.mapInArrow(decode, spark_schema(schema)), keeps_keys)


def through(typed: TypedFrame, functions: Sequence[FunctionOptions]) -> TypedFrame:
    """The frame after further functions, of either kind."""
    for function in functions:
        if not function.applies_to(typed.namespace):
            continue
        if isinstance(function, FrameFunction):
            frame = function.apply_frame(typed.frame)
            fields = arrow_schema(frame.schema).field("data").type
            names = {entry.name for entry in fields}
            key = typed.key if set(typed.key) <= names else ()
            typed = TypedFrame(typed.namespace, key, frame, keeps_keys=False)
        else:
            typed = _lift(typed, Chain((function,)))
    return typed


def _lift(typed: TypedFrame, chain: Chain) -> TypedFrame:
    """A function on columns, applied to a frame."""
    given = arrow_schema(typed.frame.schema)
    empty = chain.apply(messages_from(typed.namespace, typed.key, pa.RecordBatch.from_pylist([], schema=given)))
    before = spark_type(empty.before.type) if empty.before is not None else _NOTHING
    schema = frame_schema(spark_type(empty.data.type), before)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling_driver():
            for batch in batches:
                yield conform(chain.apply(messages_from(typed.namespace, typed.key, batch)), schema)

    frame = typed.frame.mapInArrow(run, spark_schema(schema))
    keeps_keys = typed.keeps_keys and all(function.keeps_keys for function in chain.functions)
    return TypedFrame(empty.namespace, empty.key, frame, keeps_keys)


def messages_from(namespace: str, key: tuple[str, ...], batch: pa.RecordBatch) -> Messages:
    """Rows of a DataFrame as messages again."""
    columns = {
        "offset": batch.column("offset"),
        "op": ops_of(batch.column("op")),
        "timestamp": batch.column("timestamp").cast(TIMESTAMP),
        "lsn": batch.column("lsn"),
        "tx": batch.column("tx"),
        "data": batch.column("data"),
        "before": batch.column("before"),
    }
    return Messages(namespace, pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), key)


def _empty(namespace: str, schema: pa.Schema) -> Messages:
    rows = schema.empty_table().to_batches()
    batch = rows[0] if rows else pa.RecordBatch.from_pylist([], schema=schema)
    if "offset" not in schema.names:
        batch = batch.add_column(0, "offset", pa.array([], pa.int64()))
    return Messages(namespace, batch, key_of(schema))


def _divide(share: Share, tasks: int) -> Iterator[tuple[Any, Any]]:
    """The share's frames in up to `tasks` ranges of about the same size."""
    goal = max(1, share.bytes // max(1, tasks))
    first, size = share.frames[0][0], 0
    for at, (_, end, frame_bytes) in enumerate(share.frames):
        size += frame_bytes
        is_last = at == len(share.frames) - 1
        if size >= goal or is_last:
            yield first, end
            if not is_last:
                first, size = share.frames[at + 1][0], 0
