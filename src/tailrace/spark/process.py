"""Spark's own process, the JVM that ours has started: whether it is still there, and what an error says about it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.errors import TailraceError

_END_S: Final = 2.0
"""Connections to a process that is killed may break this long before it can be seen to have ended."""
_BROKEN_OFF: Final = re.compile(r"SPARK_JOB_CANCELLED|because SparkContext was shut down|InterruptedException")


def has_ended(wait_s: float = 0.0) -> bool:
    """Whether there was such a process, and it is gone, or goes within so many seconds."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process: subprocess.Popen[bytes] | None = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is None:
        return False
    try:
        return process.wait(wait_s) is not None
    except subprocess.TimeoutExpired:
        return False


def ended() -> TailraceError:
    """The error when the process is gone."""
    hint = "look into spark.log beside the log, and into dmesg whether memory was short; run again"
    return TailraceError("spark.failed", "Spark's process ended", hint=hint)


def not_at_work(error: BaseException) -> TailraceError | None:
    """What an error in something that Spark did says about Spark itself; None when it is about what was done."""
    if has_ended(0.0 if _is_answer(error) else _END_S):
        return ended()
    if _BROKEN_OFF.search(str(error)):
        return TailraceError("spark.failed", "a Spark job was broken off", hint="run again")
    return None


@contextmanager
def while_it_lasts() -> Iterator[None]:
    """What is asked of Spark in here is not missed when its process is gone."""
    try:
        yield
    except Exception:
        if not has_ended(_END_S):
            raise


def unless_ended(tell: Callable[..., None]) -> Callable[..., None]:
    """Something that tells of an error, but not of that of a connection to a process that is gone."""

    def told(*about: object) -> None:
        if not has_ended(_END_S):
            tell(*about)

    return told


def _is_answer(error: BaseException) -> bool:
    """Whether Spark itself told the error, so that it was there."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors.exceptions.captured import CapturedException

    return isinstance(error, Py4JJavaError | CapturedException)
