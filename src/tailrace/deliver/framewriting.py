"""Writing a DataFrame of messages: by the destination itself, or in one task where it takes columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.deliver.contract import FrameWriter, LoadingFrames, Target
from tailrace.deliver.evolution import Evolution
from tailrace.deliver.frames import RowRanges, TypedFrame, messages_from
from tailrace.deliver.gathering import gathered
from tailrace.deliver.originals import Marks, marks_of
from tailrace.deliver.passing import Passing
from tailrace.deliver.task import open_writer, write
from tailrace.errors import TailraceError
from tailrace.log.documents import is_json, json_field
from tailrace.message import Offset
from tailrace.spark.process import not_at_work
from tailrace.spark.session import fold
from tailrace.spark.tasks import Receipt, run_over, task_error
from tailrace.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.adaptor.options import WriterOptions


class FrameWriting:
    """The frames of one stretch to one destination."""

    def __init__(
        self, options: WriterOptions, evolution: Evolution, passing: Passing, done: dict[str, Offset] | None = None
    ) -> None:
        self.evolution = evolution
        self._options = options
        self._passing = passing
        self._done = {} if done is None else done
        """Up to where each namespace was written since the start: not every destination knows it, and when others of a
        stretch fail it comes again."""
        self._writer: FrameWriter | None = None

    def write(self, typed: TypedFrame, copy: Offset | None, start: Offset, upto: Offset) -> int | None:
        """Write one namespace; returns how many messages, when that is known."""
        marks = marks_of(typed.frame.schema)
        incoming = pa.schema(_fields(arrow_schema(typed.frame.schema), marks))
        kept = self.evolution.admit_fields(typed.namespace, incoming, start)
        known = self.evolution.known[typed.namespace]
        target = Target(typed.namespace, known, typed.key, copy if typed.keeps_keys else None)
        with telling_refusal(f"{typed.namespace} up to offset {upto}"):
            is_as_it_is = kept.equals(incoming)
            frame = typed.frame if is_as_it_is else self._with_fields(typed, incoming, kept, upto)
            if self._options.on_driver:
                count = self._write_frame(target, frame, start, upto, typed.ranges if is_as_it_is else None)
            else:
                done = self._done.get(typed.namespace)
                wanted = {name: mark for name, mark in marks.get("data", {}).items() if is_json(kept.field(name))}
                count = _write_in_task(
                    self._options, target, frame, upto, self._passing, done, {**marks, "data": wanted}
                )
            self._done[typed.namespace] = max(upto, self._done.get(typed.namespace, upto))
            return count

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _with_fields(self, typed: TypedFrame, incoming: pa.Schema, kept: pa.Schema, upto: Offset) -> DataFrame:
        """The frame with only the fields that the writer may have. Values that do not fit are counted, which takes a
        job of its own."""
        from pyspark.sql import functions as sql

        frame = typed.frame
        types = {entry.name: entry.dataType for entry in spark_schema(kept).fields}
        given = {name: frame["data"].getField(name) for name in kept.names}
        changed = [name for name in kept.names if incoming.field(name).type != kept.field(name).type]
        fitted = {name: given[name].try_cast(types[name]) if name in changed else given[name] for name in kept.names}
        if changed:
            lost = [sql.count_if(given[name].isNotNull() & fitted[name].isNull()) for name in changed]
            (counts,) = frame.agg(sql.min("offset"), *lost).collect()
            for name, count in zip(changed, counts[1:], strict=True):
                self.evolution.tell_discarded(typed.namespace, name, count, counts[0], upto)
        data = sql.struct(*[fitted[name].alias(name) for name in kept.names])
        return frame.withColumn("data", sql.when(frame["data"].isNotNull(), data))

    def _write_frame(
        self, target: Target, frame: DataFrame, start: Offset, upto: Offset, ranges: RowRanges | None
    ) -> int | None:
        if self._writer is None:
            opened: Any = self._options.open()
            self._writer = opened
        writer: Any = self._writer
        done = _later(writer.applied(target.namespace), self._done.get(target.namespace))
        if done is not None and done >= upto and start > self._passing.rewound:
            return 0
        wanted = unwritten(frame, self._passing, done, start)
        is_whole_copy = target.copy is not None and wanted is frame
        can_load = is_whole_copy and isinstance(writer, LoadingFrames)
        if not (can_load and ranges is not None and writer.load(target, frame, ranges, upto)):
            writer.write_frame(target, wanted, upto)
        return None


@contextmanager
def telling_refusal(which: str) -> Iterator[None]:
    """Errors of Spark's in the body are told as what has become of some messages."""
    try:
        yield
    except TailraceError:
        raise
    except Exception as error:
        if (told := task_error(error) or not_at_work(error)) is not None:
            raise told from error
        what = f"{which} was not written: {fold(error)}"
        raise TailraceError("destination.refused", what, hint="look into spark.log") from error


def unwritten(frame: DataFrame, passing: Passing, done: Offset | None, start: Offset) -> DataFrame:
    """The messages from `start` on that the destination does not have yet, or that an operator wants sent again."""
    if done is None or done < start or done <= passing.rewound:
        return frame
    return frame.where((frame["offset"] > int(done)) | (frame["offset"] <= int(passing.rewound)))


def _fields(schema: pa.Schema, marks: Marks) -> list[pa.Field[Any]]:
    """The fields of `data`, with those that have originals as what they were."""
    names = marks.get("data", {})
    return [json_field(entry.name) if entry.name in names else entry for entry in schema.field("data").type]


def _later(one: Offset | None, other: Offset | None) -> Offset | None:
    return max((offset for offset in (one, other) if offset is not None), default=None)


def _write_in_task(
    options: WriterOptions,
    target: Target,
    frame: DataFrame,
    upto: Offset,
    passing: Passing,
    done: Offset | None,
    marks: Marks,
) -> int:
    """All messages in log order in one task, whose writer takes columns."""

    def work(batches: Iterator[pa.RecordBatch]) -> Receipt:
        written = 0
        writer = open_writer(options)
        try:
            writer.prepare(target)
            rows = (messages_from(target.namespace, target.key, batch, marks) for batch in batches)
            stream = (passing.unwritten(each, lambda name: _later(writer.applied(name), done)) for each in rows)
            for messages in gathered(stream):
                write(writer, target.schema, messages)
                written += len(messages)
            writer.commit(upto)
        finally:
            writer.close()
        return {"written": written}

    # a stretch's order is that of its offsets, whatever the functions did
    receipt = run_over(frame.repartition(1).sortWithinPartitions("offset"), work)
    return receipt["written"] if receipt else 0
