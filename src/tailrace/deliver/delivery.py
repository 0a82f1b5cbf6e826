"""Delivery: the log to one writer, one stretch per turn, at the writer's own pace.

Every turn, in this order:

1. Measure the stretch of the log that comes next.
2. Write it, in tasks or through DataFrames.
3. Record the consumer's offset (I3).

When messages are refused, the range is kept as trouble, and redelivered one message at a time.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tailrace.deliver.acks import Acks
from tailrace.deliver.contract import Spread
from tailrace.deliver.deadletter import dead_letters
from tailrace.deliver.evolution import Evolution, decode_schemas, encode_schemas
from tailrace.deliver.frames import FrameMaker, through
from tailrace.deliver.framewriting import FrameWriting
from tailrace.deliver.promise import Promise, PromiseFile
from tailrace.deliver.redelivery import OF_MESSAGES, RedeliverSingly, describe
from tailrace.deliver.spilling import SPILL_DIRECTORY, remove_spill
from tailrace.deliver.stretch import Share, Stretch, measure
from tailrace.deliver.task import DeliverItem, DeliverRange, open_writer, read_range
from tailrace.deliver.trouble import Trouble, TroubleFile
from tailrace.errors import TailraceError
from tailrace.limits import U64_MAX
from tailrace.log.consumers import Consumers
from tailrace.log.lag import Lag, lag_behind
from tailrace.log.reader import LogReader
from tailrace.log.session import ConsumerSession
from tailrace.log.watch import Watch
from tailrace.message import Offset
from tailrace.pipeline.spec import OnError, WriteSpec
from tailrace.spark.tasks import Receipt, run_tasks
from tailrace.transform.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.log.commitlog import CommitLog

LOOK_EVERY_S: Final = 0.25
TURN_S: Final = 10.0
"""A turn without work ends after this time: a stream that has turns all the time costs more."""


@dataclass(slots=True)
class DeliveryStats:
    """What was delivered since the start."""

    written: Counter[str] = field(default_factory=Counter)
    """Messages by namespace, after the functions."""
    passed: int = 0
    """Messages of the log that were acknowledged, written or not."""
    turns: int = 0
    aside: int = 0
    last_s: float = 0.0


class Delivery:
    """One writer. `open`, then `turn` until it returns False, then `close`."""

    def __init__(
        self,
        spec: WriteSpec,
        log: CommitLog,
        session: Callable[[], SparkSession],
        *,
        stop: threading.Event,
        report: Callable[[str], None],
        retry_hint: str = "run the pipeline again",
    ) -> None:
        self.spec = spec
        self.stats = DeliveryStats()
        self.until: Offset | None = None
        """Where delivery ends; None while nobody has said."""
        self._log = log
        self._make_session = session
        self._stop = stop
        self._report = report
        self._retry_hint = retry_hint
        self._chain = Chain(spec.through)
        self._options = _for_consumer(spec)
        self._reader = LogReader(log.directory)
        self._consumers = Consumers(log.directory)
        self._trouble_file = TroubleFile(log.directory, spec.name)
        self._promise_file = PromiseFile(log.directory, spec.name)
        self._promise = Promise()
        self._acks = Acks(log.directory, spec.name)
        self._session: ConsumerSession | None = None
        self._watch: Watch | None = None
        self._trouble: Trouble | None = None
        self._next = Offset(0)
        self._spread = Spread.NONE
        self._every_s = spec.every_s if spec.every_s is not None else spec.options.every_s
        self._wrote_s = 0.0

    @cached_property
    def _spark(self) -> SparkSession:
        """A session with temporary views of its own; Spark may be starting until the first turn."""
        return self._make_session().newSession()

    @property
    def next_offset(self) -> Offset:
        """The first message that is not delivered."""
        return self._next

    def lag(self) -> Lag:
        return lag_behind(self._reader.view, self._next - 1, time.time())

    def open(self) -> None:
        """Take up the consumer where it was."""
        self._consumers.register(self.spec.name, hold=self.spec.hold, exist_ok=True)
        self._session = ConsumerSession(self._consumers, self.spec.name)
        if (acked := self._acks.take()) is not None:
            self._commit(Offset(acked + 1))
            self._acks.clear()
        self._next = self._session.resume_offset
        self._promise = self._promise_file.read()
        self._trouble = self._trouble_file.read()
        if not self.uses_frames:
            writer = open_writer(self._options)
            self._spread = writer.spread
            writer.close()

    def turn(self) -> bool:
        """One turn; False when there is nothing more to do."""
        if self._trouble is not None and self._trouble.last >= self._next:
            self._redeliver(self._trouble)
            return True
        if self._trouble is not None:
            self._trouble_file.clear()
            self._trouble = None
        if not self._has_work():
            return not self._stop.is_set() and (self.until is None or self._next < self.until)
        stretch = self._measure()  # 1.
        try:
            self._deliver(stretch)  # 2.
        except TailraceError as error:
            self._fail(stretch, error)
            return True
        self._commit(stretch.end)  # 3.
        return True

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    @property
    def uses_frames(self) -> bool:
        """Whether messages go through DataFrames."""
        return self._chain.needs_frames or self._options.on_driver

    def _has_work(self) -> bool:
        """Wait for messages, and, unless the end is near, until it is worth it. False when there is nothing yet."""
        if self._watch is None:
            self._watch = Watch(self._log.directory)
        give_up_s = time.monotonic() + TURN_S
        while not self._stop.is_set() and time.monotonic() < give_up_s:
            left_s = 0.0 if self.until is not None else self._wrote_s + self._every_s - time.monotonic()
            if self._reader.next_offset > self._next and left_s <= 0:
                return True
            if self.until is not None and self._next >= self.until:
                return False
            if left_s > 0:
                self._stop.wait(min(left_s, LOOK_EVERY_S))
            else:
                self._watch.wait(LOOK_EVERY_S)
        return False

    def _measure(self, limit: Offset | None = None) -> Stretch:
        return measure(
            self._reader.view,
            self._next,
            self.spec.namespace,
            self.spec.batch_bytes,
            limit=limit,
            with_schemas=self.uses_frames,
        )

    def _deliver(self, stretch: Stretch) -> None:
        self._note_copies(stretch)
        if stretch.written():
            if self.uses_frames:
                self._deliver_frames(stretch)
            else:
                self._deliver_columns(stretch)
        self._wrote_s = time.monotonic()

    def _deliver_columns(self, stretch: Stretch) -> None:
        work = DeliverRange(
            self._log.directory,
            self._options,
            self._chain,
            self.spec.on_schema_change,
            self._promise.schemas,
            self._skipped(),
        )
        items = self._items(stretch)
        for receipt in run_tasks(self._spark, self.spec.name, work, items).all():
            self._learn(receipt)
            self.stats.written.update(receipt["written"])

    def _items(self, stretch: Stretch) -> list[DeliverItem]:
        names = list(stretch.written())
        tasks = 1 if self._spread is Spread.NONE else min(len(names), os.cpu_count() or 2)
        divided = [tuple(names[at::tasks]) for at in range(tasks)]
        return [DeliverItem(stretch.start, stretch.end, part) for part in divided]

    def _deliver_frames(self, stretch: Stretch) -> None:
        columns, rest = self._chain.split()
        evolution = Evolution(self.spec.on_schema_change, decode_schemas(self._promise.schemas))
        writing = FrameWriting(self._options, self.spec.name, evolution)
        log, name = self._log.directory, self.spec.name
        spill = os.path.join(log, SPILL_DIRECTORY, name)
        maker = FrameMaker(self._spark, log, name, columns, spill, self._skipped())
        upto = Offset(stretch.end - 1)
        try:
            for namespace, share in stretch.written().items():
                typed = maker.frame(namespace, share, 2 * (os.cpu_count() or 2))
                if typed is not None:
                    written = writing.write(through(typed, rest), self._copy_of(namespace, share), stretch.start, upto)
                    self.stats.written[namespace] += share.messages if written is None else written
        finally:
            writing.close()
            remove_spill(spill)
        self._learn({"schemas": encode_schemas(evolution.known), "news": evolution.news})

    def _note_copies(self, stretch: Stretch) -> None:
        began = {name: int(share.copy) for name, share in stretch.shares.items() if share.copy is not None}
        if began:
            self._promise.copies |= began
            self._promise_file.write(self._promise)

    def _copy_of(self, namespace: str, share: Share) -> Offset | None:
        """Where the copy begins whose rows a share consists of."""
        began = self._promise.copies.get(namespace)
        return Offset(began) if share.is_copy and began is not None and began <= share.first else None

    def _redeliver(self, trouble: Trouble) -> None:
        """What failed once more, so that all is delivered but the messages at fault."""
        end = Offset(trouble.last + 1)
        self._report(f"{self.spec.name}: offsets {self._next} to {trouble.last} are delivered one at a time")
        if self.uses_frames:
            self._halve(self._next, end)
        else:
            self._redeliver_singly(end)
        self._commit(end, now=True)
        self._trouble_file.clear()
        self._trouble = None

    def _redeliver_singly(self, end: Offset) -> None:
        """One message at a time, in one task."""
        stretch = measure(self._reader.view, self._next, self.spec.namespace, U64_MAX, limit=end)
        work = RedeliverSingly(
            self._log.directory,
            self.spec.name,
            self._options,
            self._chain,
            self.spec.on_schema_change,
            self.spec.on_error,
            self._promise.schemas,
            self._skipped(),
        )
        items = [DeliverItem(self._next, end, tuple(stretch.written()))] if stretch.written() else []
        for receipt in run_tasks(self._spark, self.spec.name, work, items).all():
            self._put_aside(receipt["aside"])
            self._learn(receipt)
            if receipt["refused"] is not None:
                self._acks.clear()
                self._commit(Offset(receipt["refused"]["offset"]), now=True)
                self._stop_at(receipt["refused"], end)
        self._acks.clear()

    def _halve(self, start: Offset, end: Offset) -> None:
        """Deliver a range through DataFrames, or its halves when that fails, down to the single messages at fault:
        each costs some twenty jobs, however long the range is."""
        try:
            while self._next < end:
                stretch = self._measure(end)
                self._deliver(stretch)
                self._commit(stretch.end)
        except TailraceError as error:
            if error.code not in OF_MESSAGES:
                raise
            if end - self._next > 1:
                middle = Offset((self._next + end) // 2)
                self._halve(self._next, middle)
                self._halve(middle, end)
                return
            self._refuse(self._next, error)
            self._commit(end)

    def _refuse(self, offset: Offset, error: TailraceError) -> None:
        """A single message was refused: stop before it, or put it aside."""
        item = DeliverItem(offset, Offset(offset + 1), (self._reader.view.find(offset).head.namespace,))
        for messages in read_range(self._log.directory, item):
            refused = {"offset": offset, "error": error.encode(), "message": describe(messages)}
            if self.spec.on_error is OnError.STOP:
                self._stop_at(refused, Offset(self._trouble.last + 1 if self._trouble else offset + 1))
            self._put_aside([refused])

    def _stop_at(self, refused: Receipt, end: Offset) -> None:
        """A message that cannot be written: the writer stops at the offset before it, and says what can be done."""
        offset = Offset(refused["offset"])
        error = TailraceError.decode(refused["error"])
        self._trouble = Trouble(offset, end - 1, error.what, time.time(), is_single=True)
        self._trouble_file.write(self._trouble)
        name, log = self.spec.name, shlex.quote(self._log.directory)
        commands = (
            f"look: tailrace log show {offset} --log {log}\n"
            f"retry: {self._retry_hint}\n"
            f"acknowledge: tailrace offset ack {name} {offset} --log {log} --reason WHY"
        )
        message = refused["message"]
        which = f"offset {offset}, {message.get('op')} of {message.get('namespace')}"
        what = f"writer {name} stopped before {which}: {error.what}"
        raise TailraceError(error.code, what, hint=commands)

    def _fail(self, stretch: Stretch, error: TailraceError) -> None:
        """Keep what failed; whether to try again now is the user's choice."""
        if error.code not in OF_MESSAGES:
            raise error
        self._trouble = Trouble(self._next, stretch.end - 1, error.what, time.time())
        self._trouble_file.write(self._trouble)
        if self.spec.on_error is OnError.STOP:
            what = (
                f"writer {self.spec.name} stopped: offsets {self._next} to {stretch.end - 1} were not written:"
                f" {error.what}"
            )
            hint = f"{self._retry_hint}; they are then delivered one at a time, up to the message at fault"
            raise TailraceError(error.code, what, hint=hint) from error
        self._report(f"{self.spec.name}: {error.what}")

    def _put_aside(self, aside: list[Receipt]) -> None:
        if not aside:
            return
        self.stats.aside += len(aside)
        for refused in aside[:10]:
            what = TailraceError.decode(refused["error"]).what
            self._report(f"{self.spec.name}: offset {refused['offset']} put aside: {what}")
        if self.spec.on_error is OnError.DEAD_LETTER:
            self._log.append_messages(dead_letters(self.spec.name, aside))

    def _learn(self, receipt: Receipt) -> None:
        for news in receipt["news"]:
            self._report(f"{self.spec.name}: {news}")
        if any(self._promise.schemas.get(name) != schema for name, schema in receipt["schemas"].items()):
            self._promise.schemas |= receipt["schemas"]
            self._promise_file.write(self._promise)

    def _commit(self, end: Offset, *, now: bool = False) -> None:
        if self._session is None:
            raise TailraceError("log.closed", f"writer {self.spec.name} is not open", hint="open it first")
        if end > self._next:
            self._session.commit(end - 1)
            self.stats.passed += end - self._next
            self._next = end
        self.stats.turns += 1
        self.stats.last_s = time.monotonic()
        if now:
            self._session.flush()

    def _skipped(self) -> frozenset[int]:
        """What an operator has acknowledged ahead of the rest."""
        return frozenset() if self._session is None else frozenset(self._session.positions.acknowledged)


def _for_consumer(spec: WriteSpec) -> Any:
    """The options, with the consumer's name where the adaptor keeps offsets under it."""
    if "consumer" in type(spec.options).model_fields:
        return spec.options.model_copy(update={"consumer": spec.name})
    return spec.options
