"""Writing a DataFrame of messages: by the destination itself, or in one task where it takes columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.deliver.contract import FrameWriter, Target
from tailrace.deliver.evolution import Evolution
from tailrace.deliver.frames import TypedFrame, messages_from
from tailrace.deliver.gathering import gathered
from tailrace.deliver.passing import Passing
from tailrace.deliver.task import open_writer, write
from tailrace.errors import TailraceError
from tailrace.message import Offset
from tailrace.spark.session import fold
from tailrace.spark.tasks import task_error, telling_driver
from tailrace.spark.types import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.adaptor.options import WriterOptions


class FrameWriting:
    """The frames of one stretch to one destination."""

    def __init__(self, options: WriterOptions, evolution: Evolution, passing: Passing) -> None:
        self.evolution = evolution
        self._options = options
        self._passing = passing
        self._writer: FrameWriter | None = None

    def write(self, typed: TypedFrame, copy: Offset | None, start: Offset, upto: Offset) -> int | None:
        """Write one namespace; returns how many messages, when that is known."""
        incoming = pa.schema(list(arrow_schema(typed.frame.schema).field("data").type))
        kept = self.evolution.admit_fields(typed.namespace, incoming, start)
        frame = _with_fields(typed.frame, incoming, kept)
        known = self.evolution.known[typed.namespace]
        target = Target(typed.namespace, known, typed.key, copy if typed.keeps_keys else None)
        try:
            if self._options.on_driver:
                self._write_frame(target, frame, start, upto)
                return None
            return _write_in_task(self._options, target, frame, upto, self._passing)
        except TailraceError:
            raise
        except Exception as error:
            what = f"{typed.namespace} up to offset {upto} was not written: {fold(error)}"
            raise task_error(error) or TailraceError("destination.refused", what, hint="look into spark.log") from error

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write_frame(self, target: Target, frame: DataFrame, start: Offset, upto: Offset) -> None:
        if self._writer is None:
            opened: Any = self._options.open()
            self._writer = opened
        writer: Any = self._writer
        done = writer.applied(target.namespace)
        if done is None or done < upto or start <= self._passing.rewound:
            writer.write_frame(target, _unwritten(frame, self._passing, done, start), upto)


def _unwritten(frame: DataFrame, passing: Passing, done: Offset | None, start: Offset) -> DataFrame:
    """The messages that the destination does not have yet, or that an operator wants sent again."""
    if done is None or done < start or done <= passing.rewound:
        return frame
    return frame.where((frame["offset"] > int(done)) | (frame["offset"] <= int(passing.rewound)))


def _with_fields(frame: DataFrame, incoming: pa.Schema, kept: pa.Schema) -> DataFrame:
    """The frame with only the fields that the writer may have."""
    if kept.equals(incoming):
        return frame
    from pyspark.sql import functions as sql

    from tailrace.spark.types import spark_schema

    types = {entry.name: entry.dataType for entry in spark_schema(kept).fields}
    data = [
        frame["data"].getField(name).try_cast(types[name]).alias(name)
        if incoming.field(name).type != kept.field(name).type
        else frame["data"].getField(name).alias(name)
        for name in kept.names
    ]
    return frame.withColumn("data", sql.when(frame["data"].isNotNull(), sql.struct(*data)))


def _write_in_task(options: WriterOptions, target: Target, frame: DataFrame, upto: Offset, passing: Passing) -> int:
    """All messages in log order in one task, whose writer takes columns."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = 0
        with telling_driver():
            writer = open_writer(options)
            try:
                rows = (messages_from(target.namespace, target.key, batch) for batch in batches)
                for messages in gathered(passing.unwritten(each, writer.applied) for each in rows):
                    write(writer, target.schema, messages)
                    written += len(messages)
                writer.commit(upto)
            finally:
                writer.close()
        yield pa.RecordBatch.from_pydict({"written": pa.array([written], pa.int64())})

    # a stretch's order is that of its offsets, whatever the functions did
    ordered = frame.repartition(1).sortWithinPartitions("offset")
    return sum(row["written"] for row in ordered.mapInArrow(run, "written long").collect())
