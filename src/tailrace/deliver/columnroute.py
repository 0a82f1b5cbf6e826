"""From a stretch of the log to a destination in tasks that read the log, apply the functions and write."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tailrace.deliver.announcing import MakeRoom, Prepare, refusals_told
from tailrace.deliver.clearing import Clear, kept_by
from tailrace.deliver.contract import PartedWriter, Spread, Target
from tailrace.deliver.evolution import Evolution, decode_schemas, encode_schemas
from tailrace.deliver.messages import Messages, no_messages
from tailrace.deliver.parting import Part
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


PARTED_MIN: Final = 1_000
"""Fewer messages are not divided: they take no time, and stay one transaction."""
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
        delivered = Delivered(schemas=dict(promise.schemas))
        items = self._items(stretch)
        if any(item.part is not None for item in items):
            self._make_room(stretch, delivered)
        spill = spill_directory(self._log, self._spec.name)
        try:
            read = self._read(stretch, passing, spill, len(items))
            work = DeliverRange(read, self._options, self._spec.on_schema_change, delivered.schemas, passing)
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

    def _make_room(self, stretch: Stretch, delivered: Delivered) -> None:
        """Tasks that write at the same time must not all make the tables ready: one does so for all that is new."""
        evolution = Evolution(self._spec.on_schema_change, decode_schemas(delivered.schemas))
        targets: list[Target] = []
        for namespace, share in stretch.written().items():
            if share.schema is not None:
                empty = self._chain.apply(no_messages(namespace, share.schema))
                known = evolution.known.get(empty.namespace)
                evolution.admit_fields(empty.namespace, pa.schema(list(empty.data.type)), share.first)
                if evolution.known[empty.namespace] != known:
                    targets.append(Target(empty.namespace, evolution.known[empty.namespace], empty.key))
        if targets:
            run_tasks(self._session(), self._spec.name, Prepare(self._options), [tuple(targets)]).all()
        delivered.schemas |= encode_schemas(evolution.known)
        delivered.news += evolution.news

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

    @property
    def wants_schemas(self) -> bool:
        """Whether stretches are to say what their rows look like."""
        return self._parts > 1

    @cached_property
    def _spread(self) -> tuple[Spread, int]:
        """How the destination may be written, and in how many parts if by key."""
        writer = open_writer(self._options)
        try:
            return writer.spread, writer.parts if isinstance(writer, PartedWriter) else 1
        finally:
            writer.close()

    @cached_property
    def _parts(self) -> int:
        """Into how many parts each namespace is divided by key, where its columns can be told without rows and it
        meets no other."""
        spread, parts = self._spread
        is_possible = spread is Spread.KEY and self._chain.keeps_namespaces and self._chain.knows_columns
        return parts if is_possible else 1

    def _items(self, stretch: Stretch) -> list[DeliverItem]:
        """Namespaces that may become one must be written by one task."""
        names = tuple(stretch.written())
        if self._parts > 1 and stretch.messages >= PARTED_MIN:
            parts = [Part(number, self._parts) for number in range(self._parts)]
            return [DeliverItem(stretch.start, stretch.end, names, part) for part in parts]
        is_one = self._spread[0] is not Spread.NAMESPACE or not self._chain.keeps_namespaces
        tasks = 1 if is_one else min(len(names), os.cpu_count() or 2)
        return [DeliverItem(stretch.start, stretch.end, names[at::tasks]) for at in range(tasks)]
