"""The two sides of a comparison, as Spark tasks read them: rows of the source after a writer's functions, and rows of
its destination, both in the form in which the destination stores them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.deliver.conforming import conform, frame_schema
from tailrace.deliver.frames import TypedFrame, through
from tailrace.deliver.messages import Messages
from tailrace.log.batch import Batch, batch_of, key_of
from tailrace.message import Micros, Mode
from tailrace.spark.tasks import telling_driver
from tailrace.spark.types import spark_schema, spark_type
from tailrace.verify.contract import Piece, ReadBack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.adaptor.options import ReaderOptions
    from tailrace.source.contract import Table
    from tailrace.transform.chain import Chain
    from tailrace.transform.options import FunctionOptions

Stream = Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]
"""From a batch that Spark hands to a task to the rows to be compared."""


@dataclass(frozen=True, slots=True)
class Side:
    """A DataFrame, and what its tasks make of it."""

    frame: DataFrame
    stream: Stream


@dataclass(frozen=True, slots=True)
class SourcePieces:
    """Reads pieces of a namespace of the source and applies functions on columns."""

    options: ReaderOptions
    namespace: str
    pieces: tuple[Piece, ...]
    chain: Chain

    def pairs(self, number: int) -> Iterator[tuple[Batch, Messages]]:
        """What was read, with what the functions have made of it; an offset is the row's place in its batch."""
        reader = self.options.open()
        try:
            for batch in reader.read_copy(self.namespace, self.pieces[number]):
                yield batch, self.chain.apply(numbered(batch))
        finally:
            reader.close()


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """Pieces of the source, by their numbers, as rows of the destination."""

    source: SourcePieces
    back: ReadBack

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batch):
            for _, messages in self.source.pairs(number):
                yield stored_rows(messages.data, self.back)


@dataclass(frozen=True, slots=True)
class ExpectedFrame:
    """Messages of a DataFrame as rows of the destination."""

    back: ReadBack

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield stored_rows(batch.column("data"), self.back)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Pieces of the destination, by their numbers."""

    back: ReadBack
    pieces: tuple[Piece, ...]
    fields: tuple[str, ...]

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batch):
            yield from self.back.read(self.pieces[number], self.fields)


def numbered(batch: Batch) -> Messages:
    """Rows of a source as messages for functions."""
    offsets: Any = np.arange(len(batch), dtype=np.int64)
    rows = batch.rows.add_column(0, "offset", pa.array(offsets, pa.int64()))
    return Messages(batch.namespace, rows, key_of(batch.rows.schema), batch.mode, batch.origin)


def without_rows(table: Table) -> Messages:
    """No message of a namespace, to learn what functions make of its columns."""
    empty = pa.RecordBatch.from_pylist([], schema=table.schema)
    return numbered(batch_of(table.namespace, empty, timestamp=Micros(0), mode=Mode.COPY, key=table.key))


def stored_rows(data: Any, back: ReadBack) -> pa.RecordBatch:
    """The fields of messages as columns, in the form in which the destination stores them."""
    columns = [back.as_stored(column, field) for column, field in zip(data.flatten(), data.type, strict=True)]
    if not columns:
        return pa.RecordBatch.from_struct_array(data)
    return pa.RecordBatch.from_arrays([column for column, _ in columns], schema=pa.schema([f for _, f in columns]))


def numbers_frame(session: SparkSession, count: int) -> DataFrame:
    """One number per piece, each in a task of its own."""
    return session.range(0, count, 1, max(1, count))


def frame_after(
    session: SparkSession, source: SourcePieces, empty: Messages, functions: tuple[FunctionOptions, ...]
) -> TypedFrame:
    """The source's rows after functions that need DataFrames; `empty` is what the functions before leave."""
    data = pa.struct([pa.field(entry.name, spark_type(entry.type)) for entry in empty.data.type])
    schema = frame_schema(data, pa.struct([pa.field("_", pa.string())]))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling_driver():
            for batch in batches:
                for number in _numbers(batch):
                    for _, messages in source.pairs(number):
                        yield conform(messages, schema)

    frame = numbers_frame(session, len(source.pieces)).mapInArrow(read, spark_schema(schema))
    return through(TypedFrame(empty.namespace, empty.key, frame, keeps_keys=False), functions)


def _numbers(batch: pa.RecordBatch) -> list[int]:
    numbers: list[Any] = batch.column(0).to_pylist()
    return numbers
