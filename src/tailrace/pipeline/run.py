"""Running a pipeline: one stream per reader and per writer, watched until the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tailrace.deliver.delivery import Delivery
from tailrace.deliver.retrying import Retrying
from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.reader import LogReader
from tailrace.log.retention import Keep, retain
from tailrace.message import Offset
from tailrace.pipeline.failures import Failures
from tailrace.pipeline.leftout import LeftOut
from tailrace.pipeline.names import READING, RUN
from tailrace.pipeline.patience import Patience
from tailrace.pipeline.shutdown import Shutdown
from tailrace.source.capture import Capture
from tailrace.spark.beside import RUN_DIRECTORY
from tailrace.spark.late import LateSession
from tailrace.spark.process import ended, has_ended, while_it_lasts
from tailrace.spark.session import SparkConfig
from tailrace.spark.tasks import run_tasks
from tailrace.spark.turns import Turns
from tailrace.transform.python import PythonFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.pipeline.spec import PipelineSpec

LOOK_EVERY_S: Final = 0.1
RETAIN_EVERY_S: Final = 60.0


class Until(StrEnum):
    """When a run ends by itself."""

    STOPPED = "stopped"
    """Never."""
    ONCE = "once"
    """When everything that was in the source is delivered."""
    CAUGHT_UP = "caught up"
    """When at some moment nothing is left to read or to deliver."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run has done."""

    captured: dict[str, int]
    delivered: dict[str, dict[str, int]]
    """By writer and namespace."""
    end: Offset
    seconds: float
    errors: list[TailraceError] = field(default_factory=list)
    drained: bool = True
    """Whether all writers that did not fail have everything the log has."""


class Watcher:
    """What a run tells while it runs. This one keeps quiet."""

    def say(self, text: str) -> None:
        """Something worth a line has happened."""

    def began(self, running: Running) -> None:
        """Everything has been opened; `running` can be looked at from now on, at any time."""

    def look(self, running: Running) -> None:
        """Called a few times a second."""

    def ended(self, summary: Summary) -> None:
        """The last call."""


@dataclass(slots=True)
class Running:
    """The parts of a pipeline at work."""

    spec: PipelineSpec
    log: CommitLog
    capture: Capture
    deliveries: list[Delivery]
    streams: dict[str, Turns] = field(default_factory=dict)
    """By writer; the reader's is `READING`."""


def run(
    spec: PipelineSpec,
    until: Until = Until.STOPPED,
    *,
    watcher: Watcher | None = None,
    shutdown: Shutdown | None = None,
    session: Callable[[], SparkSession] | None = None,
    not_before: threading.Event | None = None,
    retry_hint: str = "run the pipeline again",
    is_attended: bool = False,
) -> Summary:
    """Run a pipeline until it ends or somebody asks for the end. Errors of single writers are in the summary.

    With `not_before` being caught up does not count before that event. One that `is_attended` waits for its operator
    when all writers have stopped, instead of ending.
    """
    watcher = watcher or Watcher()
    shutdown = shutdown or Shutdown()
    began = time.monotonic()
    config = LogConfig(segment_bytes=spec.segment_bytes, sync_every_s=spec.sync_every_s)
    make_parents(os.path.abspath(spec.log))
    with ExitStack() as stack:
        log = stack.enter_context(CommitLog.open(spec.log, config))
        directory = os.path.join(log.directory, RUN_DIRECTORY)
        with disk_errors("making a directory", directory):
            os.makedirs(directory, exist_ok=True)
        stack.enter_context(shutdown.listening(watcher.say, spec.shutdown_s))
        spark = session or _start(spec, directory, watcher, stack)
        runner = _Runner(spec, until, log, spark, directory, watcher, shutdown, not_before, retry_hint, is_attended)
        stack.callback(runner.close)
        if runner.open():
            runner.watch()
        summary = runner.summary(time.monotonic() - began)
    watcher.ended(summary)
    return summary


def make_parents(path: str) -> None:
    """The directories above the log, as durable as the log itself (I1)."""
    missing = []
    while not os.path.isdir(path := os.path.dirname(path)):
        missing.append(path)
    with disk_errors("making a directory for the log", path):
        for directory in reversed(missing):
            Disk().make_directory(directory)


def _start(spec: PipelineSpec, directory: str, watcher: Watcher, stack: ExitStack) -> Callable[[], SparkSession]:
    watcher.say("starting Spark")
    slots = (os.cpu_count() or 2) + 1 + len(spec.writes)
    own = any(isinstance(function, PythonFrame) for write in spec.writes for function in write.through)
    late = LateSession(SparkConfig(directory, spec.master, slots, spec.spark, own))
    stack.callback(late.stop)
    return late


