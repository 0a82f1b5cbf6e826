"""Delivery: the log to one writer, one stretch per turn, at the writer's own pace.

Every turn, in this order:

1. Measure the stretch of the log that comes next.
2. Write it.
3. Record the consumer's offset (I3).

When messages are refused, the stretch is kept as trouble, and redelivered down to the message at fault.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tailrace.deliver.acks import Acks
from tailrace.deliver.clearing import Clear
from tailrace.deliver.columnroute import ColumnRoute
from tailrace.deliver.deadletter import dead_letters
from tailrace.deliver.frameroute import FrameRoute
from tailrace.deliver.passing import PASSED, Passing
from tailrace.deliver.promise import Promise, PromiseFile
from tailrace.deliver.redelivery import OF_MESSAGES
from tailrace.deliver.route import Delivered
from tailrace.deliver.stretch import Stretch, measure
from tailrace.deliver.trouble import Trouble, TroubleFile
from tailrace.errors import TailraceError
from tailrace.limits import U64_MAX
from tailrace.log.consumers import Consumers
from tailrace.log.lag import Lag, lag_behind
from tailrace.log.note import REWOUND, ConsumerNote
from tailrace.log.reader import LogReader
from tailrace.log.session import ConsumerSession
from tailrace.log.watch import Watch
from tailrace.message import Offset
from tailrace.pipeline.spec import OnError, WriteSpec
from tailrace.spark.tasks import Receipt
from tailrace.transform.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.log.commitlog import CommitLog

LOOK_EVERY_S: Final = 0.25
TURN_S: Final = 10.0
"""A turn without work ends after this time: a stream that has turns all the time costs more."""
SHOWN: Final = 10
"""So many messages that are put aside at a time are told one by one."""


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
        needs_frames = spec.options.on_driver or Chain(spec.through).needs_frames
        route = FrameRoute if needs_frames else ColumnRoute
        self._route = route(spec, log.directory, lambda: self._spark)
        self._reader = LogReader(log.directory)
        self._consumers = Consumers(log.directory)
        self._trouble_file = TroubleFile(log.directory, spec.name)
        self._promise_file = PromiseFile(log.directory, spec.name)
        self._rewound = ConsumerNote(log.directory, spec.name, REWOUND)
        self._acks = Acks(log.directory, spec.name)
        self._passing = Passing()
        self._promise = Promise()
        self._told: set[str] = set()
        """News that people have already."""
        self._session: ConsumerSession | None = None
        self._watch: Watch | None = None
        self._trouble: Trouble | None = None
        self._next = Offset(0)
        self._every_s = spec.every_s if spec.every_s is not None else spec.options.every_s
        self._wrote_s = 0.0

    @property
    def next_offset(self) -> Offset:
        """The first message that is not delivered."""
        return self._next

    @property
    def has_answered(self) -> bool:
        """Whether the destination has taken something in this run."""
        return self.stats.written.total() > 0

    @property
    def fate(self) -> str:
        """What becomes of messages that are refused, if they do not stop the writer."""
        return "skipped" if self.spec.on_error is OnError.SKIP else "put aside"

    def lag(self) -> Lag:
        return lag_behind(self._reader.view, self._next - 1, time.time())

    def open(self) -> None:
        """Take up the consumer where it was."""
        self._consumers.register(self.spec.name, hold=self.spec.hold, exist_ok=True)
        self._session = ConsumerSession(self._consumers, self.spec.name)
        if (acked := self._acks.take()) is not None:
            self._commit(Offset(acked + 1), now=True)
            self._acks.clear()
        self._next = self._session.resume_offset
        self._passing = self._read_passing(self._session)
        self._promise = self._promise_file.read()
        self._trouble = self._trouble_file.read()

    def turn(self) -> bool:
        """One turn; False when there is nothing more to do."""
        if self._trouble is not None:
            self._recover(self._trouble)
            return True
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

    @cached_property
    def _spark(self) -> SparkSession:
        """A session with temporary views of its own; Spark may be starting until the first turn."""
        return self._make_session().newSession()

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

    def _measure(
        self, limit: Offset | None = None, bytes_max: int | None = None, start: Offset | None = None
    ) -> Stretch:
        return measure(
            self._reader.view,
            self._next if start is None else start,
            self.spec.namespace,
            bytes_max or self.spec.batch_bytes,
            limit=limit,
            with_schemas=self._route.wants_schemas,
            acknowledged=self._passing.acknowledged,
        )

    def _deliver(self, stretch: Stretch) -> None:
        for part in self._parts(stretch):
            if isinstance(part, Clear):
                self._clear(part)
            else:
                self._deliver_part(part)
        self._wrote_s = time.monotonic()

    def _parts(self, stretch: Stretch) -> Iterator[Stretch | Clear]:
        """A stretch as what lies between the places where tables were emptied, and these. Offsets are not recorded
        inside a group all the same: when a part fails, those before it come again."""
        if not stretch.clears:
            yield stretch
            return
        start = stretch.start
        for clear in stretch.clears:
            if clear.offset > start:
                yield self._measure(clear.offset, U64_MAX, start)
            yield clear
            start = Offset(clear.offset + 1)
        if start < stretch.end:
            yield self._measure(stretch.end, U64_MAX, start)

    def _clear(self, clear: Clear) -> None:
        if clear.offset not in self._passing.acknowledged and clear.offset > self._passing.ahead.get(
            clear.namespace, PASSED
        ):
            for news in self._route.clear(clear, self._passing):
                self._report(f"{self.spec.name}: {news}")

    def _deliver_part(self, stretch: Stretch) -> None:
        began = {name: int(share.copy) for name, share in stretch.shares.items() if share.copy is not None}
        if began:
            self._promise.copies |= began
            self._promise_file.write(self._promise)
        if stretch.written():
            delivered = self._route.deliver(stretch, self._promise, self._passing)
            self._learn(delivered)
        self._announce(stretch)

    def _announce(self, stretch: Stretch) -> None:
        if empties := stretch.announced():
            for news in self._route.announce(empties, self._promise, Offset(stretch.end - 1)):
                self._report(f"{self.spec.name}: {news}")

    def _fail(self, stretch: Stretch, error: TailraceError) -> None:
        """Keep what failed; whether to try again now is the user's choice."""
        if error.code not in OF_MESSAGES:
            raise error
        self._trouble = Trouble(self._next, stretch.end - 1, error.what, time.time())
        self._trouble_file.write(self._trouble)
        if self.spec.on_error is OnError.STOP:
            offsets = f"offsets {self._next} to {stretch.end - 1}"
            what = f"writer {self.spec.name} stopped: {offsets} were not written: {error.what}"
            hint = f"{self._retry_hint}; they are then delivered one at a time, up to the message at fault"
            raise TailraceError(error.code, what, hint=hint) from error
        self._report(f"{self.spec.name}: {error.what}")

    def _recover(self, trouble: Trouble) -> None:
        """What failed once more, so that all is delivered but the messages at fault."""
        end = Offset(trouble.last + 1)
        if self._next < end:
            self._report(f"{self.spec.name}: offsets {self._next} to {trouble.last} are delivered one at a time")
            for part in self._parts(self._measure(end, U64_MAX)):
                if isinstance(part, Clear):
                    self._clear(part)
                else:
                    self._redeliver(part, end)
            self._commit(end, now=True)
        self._trouble_file.clear()
        self._trouble = None

    def _redeliver(self, stretch: Stretch, end: Offset) -> None:
        receipt = self._route.deliver_singly(stretch, self._promise, self._passing)
        if receipt is not None:
            self._put_aside(receipt["aside"])
            self._learn(Delivered(Counter(receipt["written"]), receipt["schemas"], receipt["news"]))
            self._acks.clear()
            if (refused := receipt["refused"]) is not None:
                self._commit(Offset(refused["offset"]), now=True)
                self._stop_at(refused, end)
        self._announce(stretch)

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

    def _put_aside(self, aside: list[Receipt]) -> None:
        if not aside:
            return
        self.stats.aside += len(aside)
        for refused in aside[:SHOWN]:
            what = TailraceError.decode(refused["error"]).what
            self._report(f"{self.spec.name}: offset {refused['offset']} {self.fate}: {what}")
        if len(aside) > SHOWN:
            self._report(f"{self.spec.name}: {len(aside) - SHOWN} more messages {self.fate}")
        if self.spec.on_error is OnError.DEAD_LETTER:
            self._log.append_messages(dead_letters(self.spec.name, aside))

    def _learn(self, delivered: Delivered) -> None:
        self.stats.written.update(delivered.written)
        for news in delivered.news:
            if news not in self._told:
                self._told.add(news)
                self._report(f"{self.spec.name}: {news}")
        if any(self._promise.schemas.get(name) != schema for name, schema in delivered.schemas.items()):
            self._promise.schemas |= delivered.schemas
            self._promise_file.write(self._promise)

    def _commit(self, end: Offset, *, now: bool = False) -> None:
        if self._session is None:
            raise TailraceError("log.closed", f"writer {self.spec.name} is not open", hint="open it first")
        if end > self._next:
            self._session.commit(end - 1)
            self.stats.passed += end - self._next
            self._next = end
        if PASSED < self._passing.rewound < self._next:
            self._session.flush()
            self._rewound.clear()
            self._passing = replace(self._passing, rewound=PASSED)
        self.stats.turns += 1
        self.stats.last_s = time.monotonic()
        if now:
            self._session.flush()

    def _read_passing(self, session: ConsumerSession) -> Passing:
        """What the consumer need not get, and what an operator wants it to get again."""
        ahead = {name: at for name, at in session.positions.by_namespace.items() if name and at >= self._next}
        rewound = self._rewound.read()
        upto = PASSED if rewound is None else int(rewound)
        return Passing(frozenset(session.positions.acknowledged), ahead, upto)
