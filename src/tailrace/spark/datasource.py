"""The log as a Spark data source: `spark.read.format("tailrace")` and `spark.readStream.format("tailrace")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from tailrace.errors import TailraceError
from tailrace.log.reader import LogReader
from tailrace.message import Offset
from tailrace.spark.source_consumer import StreamConsumer
from tailrace.spark.source_filters import conditions_of
from tailrace.spark.source_options import OnNewField, ReadOptions, read_options
from tailrace.spark.source_plan import Part, divide, end_of_batch, range_of, start_after_loss, wanted_by
from tailrace.spark.source_rows import Rows
from tailrace.spark.source_schema import DOCUMENTS, check_schema, picked, schema_for
from tailrace.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME: Final = "tailrace"
_OFFSET: Final = "offset"


def register(session: SparkSession) -> None:
    """Let a session read logs."""
    session.dataSource.register(TailraceSource)


class TailraceSource(DataSource):
    """A log. Spark makes one for every `load`."""

    _range: tuple[Offset, Offset] | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """The columns. A batch read sees the log as it is now, however often its rows are asked for."""
        options = read_options(self.options)
        reader, wanted = LogReader(options.path), wanted_by(options)
        self._range = range_of(reader, options, wanted)
        return spark_schema(schema_for(reader, options, *self._range, wanted))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        if options.consumer is not None:
            what = "a batch read is no consumer: option consumer is for spark.readStream"
            raise TailraceError("input.invalid", what, hint="leave it out")
        kind = FilteringReader if options.filter_pushdown else BatchReader
        return kind(options, arrow_schema(schema), self._range)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = read_options(self.options)
        if options.end is not None:
            what = "a stream has no end: options endingOffset and endingTimestamp are for spark.read"
            raise TailraceError("input.invalid", what, hint="leave them out, or use spark.read")
        return StreamReader(options, arrow_schema(schema))


class _Tasks:
    """What both kinds of reader do in tasks."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        check_schema(schema, options)
        self._options = options
        self._schema = schema
        self._wanted = wanted_by(options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one part."""
        part: Part | None = partition.value
        if part is None:
            return
        ignores = self._options.on_new_field is OnNewField.IGNORE
        rows = Rows(self._schema, self._wanted, frozenset(DOCUMENTS) if ignores else picked(self._options))
        frames = LogReader(self._options.path).frames(part.start, part.end, self._wanted)
        yield from rows.batches(frames)

    def _parts(self, reader: LogReader, start: Offset, end: Offset) -> list[InputPartition]:
        return [InputPartition(part) for part in divide(reader.view, start, end, self._wanted)]


class BatchReader(_Tasks, DataSourceReader):
    """Reads a range of the log."""

    def __init__(self, options: ReadOptions, schema: pa.Schema, pinned: tuple[Offset, Offset] | None) -> None:
        super().__init__(options, schema)
        self._pinned = pinned

    def partitions(self) -> Sequence[InputPartition]:
        reader = LogReader(self._options.path)
        start, end = self._pinned or range_of(reader, self._options, self._wanted)
        start = start_after_loss(reader, start, self._wanted, fails=self._options.fail_on_data_loss)
        return self._parts(reader, start, end)


class FilteringReader(BatchReader):
    """Takes filters of Spark's, too. Only when asked to: Spark 4.3 keeps the filters of a DataFrame's last query, and
    gives the next query too few rows when that has other filters or none (docs/reference/spark.md)."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Take the filters that heads and columns of frames can tell; the others are Spark's."""
        conditions, left = conditions_of(filters)
        self._wanted = replace(self._wanted, conditions=(*self._wanted.conditions, *conditions))
        return left


class StreamReader(_Tasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log. Positions are offsets of the next message; micro-batches end where commit groups end."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._log = LogReader(options.path)
        self._initial: Offset | None = None
        self._target: Offset | None = None
        self._consumer = None if options.consumer is None else StreamConsumer(options.path, options.consumer)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        if self._initial is None:
            start = self._options.start.offset_in(self._log)
            if self._consumer is not None:
                start = self._consumer.begin(start)
            self._initial = self._survived(start)
        return {_OFFSET: self._initial}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        begin = self._survived(Offset(start[_OFFSET]))
        end = self._log.next_offset if self._target is None else max(begin, self._target)
        if isinstance(limit, ReadMaxBytes):
            end = end_of_batch(self._log.view, begin, end, self._wanted, limit.max_bytes)
        return {_OFFSET: end}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.trigger_bytes_max
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return {_OFFSET: self._log.next_offset}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._log.next_offset

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._parts(self._log, self._survived(Offset(start[_OFFSET])), Offset(end[_OFFSET]))

    def commit(self, end: dict[str, int]) -> None:
        """Spark says so when the next micro-batch begins."""
        if self._consumer is not None:
            self._consumer.passed(Offset(end[_OFFSET]))

    def _survived(self, start: Offset) -> Offset:
        return start_after_loss(self._log, start, self._wanted, fails=self._options.fail_on_data_loss)
