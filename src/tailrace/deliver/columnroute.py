"""From a stretch of the log to a destination in tasks that read the log, apply the functions and write."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tailrace.deliver.announcing import MakeRoom, refusals_told
from tailrace.deliver.clearing import Clear, kept_by
from tailrace.deliver.contract import Spread
from tailrace.deliver.messages import Messages
from tailrace.deliver.passing import Passing
from tailrace.deliver.promise import Promise
from tailrace.deliver.redelivery import RedeliverSingly
from tailrace.deliver.route import Delivered, clear_in_task, options_of, write_singly
from tailrace.deliver.spilling import ReadSpill, SpillRange, remove_spill, spill_directory
from tailrace.deliver.stretch import Stretch, divide
from tailrace.deliver.task import ApplyRange, DeliverItem, DeliverRange, open_writer
from tailrace.limits import MIB
from tailrace.message import Offset
from tailrace.spark.tasks import Receipt, run_tasks
from tailrace.transform.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.spec import WriteSpec


SPILL_BYTES_MIN: Final = 4 * MIB
"""For less a job more is not worth it."""


class ColumnRoute:
    """In tasks that read the log, apply the functions and write."""

    def __init__(self, spec: WriteSpec, log: str, session: Callable[[], SparkSession]) -> None:
        self._spec = spec
        self._options = options_of(spec, log)
        self._log = log
        self._session = session
        self._chain = Chain(spec.through)

    def deliver(self, stretch: Stretch, promise: Promise, passing: Passing) -> Delivered:
        items = self._items(stretch)
        spill = spill_directory(self._log, self._spec.name)
        try:
            read = self._read(stretch, passing, spill, len(items))
            work = DeliverRange(read, self._options, self._spec.on_schema_change, promise.schemas, passing)
            delivered = Delivered()
            for receipt in run_tasks(self._session(), self._spec.name, work, items).all():
                delivered.written.update(receipt["written"])
                delivered.schemas |= receipt["schemas"]
                delivered.news += receipt["news"]
            return delivered
        finally:
            remove_spill(spill)

    def _read(self, stretch: Stretch, passing: Passing, spill: str, writing: int) -> ApplyRange | ReadSpill:
        """How the writing tasks get their messages. When there is only one, and the functions take long, they are
        applied before, in several."""
        apply = ApplyRange(self._log, self._chain, passing)
        shares = stretch.written()
        is_worth_it = sum(share.bytes for share in shares.values()) >= SPILL_BYTES_MIN
        if writing > 1 or self._chain.knows_columns or not is_worth_it:
            return apply
        tasks = 2 * (os.cpu_count() or 2)
        ranges = tuple(item for name, share in shares.items() for item in divide(name, share, tasks))
        run_tasks(self._session(), self._spec.name, SpillRange(spill, apply), ranges).all()
        return ReadSpill(spill, ranges)

    def announce(self, empties: list[Messages], promise: Promise, upto: Offset) -> list[str]:
        """Let the destination make room for namespaces without rows that it does not know; gives what people should
        know."""
        news: list[str] = []
        made: list[Messages] = []
        for messages in empties if self._chain.knows_columns else ():
            with refusals_told(messages.namespace, news):
                made.append(self._chain.apply(messages))
        items = [tuple(each for each in made if each.namespace not in promise.schemas)]
        if items[0]:
            news += run_tasks(self._session(), self._spec.name, MakeRoom(self._options, upto), items).all()[0]["news"]
        return news

    def clear(self, clear: Clear, passing: Passing) -> list[str]:
        """Empty a table; gives what people should know."""
        if (kept := kept_by(self._chain, clear.namespace)) is not None:
            return kept
        return clear_in_task(self._session(), self._spec.name, self._options, clear, passing)

    def deliver_singly(self, stretch: Stretch, promise: Promise, passing: Passing) -> Receipt | None:
        """Write the messages of a stretch one by one, in one task; None when there is none."""
        if not stretch.written():
            return None
        write = write_singly(self._spec, self._log, self._options, promise, passing)
        items = [DeliverItem(stretch.start, stretch.end, tuple(stretch.written()))]
        return run_tasks(self._session(), self._spec.name, RedeliverSingly(write, self._chain), items).all()[0]

    @cached_property
    def _spread(self) -> Spread:
        writer = open_writer(self._options)
        try:
            return writer.spread
        finally:
            writer.close()

    def _items(self, stretch: Stretch) -> list[DeliverItem]:
        """Namespaces that may become one must be written by one task."""
        names = list(stretch.written())
        is_one = self._spread is Spread.NONE or not self._chain.keeps_namespaces
        tasks = 1 if is_one else min(len(names), os.cpu_count() or 2)
        return [DeliverItem(stretch.start, stretch.end, tuple(names[at::tasks])) for at in range(tasks)]
