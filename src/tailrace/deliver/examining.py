"""Examining: which messages a destination that Spark writes would refuse, found one at a time inside one task.

Such a destination writes a range all or nothing, so its messages are not written one by one: those that would be
refused are found first, and all others are then written together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.deliver.evolution import Evolution, decode_schemas
from tailrace.deliver.frames import as_rows
from tailrace.deliver.messages import Messages
from tailrace.deliver.packing import unpacked
from tailrace.deliver.passing import Passing
from tailrace.deliver.redelivery import Refusals, one_by_one, singles
from tailrace.deliver.task import DeliverItem
from tailrace.message import Offset
from tailrace.pipeline.spec import OnError, SchemaPolicy

if TYPE_CHECKING:
    from tailrace.adaptor.options import WriterOptions
    from tailrace.spark.tasks import Receipt
    from tailrace.transform.chain import Chain


@dataclass(frozen=True, slots=True)
class ExamineSingly:
    """Examines the messages of a range of the log one by one."""

    log: str
    chain: Chain
    """The functions on columns."""
    options: WriterOptions | None
    """Those of the destination, None when functions on DataFrames come before it."""
    policy: SchemaPolicy
    on_error: OnError
    schemas: dict[str, str] = field(default_factory=dict)
    passing: Passing = field(default_factory=Passing)

    def __call__(self, item: DeliverItem) -> Receipt:
        evolution = Evolution(self.policy, decode_schemas(self.schemas))
        chain = self.chain.silent()

        def attempt(_: Offset, message: Messages) -> None:
            changed = chain.apply(message)
            if len(changed):
                as_rows(changed)
                if self.options is not None:
                    self.options.examine(evolution.admit(changed))

        refusals = Refusals(self.on_error)
        one_by_one(singles(self.log, item, self.passing), attempt, refusals)
        return refusals.encode()


@dataclass(frozen=True, slots=True)
class ExamineFrame:
    """Examines packed messages one by one: what functions on DataFrames have left."""

    options: WriterOptions
    policy: SchemaPolicy
    on_error: OnError
    schemas: dict[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Receipt:
        evolution = Evolution(self.policy, decode_schemas(self.schemas))
        refusals = Refusals(self.on_error)
        one_by_one(unpacked(batches), lambda _, messages: self.options.examine(evolution.admit(messages)), refusals)
        return refusals.encode()
