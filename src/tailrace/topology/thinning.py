"""Thinning: which messages of a table still matter in a long stretch of a log, those that wrote a row last. Updates may
tell some fields only: of each set of fields the last one matters.

Spark's tasks read the stretch. `python -m tailrace.topology.thinning` does it in a process of its own, so that a
replica stays light: what is wanted comes on its standard input as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tailrace.adaptor.rowkeys import keys_of
from tailrace.adaptor.versions import marks
from tailrace.deliver.passing import Passing
from tailrace.deliver.stretch import divide, measure
from tailrace.deliver.task import DeliverItem, read_range
from tailrace.errors import Place, TailraceError
from tailrace.log.reader import LogReader
from tailrace.log.selection import exactly
from tailrace.message import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = "key string, fields string, at long, origin string, lsn long, offset long"
_KINDS: Final[dict[str, pa.DataType]] = {
    "key": pa.string(),
    "fields": pa.string(),
    "at": pa.int64(),
    "origin": pa.string(),
    "lsn": pa.int64(),
    "offset": pa.int64(),
}
_TASKS: Final = 2 * (os.cpu_count() or 2)
_EVERYTHING: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Thinning:
    """What is to be thinned. Travels as JSON."""

    log: str
    namespace: str
    key: tuple[str, ...]
    """The columns that tell its rows from others; those that messages name when there are none."""
    start: int
    end: int
    undone: tuple[tuple[int, int], ...]
    """Stretches that have not happened."""
    to: str
    """A new directory, for Parquet files with the offsets of the messages that matter."""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Thinning:
        said: dict[str, Any] = json.loads(text)
        undone = tuple((begin, end) for begin, end in said.pop("undone"))
        return cls(**{**said, "key": tuple(said["key"])}, undone=undone)


@dataclass(frozen=True, slots=True)
class Marking:
    """Reads ranges of the log in tasks: the keys of each message, and how new it is."""

    work: Thinning
    items: Sequence[DeliverItem]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                yield from self._marked(self.items[number])

    def _marked(self, item: DeliverItem) -> Iterator[pa.RecordBatch]:
        for messages in read_range(self.work.log, item, Passing()):
            key = self.work.key or messages.key
            if not len(messages) or not key:
                continue
            offsets: list[Any] = messages.offsets().to_pylist()
            fields = json.dumps(sorted(messages.fields))
            told = zip(*keys_of(messages, key), marks(messages), offsets, strict=True)
            rows = [
                (each, fields, *mark, offset)
                for new, old, mark, offset in told
                if not any(begin <= offset < end for begin, end in self.work.undone)
                for each in {new, old}
            ]
            if rows:
                columns = zip(zip(*rows, strict=True), _KINDS.values(), strict=True)
                arrays = [pa.array(column, kind) for column, kind in columns]
                yield pa.RecordBatch.from_arrays(arrays, names=list(_KINDS))


def thin(work: Thinning, session: SparkSession) -> None:
    """Find the messages that wrote a row last, or moved one away."""
    from pyspark.sql import functions as sql

    view = LogReader(work.log).view
    stretch = measure(view, Offset(work.start), exactly(work.namespace), _EVERYTHING, limit=Offset(work.end))
    share = stretch.shares.get(work.namespace)
    items = divide(work.namespace, share, _TASKS) if share is not None and share.frames else ()
    ids = session.range(0, len(items), 1, max(1, len(items)))
    marked = ids.mapInArrow(Marking(work, items), _COLUMNS)
    newest = sql.max_by("offset", sql.struct("at", "origin", "lsn")).alias("offset")
    kept = marked.groupBy("key", "fields").agg(newest).select("offset").distinct()
    kept.write.parquet(f"file://{os.path.abspath(work.to)}")


def main() -> int:
    """An error is told as JSON, the last line of standard error."""
    from tailrace.spark.beside import session_beside

    work = Thinning.decode(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with session_beside(work.log) as session:
            thin(work, session())
    except Exception as error:  # noqa: BLE001  whatever Spark has, it is told in one line
        sys.stderr.write(json.dumps(_in_our_words(error, work).encode()) + "\n")
        return 1
    return 0


def _end_with_parent() -> None:
    """Whoever began this holds the other end of standard input; what it leaves behind would be in its successor's
    way."""
    sys.stdin.read()
    os._exit(1)


def _in_our_words(error: Exception, work: Thinning) -> TailraceError:
    from tailrace.spark.session import fold
    from tailrace.spark.tasks import task_error

    if isinstance(error, TailraceError):
        return error
    what = f"the messages of {work.namespace} were not looked through: {fold(error)}"
    told = TailraceError("spark.failed", what, place=Place(work.log), hint="look into spark.log; it is tried again")
    return task_error(error) or told


if __name__ == "__main__":
    sys.exit(main())
