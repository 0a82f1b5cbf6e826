"""Work in tasks: one Spark job in which every task does one item, and hands back a receipt.

A task that ends with a TailraceError hands it back like a receipt: Spark would try again what cannot succeed, and
turn the error into text.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.masking import masked
from tailrace.spark.process import not_at_work
from tailrace.spark.session import fold
from tailrace.spark.tasklog import Besides, collecting, log_again

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Receipt = Mapping[str, Any]
"""What a task tells about its work; plain JSON."""

Item = TypeVar("Item")

_MARK: Final = "tailrace-error:"
_SCHEMA: Final = "item long, receipt string"


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of one item."""

    item: int
    error: TailraceError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all items: a receipt or a failure each, in the order of the items."""

    receipts: list[Receipt | None]
    failures: list[Failure]

    def all(self) -> list[Receipt]:
        """The receipts, when every task succeeded; else the first failure is raised."""
        if self.failures:
            raise self.failures[0].error
        return [receipt for receipt in self.receipts if receipt is not None]


def run_tasks(session: SparkSession, label: str, work: Callable[[Item], Receipt], items: Sequence[Item]) -> Outcome:
    """Do `work` for every item, each in a task of its own, all in one job; `work` and items are pickled."""
    if not items:
        return Outcome([], [])
    try:
        session.sparkContext.setLocalProperty("spark.scheduler.pool", label)
        session.sparkContext.setJobDescription(label)
        frame = session.range(0, len(items), 1, len(items)).mapInArrow(_task(work, list(items)), _SCHEMA)
        rows = frame.collect()
    except Exception as error:
        if (failed := not_at_work(error)) is not None:
            raise failed from error
        what = f"a Spark job of {label} failed: {fold(error)}"
        raise TailraceError("spark.failed", what, hint="look into spark.log beside the log; run again") from error
    return _outcome(len(items), ((row["item"], row["receipt"]) for row in rows))


def run_over(frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Receipt]) -> Receipt | None:
    """Do `work` with all rows of a frame of one partition, in its task; None when Spark knows that there are none. What
    fails before the rows are there is raised as Spark has it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        receipt = json.dumps(_receipt(work, batches))
        for _ in batches:  # Spark takes a task that leaves something unread for a broken one
            pass
        yield pa.RecordBatch.from_pydict({"item": [0], "receipt": [receipt]})

    rows = frame.mapInArrow(run, _SCHEMA).collect()
    return next(iter(_outcome(1, ((row["item"], row["receipt"]) for row in rows)).all()), None)


def _task(work: Callable[[Item], Receipt], items: list[Item]) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            receipts = [json.dumps(_receipt(work, items[number])) for number in numbers]
            yield pa.RecordBatch.from_pydict({"item": batch.column(0), "receipt": receipts})

    return run


def _receipt(work: Callable[[Item], Receipt], item: Item) -> Receipt:
    with collecting() as lines:
        try:
            return {"done": work(item), "logged": lines}
        except TailraceError as error:
            return {"failed": error.encode(), "logged": lines}
        except Exception:
            if not _tells_secret():
                raise
            raise RuntimeError(masked(traceback.format_exc())) from None


@contextlib.contextmanager
def telling_driver(besides: Besides | None = None) -> Iterator[None]:
    """In a task without receipts: let the driver get an error of ours whole, not as the text of a stack trace, and what
    is logged if it is wanted."""
    try:
        with besides.collecting() if besides is not None else contextlib.nullcontext():
            yield
    except TailraceError as error:
        raise RuntimeError(marked(error)) from (None if _tells_secret() else error)
    except Exception:
        if not _tells_secret():
            raise
        raise RuntimeError(masked(traceback.format_exc())) from None


def _tells_secret() -> bool:
    """Whether the error that is being handled, or what led to it, has a secret in it: Spark writes it to its log."""
    told = traceback.format_exc()
    return masked(told) != told


def marked(error: TailraceError) -> str:
    """An error of ours as text that `task_error` finds in an error of Spark's."""
    return f"{_MARK}{base64.b64encode(json.dumps(error.encode()).encode()).decode()};"


def task_error(error: BaseException) -> TailraceError | None:
    """The error that a task has told, if Spark's error is about one."""
    found = re.search(rf"{_MARK}([A-Za-z0-9+/=]+);", str(error))
    return TailraceError.decode(json.loads(base64.b64decode(found[1]))) if found else None


def _outcome(count: int, rows: Iterable[tuple[int, str]]) -> Outcome:
    receipts: list[Receipt | None] = [None] * count
    failures = []
    for item, text in rows:
        told = json.loads(text)
        log_again(told["logged"])
        if "done" in told:
            receipts[item] = told["done"]
        else:
            failures.append(Failure(item, TailraceError.decode(told["failed"])))
    return Outcome(receipts, sorted(failures, key=lambda failure: failure.item))
