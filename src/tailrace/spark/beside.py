"""A session for a command that works beside a log once, and ends with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tailrace.spark.late import LateSession
from tailrace.spark.session import SparkConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_DIRECTORY: Final = "run"
"""Beside the segments, where a pipeline's session has its files too."""


@contextmanager
def session_beside(
    log: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Callable[[], SparkSession]]:
    """Call what it gives for the session, which starts meanwhile."""
    slots = (os.cpu_count() or 2) + 1
    late = LateSession(SparkConfig(os.path.join(log, RUN_DIRECTORY), master, slots, settings or {}))
    try:
        yield late
    finally:
        late.stop()
