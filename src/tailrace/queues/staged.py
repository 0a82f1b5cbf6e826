"""Staged snapshots: tasks of Spark write the rows of a DataFrame as frames beside the log of a site, which publishes
them. Through the outbox go only the names of their files, so neither the driver nor the application's database carries
the data."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.log.staging import Staged, Staging
from tailrace.log.view import LogView
from tailrace.message import now
from tailrace.namespace import check_file_name
from tailrace.queues.entries import Kind, snapshot_batches
from tailrace.queues.names import SNAPSHOTS
from tailrace.queues.payload import check_payload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOLD: Final = "number long, part string"


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The rows of one partition, in one file."""

    batch: str
    """What it is published as, once."""
    file: Staged

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, told: bytes) -> Self:
        """The inverse of `encode`. It comes from outside: raises ValueError when it makes no sense."""
        try:
            found: dict[str, Any] = json.loads(told)
            file = Staged(**found["file"])
            for name in (found["batch"], file.name):
                check_file_name(name, "staged file")
        except (KeyError, TypeError, TailraceError) as error:
            raise ValueError(f"it names no staged file: {error}") from error
        return cls(found["batch"], file)


@dataclass(frozen=True, slots=True)
class Stage:
    """Writes the rows of a partition, in its task; pickled."""

    log: str
    client: str
    attempt: str
    sites: Sequence[str]
    call: str = field(default_factory=lambda: secrets.token_hex(4))
    """An attempt may stage several frames."""

    @property
    def batches(self) -> str:
        """What the names of all parts begin with."""
        return f"{SNAPSHOTS}@{self.attempt}-{self.call}-"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from tailrace.spark.tasks import telling_driver

        context: Any = TaskContext.get()
        with telling_driver():
            part = self.write(context.partitionId(), batches)
        yield pa.RecordBatch.from_pydict({"number": [context.partitionId()], "part": [part.encode().decode()]})

    def write(self, number: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        """A task that is run twice makes two files, of which the driver hears of one."""
        batch_id, first = f"{self.batches}{number}", 0
        with Staging(self.log).writer(batch_id, "rows") as writer:
            for rows in batches:
                found: list[Any] = rows.column(0).to_pylist()
                payloads = [check_payload(payload) for payload in found]
                for batch in snapshot_batches(
                    self.client, self.attempt, payloads, self.sites, Kind.SNAPSHOT, first, now()
                ):
                    writer.add(batch)
                first += len(payloads)
            return StagedPart(batch_id, writer.close())


def stage_frame(frame: DataFrame, column: str, stage: Stage) -> list[StagedPart]:
    """A column of bytes, one message for each value: a part for each partition that has some, in their order."""
    from tailrace.spark.tasks import task_error

    LogView(stage.log).bases()  # there is such a log
    run: Any = stage
    try:
        told = frame.select(check_column(frame, column)).mapInArrow(run, _TOLD).collect()
    except Exception as error:
        staging = Staging(stage.log)
        for name in staging.waiting():
            if name.startswith(stage.batches):
                staging.discard(name)
        if (known := task_error(error)) is not None:
            raise known from error
        raise
    parts = [StagedPart.decode(row["part"].encode()) for row in sorted(told, key=lambda row: row["number"])]
    for part in parts:
        if not part.file.messages:
            discard(stage.log, part)
    return [part for part in parts if part.file.messages]


def discard(log: str, part: StagedPart) -> None:
    """Nobody publishes it."""
    Staging(log).discard(part.batch)


def check_column(frame: DataFrame, column: str) -> str:
    """Refuse a column that has no payloads."""
    from pyspark.sql.types import BinaryType

    found = {field.name: field.dataType for field in frame.schema.fields}.get(column)
    if not isinstance(found, BinaryType):
        what = f"the frame has no column {column!r} of bytes"
        raise TailraceError("queue.payload", what, hint="name a column of type binary")
    return column
