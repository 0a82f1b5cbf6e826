"""Comparing two sides on Spark, in two steps:

1. Each side counts its rows and sums up their hashes, in groups of keys. A sum, not an exclusive or: a row that is
   there twice must show.
2. Only where a group differs, keys and hashes of its rows are brought together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.spark.session import fold
from tailrace.spark.tasks import task_error, telling_driver
from tailrace.verify.differences import KEYS_MAX, Differences, DifferingKey, Kind
from tailrace.verify.digest import BUCKETS, Digest
from tailrace.verify.sides import Side, Stream
from tailrace.verify.spans import Hashes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TALLY: Final = "bucket long, rows long, hash long"
_LISTED: Final = "key long, text string, hash long"


@dataclass(frozen=True, slots=True)
class Tallying:
    """Counts and sums up, inside a task."""

    stream: Stream
    digest: Digest

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts, sums = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.uint64)
        with telling_driver():
            for batch in batches:
                for rows in self.stream(batch):
                    digested = self.digest.of(rows)
                    np.add.at(counts, digested.buckets, 1)
                    np.add.at(sums, digested.buckets, digested.rows)
        used = np.flatnonzero(counts)
        columns = {"bucket": used, "rows": counts[used], "hash": sums[used].view(np.int64)}
        yield pa.RecordBatch.from_pydict({name: pa.array(values, pa.int64()) for name, values in columns.items()})


@dataclass(frozen=True, slots=True)
class Listing:
    """Lists the rows of some groups, inside a task."""

    stream: Stream
    digest: Digest
    buckets: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = np.array(self.buckets, np.uint64)
        with telling_driver():
            for batch in batches:
                for rows in self.stream(batch):
                    digested = self.digest.of(rows)
                    places = np.flatnonzero(np.isin(digested.buckets, wanted))
                    texts = self.digest.key_texts(rows.take(places))
                    yield pa.RecordBatch.from_pydict(
                        {
                            "key": pa.array(digested.keys[places].view(np.int64)),
                            "text": pa.array(texts, pa.string()),
                            "hash": pa.array(digested.rows[places].view(np.int64)),
                        }
                    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides that should be equal."""

    label: str
    expected: Side
    stored: Side
    digest: Digest

    def differences(self) -> Differences:
        """Everything in which the sides differ now."""
        self.expected.frame.sparkSession.sparkContext.setJobDescription(self.label)
        try:
            return self._differences()
        except TailraceError:
            raise
        except Exception as error:
            what = f"{self.label} could not be compared: {fold(error)}"
            hint = "look into spark.log beside the log; verify again"
            raise task_error(error) or TailraceError("spark.failed", what, hint=hint) from error

    def _differences(self) -> Differences:
        (expected_counts, expected_sums), (stored_counts, stored_sums) = map(self._tally, (self.expected, self.stored))
        is_other = (expected_counts != stored_counts) | (expected_sums != stored_sums)
        rows = int(expected_counts.sum()), int(stored_counts.sum())
        if not is_other.any():
            return Differences(*rows)
        differing = self._differing(tuple(np.flatnonzero(is_other).tolist()))
        found = differing.limit(KEYS_MAX + 1).collect()
        counts = Counter(Kind(row["kind"]) for row in found)
        if len(found) > KEYS_MAX:
            counts = Counter({Kind(row["kind"]): row["count"] for row in differing.groupBy("kind").count().collect()})
        keys = [DifferingKey(row["key"], row["text"], Kind(row["kind"]), tuple(row["stored"])) for row in found]
        return Differences(*rows, counts, tuple(sorted(keys[:KEYS_MAX], key=lambda key: (len(key.text), key.text))))

    def _tally(self, side: Side) -> tuple[Any, Hashes]:
        counts, sums = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.uint64)
        found = side.frame.mapInArrow(Tallying(side.stream, self.digest), _TALLY).toArrow()
        bucket, rows, hashes = (found.column(name).to_numpy() for name in ("bucket", "rows", "hash"))
        np.add.at(counts, bucket, rows)
        np.add.at(sums, bucket, np.ascontiguousarray(hashes).view(np.uint64))
        return counts, sums

    def _differing(self, buckets: tuple[int, ...]) -> DataFrame:
        from pyspark.sql import functions as sql

        def listed(side: Side, *, is_expected: bool) -> DataFrame:
            rows = side.frame.mapInArrow(Listing(side.stream, self.digest, buckets), _LISTED)
            return rows.withColumn("is_expected", sql.lit(is_expected))

        both = listed(self.expected, is_expected=True).unionByName(listed(self.stored, is_expected=False))
        grouped = both.groupBy("key").agg(
            sql.min("text").alias("text"),
            _hashes(sql.col("is_expected")).alias("expected"),
            _hashes(~sql.col("is_expected")).alias("stored"),
        )
        return grouped.where("expected != stored").select("key", "text", "stored", _kind().alias("kind"))


def _hashes(condition: Column) -> Column:
    from pyspark.sql import functions as sql

    return sql.sort_array(sql.collect_list(sql.when(condition, sql.col("hash"))))


def _kind() -> Column:
    from pyspark.sql import functions as sql

    expected, stored = sql.size("expected"), sql.size("stored")
    return (
        sql.when(stored == 0, Kind.MISSING.value)
        .when(expected == 0, Kind.EXTRA.value)
        .when(stored > expected, Kind.REPEATED.value)
        .otherwise(Kind.DIFFERENT.value)
    )
