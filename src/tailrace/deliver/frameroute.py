"""From a stretch of the log to a destination through a DataFrame per namespace: for functions that need Spark's SQL
engine, and for destinations that Spark writes."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.deliver.announcing import refusals_told
from tailrace.deliver.clearing import Clear, clear_frames, kept_by
from tailrace.deliver.evolution import Evolution, decode_schemas, encode_schemas
from tailrace.deliver.examining import ExamineFrame, ExamineSingly
from tailrace.deliver.frames import FrameMaker, TypedFrame, through, together
from tailrace.deliver.framewriting import FrameWriting, telling_refusal, unwritten
from tailrace.deliver.halving import Halving, without
from tailrace.deliver.messages import Messages
from tailrace.deliver.packing import RedeliverPacked, packed
from tailrace.deliver.passing import Passing
from tailrace.deliver.promise import Promise
from tailrace.deliver.redelivery import summed, with_originals
from tailrace.deliver.route import Delivered, clear_in_task, options_of, write_singly
from tailrace.deliver.spilling import remove_spill, spill_directory
from tailrace.deliver.stretch import Share, Stretch, measure
from tailrace.deliver.task import DeliverItem
from tailrace.errors import TailraceError
from tailrace.limits import U64_MAX
from tailrace.log.reader import LogReader
from tailrace.message import Offset
from tailrace.spark.tasklog import Besides
from tailrace.spark.tasks import Receipt, run_over, run_tasks
from tailrace.transform.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.spec import WriteSpec


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

    @property
    def wants_schemas(self) -> bool:
        """Whether stretches are to say what their rows look like."""
        return True

    def deliver(self, stretch: Stretch, promise: Promise, passing: Passing) -> Delivered:
        evolution = Evolution(self._spec.on_schema_change, decode_schemas(promise.schemas))
        writing = FrameWriting(self._options, evolution, passing, self._done)
        written: Counter[str] = Counter()
        try:
            with self._loads(stretch, promise, passing, evolution) as found:
                for loads in found:
                    typed = together([load.typed for load in loads])
                    copy = loads[0].copy if len(loads) == 1 else None
                    upto = Offset(max(load.upto for load in loads))
                    count = writing.write(typed, copy, stretch.start, upto)
                    written[typed.namespace] += sum(load.messages for load in loads) if count is None else count
        finally:
            writing.close()
        return Delivered(written, encode_schemas(evolution.known), evolution.news)

    def deliver_singly(self, stretch: Stretch, promise: Promise, passing: Passing) -> Receipt | None:
        """Write the messages of a stretch but for those that are refused; None when there is none.

        1. One task looks at each message in turn, as far as it goes without Spark's SQL engine and the destination.
        2. Those that are left are written: in one task, one by one, or by Spark, all or nothing.
        3. If that fails the rest is found by halving.
        """
        if not stretch.written():
            return None
        promise = replace(promise, schemas=dict(promise.schemas))  # of a range that goes in parts, each learns
        examined = self._examine(stretch, promise, passing)  # 1.

        aside: list[Receipt] = examined["aside"]

        def is_settled() -> bool:
            """Whether nothing was put aside so far."""
            return not (aside or halving.refusals.aside or any(each["aside"] for each in halving.receipts))

        def deliver(part: Stretch, passing: Passing) -> Receipt:
            receipt = self._deliver_each(part, promise, passing, acknowledges=is_settled())
            promise.schemas |= receipt["schemas"]
            return receipt

        passing = without(passing, aside)
        halving = Halving(self._log, self._spec.on_error, passing, self._measure, deliver)
        last = examined["refused"]
        halving.deliver(stretch.start, stretch.end if last is None else Offset(last["offset"]))  # 2. 3.
        return summed([examined, *halving.receipts, halving.refusals.encode()])

    def _examine(self, stretch: Stretch, promise: Promise, passing: Passing) -> Receipt:
        """Which messages cannot get as far as the destination, or will be refused there."""
        spec = self._spec
        policies = spec.on_schema_change, spec.on_error, promise.schemas
        options = None if self._rest or not self._options.on_driver else self._options
        item = DeliverItem(stretch.start, stretch.end, tuple(stretch.written()))
        work = ExamineSingly(self._log, self._columns, options, *policies, passing)
        (found,) = run_tasks(self._session(), spec.name, work, [item]).all()
        if not (self._rest and self._options.on_driver):
            return found
        end = stretch.end if found["refused"] is None else Offset(found["refused"]["offset"])
        part, passing = self._measure(stretch.start, end, passing), without(passing, found["aside"])
        with contextlib.suppress(TailraceError):  # a function that fails as a whole is for halving
            return summed([found, self._visit(ExamineFrame(self._options, *policies), part, promise, passing)])
        return found

    def _deliver_each(self, stretch: Stretch, promise: Promise, passing: Passing, *, acknowledges: bool) -> Receipt:
        """Write a stretch, message by message where the destination takes single ones."""
        if self._options.on_driver:
            return self.deliver(stretch, promise, passing).receipt()
        write = write_singly(self._spec, self._log, self._options, promise, passing)
        work = RedeliverPacked(replace(write, acknowledges=acknowledges))
        return self._visit(work, stretch, promise, passing)

    def _visit(
        self, work: Callable[[Iterator[pa.RecordBatch]], Receipt], stretch: Stretch, promise: Promise, passing: Passing
    ) -> Receipt:
        """Let one task see what the functions make of each message of a stretch, in log order."""
        evolution = Evolution(self._spec.on_schema_change, decode_schemas(promise.schemas))
        with self._loads(stretch, promise, passing, evolution) as found:
            frames = [self._unwritten(load.typed, passing, stretch.start) for loads in found for load in loads]
            with telling_refusal(f"what lies between offsets {stretch.start} and {stretch.end}"):
                receipt = run_over(packed(frames), work) if frames else None
        if receipt is None:
            return summed([])
        item = DeliverItem(stretch.start, stretch.end, tuple(stretch.written()))
        return with_originals(self._log, item, receipt)

    def _unwritten(self, typed: TypedFrame, passing: Passing, start: Offset) -> TypedFrame:
        done = self._done.get(typed.namespace)
        return replace(typed, frame=unwritten(typed.frame, passing, done, start))

    def _measure(self, start: Offset, end: Offset, passing: Passing) -> Stretch:
        return measure(
            LogReader(self._log).view,
            start,
            self._spec.namespace,
            U64_MAX,
            limit=end,
            with_schemas=True,
            acknowledged=passing.acknowledged,
        )

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
        return clear_in_task(self._session(), self._spec.name, self._options, clear, passing)

    @contextlib.contextmanager
    def _loads(
        self, stretch: Stretch, promise: Promise, passing: Passing, evolution: Evolution
    ) -> Iterator[Iterator[list[_Load]]]:
        """What belongs together, while its spills are there."""
        spill = spill_directory(self._log, self._spec.name)
        maker = FrameMaker(
            self._session(),
            self._log,
            self._spec.name,
            self._columns,
            spill,
            passing,
            {} if self._rest else evolution.known,
            self._keeps_originals,
            self._besides,
            *([] if self._rest else [self._options.examine]),
        )
        try:
            yield self._grouped(maker, stretch, promise, passing)
        finally:
            if self._besides is not None:
                self._besides.log_again()
            remove_spill(spill)

    def _grouped(
        self, maker: FrameMaker, stretch: Stretch, promise: Promise, passing: Passing
    ) -> Iterator[list[_Load]]:
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


def _copy_of(namespace: str, share: Share, promise: Promise, passing: Passing) -> Offset | None:
    """Where the copy begins whose rows a share consists of, unless they come for a second time."""
    began = promise.copies.get(namespace)
    if not share.is_copy or began is None or began > share.first or share.first <= passing.rewound:
        return None
    return Offset(began)
