"""Routes: the two ways from a stretch of the log to a destination, through columns or through DataFrames."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tailrace.deliver.announcing import MakeRoom, refusals_told
from tailrace.deliver.clearing import Clear, ClearTable, clear_frames, kept_by
from tailrace.deliver.contract import Spread
from tailrace.deliver.evolution import Evolution, decode_schemas, encode_schemas
from tailrace.deliver.frames import FrameMaker, TypedFrame, through, together
from tailrace.deliver.framewriting import FrameWriting
from tailrace.deliver.messages import Messages
from tailrace.deliver.passing import Passing
from tailrace.deliver.promise import Promise
from tailrace.deliver.redelivery import RedeliverSingly
from tailrace.deliver.spilling import ReadSpill, SpillRange, remove_spill, spill_directory
from tailrace.deliver.stretch import Share, Stretch, divide
from tailrace.deliver.task import ApplyRange, DeliverItem, DeliverRange, open_writer
from tailrace.limits import MIB
from tailrace.log.identity import identity_of
from tailrace.message import Offset
from tailrace.spark.tasklog import Besides
from tailrace.spark.tasks import Receipt, run_tasks
from tailrace.transform.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.adaptor.options import WriterOptions
    from tailrace.pipeline.spec import WriteSpec


SPILL_BYTES_MIN: Final = 4 * MIB
"""For less a job more is not worth it."""


@dataclass(slots=True)
class Delivered:
    """What became of a stretch."""

    written: Counter[str] = field(default_factory=Counter)
    schemas: dict[str, str] = field(default_factory=dict)
    """What the writer knows of the fields now."""
    news: list[str] = field(default_factory=list)


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
        return _clear_in_task(self._session(), self._spec.name, self._options, clear, passing)

    def deliver_singly(self, stretch: Stretch, promise: Promise, passing: Passing) -> Receipt | None:
        """Write the messages of a stretch one by one, in one task; None when there is none."""
        if not stretch.written():
            return None
        spec = self._spec
        work = RedeliverSingly(
            self._log,
            spec.name,
            self._options,
            self._chain,
            spec.on_schema_change,
            spec.on_error,
            promise.schemas,
            passing,
        )
        items = [DeliverItem(stretch.start, stretch.end, tuple(stretch.written()))]
        return run_tasks(self._session(), spec.name, work, items).all()[0]

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


@dataclass(frozen=True, slots=True)
class _Load:
    """The messages of one namespace, ready to be written."""

    typed: TypedFrame
    copy: Offset | None
    messages: int
    upto: int
    """The namespace has everything up to here when they are."""


class FrameRoute:
    """Through a DataFrame per namespace: for functions that need Spark's SQL engine, and destinations it writes."""

    def __init__(self, spec: WriteSpec, log: str, session: Callable[[], SparkSession]) -> None:
        self._spec = spec
        self._options = options_of(spec, log)
        self._log = log
        self._session = session
        self._chain = Chain(spec.through)
        self._columns, self._rest = self._chain.split()
        self._keeps_originals = bool(self._rest) and not spec.options.on_driver  # what Spark writes stays text
        self._done: dict[str, Offset] = {}

    def deliver(self, stretch: Stretch, promise: Promise, passing: Passing) -> Delivered:
        evolution = Evolution(self._spec.on_schema_change, decode_schemas(promise.schemas))
        writing = FrameWriting(self._options, evolution, passing, self._done)
        spill = spill_directory(self._log, self._spec.name)
        known = {} if self._rest else evolution.known
        maker = FrameMaker(
            self._session(),
            self._log,
            self._spec.name,
            self._columns,
            spill,
            passing,
            known,
            self._keeps_originals,
            self._besides,
        )
        written: Counter[str] = Counter()
        try:
            for loads in self._loads(maker, stretch, promise, passing):
                typed = together([load.typed for load in loads])
                copy = loads[0].copy if len(loads) == 1 else None
                upto = Offset(max(load.upto for load in loads))
                count = writing.write(typed, copy, stretch.start, upto)
                written[typed.namespace] += sum(load.messages for load in loads) if count is None else count
        finally:
            writing.close()
            if self._besides is not None:
                self._besides.log_again()
            remove_spill(spill)
        return Delivered(written, encode_schemas(evolution.known), evolution.news)

    @cached_property
    def _besides(self) -> Besides | None:
        return Besides(self._session().sparkContext) if self._chain.logs else None

    def announce(self, empties: list[Messages], promise: Promise, upto: Offset) -> list[str]:
        """As in `ColumnRoute`."""
        evolution = Evolution(self._spec.on_schema_change, decode_schemas(promise.schemas))
        writing = FrameWriting(self._options, evolution, Passing())
        spill = spill_directory(self._log, self._spec.name)
        maker = FrameMaker(
            self._session(), self._log, self._spec.name, self._columns, spill, keeps_originals=self._keeps_originals
        )
        news: list[str] = []
        try:
            for messages in empties if self._chain.knows_columns else ():
                with refusals_told(messages.namespace, news):
                    typed = through(maker.empty_frame(messages), self._rest)
                    if typed.namespace not in evolution.known:
                        writing.write(typed, None, upto, upto)
        finally:
            writing.close()
        return news

    def clear(self, clear: Clear, passing: Passing) -> list[str]:
        """As in `ColumnRoute`."""
        if (kept := kept_by(self._chain, clear.namespace)) is not None:
            return kept
        if self._options.on_driver:
            return clear_frames(self._options, clear, passing.rewound)
        return _clear_in_task(self._session(), self._spec.name, self._options, clear, passing)

    def _loads(self, maker: FrameMaker, stretch: Stretch, promise: Promise, passing: Passing) -> Iterator[list[_Load]]:
        """What belongs together: namespaces to which the functions give the same name, for the destination knows only
        one offset for them. Others come in parts where that makes a difference."""
        waiting: dict[str, list[_Load]] = {}
        for namespace, share in stretch.written().items():
            parts = share.parts() if self._chain.keeps_namespaces else [share]
            for part in parts:
                typed = maker.frame(namespace, part, 2 * (os.cpu_count() or 2))
                if typed is None:
                    continue
                upto = (stretch if part is parts[-1] else part).end - 1
                copy = _copy_of(namespace, part, promise, passing)
                load = _Load(through(typed, self._rest, self._besides), copy, part.messages, upto)
                if self._chain.keeps_namespaces:
                    yield [load]
                else:
                    waiting.setdefault(load.typed.namespace, []).append(load)
        yield from waiting.values()


def _clear_in_task(
    session: SparkSession, name: str, options: WriterOptions, clear: Clear, passing: Passing
) -> list[str]:
    (receipt,) = run_tasks(session, name, ClearTable(options, passing.rewound), [clear]).all()
    news: list[str] = receipt["news"]
    return news


def options_of(spec: WriteSpec, log: str) -> Any:
    """The writer's options; where the adaptor keeps offsets, with the name to keep them under: whose they are, and of
    which log."""
    if "consumer" in type(spec.options).model_fields:
        return spec.options.model_copy(update={"consumer": f"{spec.name}@{identity_of(log)}"})
    return spec.options


def _copy_of(namespace: str, share: Share, promise: Promise, passing: Passing) -> Offset | None:
    """Where the copy begins whose rows a share consists of, unless they come for a second time."""
    began = promise.copies.get(namespace)
    if not share.is_copy or began is None or began > share.first or share.first <= passing.rewound:
        return None
    return Offset(began)