class _Runner:
    def __init__(
        self,
        spec: PipelineSpec,
        until: Until,
        log: CommitLog,
        spark: Callable[[], SparkSession],
        directory: str,
        watcher: Watcher,
        shutdown: Shutdown,
        not_before: threading.Event | None,
        retry_hint: str,
        is_attended: bool,
    ) -> None:
        self._until = until
        self._directory = directory
        self._is_attended = is_attended
        self._spark = spark
        self._not_before = not_before
        self._counts_from_s: float | None = None
        """When it began to matter whether the source is read to its end."""
        self._failures = Failures(log.directory)
        self._failed_before = set(self._failures.read())
        """The parts that failed in an earlier run, and have done nothing since."""
        self._failed_now: set[str] = set()
        self._retained_s = time.monotonic()
        self._watcher = watcher
        self._shutdown = shutdown
        self._stop_reading = threading.Event()
        self._stop_writing = threading.Event()
        capture = Capture(
            spec.read.options,
            spec.read.namespace,
            log,
            lambda work, items: run_tasks(spark(), READING, work, items),
            stop=self._stop_reading,
            report=watcher.say,
            poll_s=spec.poll_s,
            parallel=spec.read.parallel,
            once=until is Until.ONCE,
            note_left_out=LeftOut(log.directory).note,
        )
        deliveries = [
            Delivery(write, log, spark, stop=self._stop_writing, report=watcher.say, retry_hint=retry_hint)
            for write in spec.writes
        ]
        self._running = Running(spec, log, capture, deliveries)
        self._reading = Turns(spark, READING, self._patiently("the source", capture), directory)
        self._writing = [self._turns_of(each) for each in deliveries]

    def _turns_of(self, delivery: Delivery) -> Turns:
        name = delivery.spec.name
        return Turns(self._spark, name, self._patiently(name, delivery), self._directory)

    def _patiently(self, called: str, worker: Capture | Delivery) -> Callable[[], bool]:
        """The turns of a part, with waiting where its end does not answer."""
        is_reader = isinstance(worker, Capture)
        patience = Patience(
            called,
            worker.turn,
            was_there=lambda: worker.has_answered,
            again=worker.reopen if isinstance(worker, Capture) else lambda: None,
            patience_s=self._running.spec.patience_s,
            stop=self._stop_reading if is_reader else self._stop_writing,
            report=self._watcher.say,
        )
        return patience.turn

    def open(self) -> bool:
        """Writers first: from then on the log keeps for them what is captured. False when somebody asks for the end
        while Spark starts: nothing was begun then."""
        for delivery in self._running.deliveries:
            with self._noting(delivery.spec.name):
                delivery.open()
            Retrying(self._log_directory, delivery.spec.name).take()  # it is what happens now
            self._say_where(delivery)
        with self._noting(READING):
            self._running.capture.open()
        if isinstance(self._spark, LateSession):
            while not self._spark.wait(LOOK_EVERY_S):
                if self._shutdown.asked.is_set():
                    return False
        self._running.streams = {turns.name: turns for turns in (self._reading, *self._writing)}
        with self._noting(RUN):
            for turns in self._running.streams.values():
                turns.start()
        self._failures.clear(RUN)
        self._watcher.began(self._running)
        return True

    def watch(self) -> None:
        """Until the end: by itself, by a signal, or because nothing can go on."""
        while not self._is_over():
            self._shutdown.asked.wait(LOOK_EVERY_S)
            self._look()
            if self._shutdown.asked.is_set():
                break
        self._drain()
        self._check_spark()

    def close(self) -> None:
        self._stop_reading.set()
        self._stop_writing.set()
        streams = self._running.streams.values()
        is_at_work = not all(turns.ended.is_set() for turns in streams)
        for turns in streams:
            turns.ended.set()
        if is_at_work:
            with while_it_lasts():
                self._spark().sparkContext.cancelAllJobs()
        for turns in streams:
            turns.stop()
        self._running.capture.close()
        for delivery in self._running.deliveries:
            delivery.close()

    def summary(self, seconds: float) -> Summary:
        running = self._running
        self._note_failures()
        self._failures.clear(*(name for name, turns in running.streams.items() if turns.error is None))
        end = running.log.next_offset
        live = [d for d, turns in zip(running.deliveries, self._writing, strict=True) if turns.error is None]
        return Summary(
            captured=dict(running.capture.stats.messages),
            delivered={d.spec.name: dict(d.stats.written) for d in running.deliveries},
            end=end,
            seconds=seconds,
            errors=[turns.error for turns in running.streams.values() if turns.error is not None],
            drained=all(d.next_offset >= (end if d.until is None else d.until) for d in live),
        )

    def _check_spark(self) -> None:
        if has_ended():
            with self._noting(RUN):
                raise ended()

    def _look(self) -> None:
        self._check_spark()
        for turns in self._running.streams.values():
            turns.look()
        for delivery, turns in zip(self._running.deliveries, self._writing, strict=True):
            if turns.error is not None:
                with suppress(TailraceError):  # what is not recorded is repeated
                    delivery.close()  # so that it does not look alive, and an operator can move it
        self._note_failures()
        self._retry()
        self._retain()
        self._watcher.look(self._running)

    def _retry(self) -> None:
        """Writers that have stopped go on when an operator says so."""
        for place, (delivery, turns) in enumerate(zip(self._running.deliveries, self._writing, strict=True)):
            name = delivery.spec.name
            if turns.error is None or self._shutdown.asked.is_set() or not Retrying(self._log_directory, name).take():
                continue
            self._watcher.say(f"writer {name} goes on, as somebody wants it to")
            turns.stop()
            try:
                delivery.open()
            except TailraceError as error:
                self._watcher.say(f"writer {name} cannot go on: {error}")
                continue
            self._failures.clear(name)
            self._failed_now.discard(name)
            self._writing[place] = self._running.streams[name] = self._turns_of(delivery)
            self._writing[place].start()

    @property
    def _log_directory(self) -> str:
        return self._running.log.directory

    @contextmanager
    def _noting(self, part: str) -> Iterator[None]:
        """Within it an error is one of this part."""
        try:
            yield
        except TailraceError as error:
            self._failures.note(part, error)
            raise

    def _note_failures(self) -> None:
        """Keep what has failed for whoever asks later, and forget it when the part has done something since."""
        for name, turns in self._running.streams.items():
            if turns.error is None:
                if name in self._failed_before and self._has_done_something(name):
                    self._failures.clear(name)
                    self._failed_before.discard(name)
            elif name not in self._failed_now:
                self._failures.note(name, turns.error)
                self._failed_now.add(name)

    def _has_done_something(self, part: str) -> bool:
        capture = self._running.capture
        if part == READING:
            return capture.is_idle or capture.stats.groups > 0
        return any(each.stats.turns > 0 for each in self._running.deliveries if each.spec.name == part)

    def _retain(self) -> None:
        """Remove what is older or more than is to be kept, as far as no writer needs it (I6)."""
        spec = self._running.spec
        is_wanted = spec.keep_bytes is not None or spec.keep_s is not None
        if not is_wanted or time.monotonic() - self._retained_s < RETAIN_EVERY_S:
            return
        self._retained_s = time.monotonic()
        try:
            removed = retain(spec.log, keep=Keep(spec.keep_bytes or 0, spec.keep_s or 0.0)).removed
        except TailraceError as error:  # somebody else is at it
            self._watcher.say(f"nothing was removed from the log: {error}")
            return
        for fate in removed:
            self._watcher.say(f"removed offsets {fate.base} to {fate.end - 1} from the log; nobody needs them")

    def _is_over(self) -> bool:
        if all(turns.ended.is_set() for turns in self._writing) and not self._is_attended:
            return True  # there is nobody to read for
        if self._reading.ended.is_set():
            return True
        return self._until is Until.CAUGHT_UP and self._is_caught_up()

    def _is_caught_up(self) -> bool:
        """Read the log's end first: what is captured after that does not count."""
        if self._not_before is not None and not self._not_before.is_set():
            return False
        if self._counts_from_s is None:
            self._counts_from_s = time.monotonic()
        running = self._running
        idle_s = running.capture.idle_s
        is_idle = idle_s is not None and idle_s >= self._counts_from_s  # an earlier look may have missed something
        end = running.log.next_offset
        going_on = [d for d, t in zip(running.deliveries, self._writing, strict=True) if not t.ended.is_set()]
        return is_idle and all(delivery.next_offset >= end for delivery in going_on)

    def _drain(self) -> None:
        """Stop reading; let the writers have what is in the log, but not for ever when somebody waits for the end."""
        asked_s = time.monotonic()
        self._stop_reading.set()
        self._reading.ended.wait(self._running.spec.shutdown_s)
        for delivery in self._running.deliveries:
            delivery.until = self._running.log.next_offset
        while not all(turns.ended.is_set() for turns in self._writing):
            self._look()
            if self._shutdown.asked.is_set():
                left_s = asked_s + self._running.spec.shutdown_s - time.monotonic()
                if left_s <= 0:
                    self._watcher.say("the time for a clean end is over; what is left is delivered next time")
                    return
            time.sleep(LOOK_EVERY_S)

    def _say_where(self, delivery: Delivery) -> None:
        """On start it is told from where it resumes, and what may be repeated (I4)."""
        end = LogReader(self._running.log.directory).next_offset
        behind = end - delivery.next_offset
        where = f"writer {delivery.spec.name}: resumes at offset {delivery.next_offset}"
        if delivery.next_offset == 0 and end == 0:
            self._watcher.say(f"writer {delivery.spec.name}: starts with an empty log")
        elif behind:
            self._watcher.say(
                f"{where}; {behind} messages of the log follow, those written but not recorded are repeated"
            )
        else:
            self._watcher.say(f"{where}; nothing is repeated")
