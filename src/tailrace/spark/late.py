"""A session that starts while its owner does something else, for it takes seconds."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING

from tailrace.errors import TailraceError
from tailrace.spark.process import while_it_lasts
from tailrace.spark.session import SparkConfig, start
from tailrace.spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LateSession:
    """Call it for the session; the first call waits until there is one, or raises what went wrong."""

    def __init__(self, config: SparkConfig) -> None:
        self._config = config
        self._session: Future[SparkSession] = Future()
        self._unwanted = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tailrace-spark", daemon=True)
        self._thread.start()

    def __call__(self) -> SparkSession:
        return self._session.result()

    def wait(self, seconds: float) -> bool:
        """Wait so long; whether a call need not wait now."""
        wait([self._session], seconds)
        return self._session.done()

    def stop(self) -> None:
        """End Spark. One that is still starting ends when it has started; nobody waits for that."""
        self._unwanted.set()
        if self._session.done() and self._session.exception() is None:
            self._thread.join()
            with while_it_lasts():
                self._session.result().stop()

    def _work(self) -> None:
        try:
            session = start(self._config)
        except Exception as error:  # noqa: BLE001  whoever wants the session gets it
            self._session.set_exception(error)
            return
        self._session.set_result(session)
        if self._unwanted.is_set():
            session.stop()
            return
        # The first task takes long, for Python must start too; so let it be one that nobody waits for, nor misses.
        with suppress(TailraceError):
            run_tasks(session, "warm", _nothing, [0])


def _nothing(item: int) -> dict[str, int]:
    return {"item": item}
