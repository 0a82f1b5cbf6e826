"""Turns: a Structured Streaming query whose micro-batches are turns of ours.

A turn waits until there is something to do, does it in a Spark job, and records its own progress; where the stream
stands is of no interest to anybody, so its checkpoint is thrown away (docs/decisions/006).
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import TailraceError
from tailrace.spark.process import has_ended, not_at_work, while_it_lasts
from tailrace.spark.session import fold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_S: Final = 2.0
"""So long a micro-batch takes further turns: beginning one costs as much as half a turn."""


class Turns:
    """One query. `turn` is called again and again, never twice at a time, until it returns False or raises."""

    def __init__(
        self, session: Callable[[], SparkSession], name: str, turn: Callable[[], bool], directory: str
    ) -> None:
        self.name = name
        self.error: TailraceError | None = None
        self.ended = threading.Event()
        """Set when there will be no further turn, because the last one said so or failed."""
        self._stopping = threading.Event()
        self._session = session
        self._turn = turn
        self._directory = directory
        self._checkpoint = ""
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        self._checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=self._directory)
        session = self._session()
        try:
            clock = session.readStream.format("rate-micro-batch")
            frame = clock.option("rowsPerBatch", 1).option("numPartitions", 1).load()
            writer = frame.writeStream.queryName(self.name).foreachBatch(self._take)
            self._query = writer.option("checkpointLocation", self._checkpoint).start()
        except Exception as error:
            what = f"the stream of {self.name} did not start: {fold(error)}"
            hint = "look into spark.log beside the log; run again"
            raise not_at_work(error) or TailraceError("spark.failed", what, hint=hint) from error

    def look(self) -> None:
        """Notice a query that ended by itself, outside of a turn."""
        query = self._query
        if query is None or self.ended.is_set():
            return
        with while_it_lasts():
            if query.isActive:
                return
            cause = query.exception()
            what = f"the stream of {self.name} ended: {fold(cause) if cause else 'nobody knows why'}"
            self.error = TailraceError("spark.failed", what, hint="look into spark.log beside the log; run again")
            self.ended.set()

    def stop(self) -> None:
        """End the query when its turn is over; ask the turn to be brief by other means first."""
        self.ended.set()
        self._stopping.set()
        if self._query is not None:
            with while_it_lasts():
                self._query.stop()
            self._query = None
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _take(self, _frame: DataFrame, _number: Any) -> None:
        if self.ended.is_set():
            self._stopping.wait()  # a stream that goes on has half a core for itself
            return
        over_s = time.monotonic() + BATCH_S
        try:
            while time.monotonic() < over_s and not self.ended.is_set():
                if not self._turn():
                    self.ended.set()
        except TailraceError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  a turn is a program's outermost function
            what = f"{self.name} failed: {type(error).__name__}: {fold(error)}"
            failure = not_at_work(error) or TailraceError("spark.failed", what, hint="run again")
            failure.__cause__ = error
            self._fail(failure)

    def _fail(self, error: TailraceError) -> None:
        """What was broken off, because nobody wants it any more or Spark is gone, did not fail."""
        if not self.ended.is_set() and not has_ended():
            self.error = error
        self.ended.set()
