"""A session that starts while its owner does something else, for it takes seconds."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from tailrace.spark.session import SparkConfig, start
from tailrace.spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LateSession:
    """Call it for the session; the first call waits until there is one, or raises what went wrong."""

    def __init__(self, config: SparkConfig) -> None:
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tailrace-spark")
        self._session: Future[SparkSession] = self._pool.submit(start, config)
        self._pool.submit(self._warm_up)

    def __call__(self) -> SparkSession:
        return self._session.result()

    def stop(self) -> None:
        """End Spark, if it has begun."""
        self._pool.shutdown(wait=True)
        if self._session.exception() is None:
            self._session.result().stop()

    def _warm_up(self) -> None:
        """The first task takes long, for Python must start too; so let it be one that nobody waits for."""
        run_tasks(self._session.result(), "warm", _nothing, [0])


def _nothing(item: int) -> dict[str, int]:
    return {"item": item}
