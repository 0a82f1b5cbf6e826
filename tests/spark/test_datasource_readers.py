"""Readers as Spark calls them, without Spark: positions, micro-batches, partitions."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.retention import retain
from tailrace.spark.datasource import BatchReader, FilteringReader, StreamReader, TailraceSource
from tests.log.material import fill

ALL = ReadAllAvailable()
OFFSETS = StructType().add("offset", "long")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path) as log:
        fill(log, "abab")
        yield log


def batch(directory: Path, **options: str) -> BatchReader:
    """A reader as it is after it travelled."""
    source = pickle.loads(pickle.dumps(TailraceSource({"path": str(directory), **options})))
    reader = source.reader(OFFSETS)
    assert isinstance(reader, BatchReader)
    return reader


def stream(directory: Path, **options: str) -> StreamReader:
    reader = TailraceSource({"path": str(directory), **options}).streamReader(OFFSETS)
    assert isinstance(reader, StreamReader)
    return reader


def read(reader: BatchReader | StreamReader, parts: list[InputPartition]) -> list[int]:
    travelled: tuple[BatchReader | StreamReader, list[InputPartition]] = pickle.loads(pickle.dumps((reader, parts)))
    rows = [row for part in travelled[1] for rows in travelled[0].read(part) for row in rows.to_pylist()]
    return [row["offset"] for row in rows]


def test_the_beginning_of_a_stream_stays_where_it_was(log: CommitLog, tmp_path: Path) -> None:
    reader = stream(tmp_path, startingOffset="latest")
    assert reader.initialOffset() == {"offset": 4}
    fill(log, "a")
    assert reader.initialOffset() == {"offset": 4}
    assert reader.reportLatestOffset() == {"offset": 5}


def test_a_stream_sees_what_is_new(log: CommitLog, tmp_path: Path) -> None:
    reader = stream(tmp_path, namespaces="a")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert read(reader, list(reader.partitions(start, end))) == [0, 2]
    assert reader.latestOffset(end, ALL) == end
    assert reader.partitions(end, end) == []
    fill(log, "bba")
    newer = reader.latestOffset(end, ALL)
    assert newer == {"offset": 7}
    assert read(reader, list(reader.partitions(end, newer))) == [6]


def test_limits(log: CommitLog, tmp_path: Path) -> None:
    assert stream(tmp_path).getDefaultReadLimit() == ALL
    reader = stream(tmp_path, maxBytesPerTrigger="1KiB")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(1024)
    assert reader.latestOffset({"offset": 0}, ReadMaxBytes(1)) == {"offset": 1}
    assert reader.latestOffset({"offset": 0}, ALL) == {"offset": 4}
    assert reader.latestOffset({"offset": 0}, ReadMaxRows(1)) == {"offset": 4}


def test_available_now_is_what_is_there_now(log: CommitLog, tmp_path: Path) -> None:
    reader = stream(tmp_path)
    reader.prepareForTriggerAvailableNow()
    fill(log, "aaa")
    assert reader.latestOffset({"offset": 0}, ALL) == {"offset": 4}
    assert reader.latestOffset({"offset": 4}, ALL) == {"offset": 4}
    assert reader.latestOffset({"offset": 3}, ReadMaxBytes(1 << 20)) == {"offset": 4}


def test_a_batch_that_is_repeated_after_a_loss(log: CommitLog, tmp_path: Path) -> None:
    log.roll()
    fill(log, "ab")
    Consumers(tmp_path).register("c", start=4)
    retain(tmp_path)
    with pytest.raises(TailraceError, match="were removed"):
        stream(tmp_path).partitions({"offset": 2}, {"offset": 5})
    easy = stream(tmp_path, failOnDataLoss="false")
    assert read(easy, list(easy.partitions({"offset": 2}, {"offset": 5}))) == [4]
    assert easy.partitions({"offset": 2}, {"offset": 3}) == []


def test_a_stream_has_no_end(tmp_path: Path) -> None:
    with pytest.raises(TailraceError, match="a stream has no end"):
        stream(tmp_path, endingOffset="3")


def test_a_range_is_that_of_the_load(log: CommitLog, tmp_path: Path) -> None:
    source = TailraceSource({"path": str(tmp_path)})
    source.schema()
    fill(log, "a")
    reader = source.reader(OFFSETS)
    assert isinstance(reader, BatchReader)
    assert read(reader, list(reader.partitions())) == [0, 1, 2, 3]
    without_schema = batch(tmp_path)
    assert read(without_schema, list(without_schema.partitions())) == [0, 1, 2, 3, 4]


def test_filters_are_taken_only_when_asked_to(log: CommitLog, tmp_path: Path) -> None:
    chosen, other = EqualTo(("namespace",), "a"), EqualTo(("data",), "x")
    assert not isinstance(batch(tmp_path), FilteringReader)
    reader = batch(tmp_path, filterPushdown="true")
    assert reader.pushFilters([chosen, other]) == [other]
    assert read(reader, list(reader.partitions())) == [0, 2]


def test_a_part_that_is_none_has_no_rows(log: CommitLog, tmp_path: Path) -> None:
    """Spark makes one when there is no partition."""
    assert read(batch(tmp_path), [InputPartition(None)]) == []
