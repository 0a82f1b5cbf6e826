"""How a pipeline is, by what its log says: it is read while the pipeline runs, and when it does not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from tailrace.deliver.acks import Acks
from tailrace.deliver.deadletter import dead_letter_namespace
from tailrace.deliver.redelivery import OF_MESSAGES
from tailrace.deliver.trouble import Trouble, TroubleFile
from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers, State
from tailrace.log.lag import Lag, lag_behind
from tailrace.log.reader import LogReader
from tailrace.log.stat import ConsumerStat, LogStat, stat
from tailrace.pipeline.failures import Failure, Failures
from tailrace.pipeline.leftout import LeftOut
from tailrace.pipeline.names import READING, RUN
from tailrace.pipeline.spec import OnError
from tailrace.source.bookmark import load_progress

if TYPE_CHECKING:
    from tailrace.log.lock import Holder
    from tailrace.pipeline.spec import PipelineSpec, WriteSpec
    from tailrace.source.phase import TableProgress


class WriterState(StrEnum):
    """What a writer does."""

    NEW = "new"
    """It has not run yet."""
    RUNNING = "running"
    RETRYING = "retrying"
    """It runs, and delivers again what it failed at."""
    IDLE = "not running"
    STOPPED = "stopped"
    """It failed, and waits for somebody to help."""
    INVALIDATED = "invalidated"
    """What it needs next may be gone from the log."""
    EXPIRED = "expired"
    DAMAGED = "damaged"
    """Its offsets cannot be read."""


@dataclass(frozen=True, slots=True)
class NamespaceStatus:
    """One namespace of the source."""

    namespace: str
    phase: str
    rows: int | None
    """About how many rows its copy has; None when the source did not say."""
    rows_copied: int
    pieces: int
    pieces_copied: int


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """The reader."""

    adaptor: str
    where: str
    failure: Failure | None
    """How it failed last, unless it has read something since."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """By namespace: why the last run could not read it."""


@dataclass(frozen=True, slots=True)
class WriterStatus:
    """One writer."""

    name: str
    adaptor: str
    where: str
    state: WriterState
    position: int
    """The last offset up to which everything is delivered, -1 when nothing is."""
    lag: Lag
    seen_s_ago: float | None
    """The age of its last proof of life, None when there never was one."""
    trouble: Trouble | None
    """What it failed at."""
    failure: Failure | None
    """How it failed last, unless it has written something since."""
    invalidated: str | None
    """Why it cannot go on."""
    dead_letters: int
    """Messages put aside that are still in the log."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """A pipeline."""

    pipeline: str
    running: Holder | None
    """The process that runs it."""
    failure: Failure | None
    """Why the last run did not begin."""
    reader: ReaderStatus
    namespaces: tuple[NamespaceStatus, ...]
    writers: tuple[WriterStatus, ...]


def status(spec: PipelineSpec) -> PipelineStatus:
    """Look at a pipeline's log; nothing is changed, and neither source nor destinations are touched."""
    try:
        return status_of(spec, stat(spec.log))
    except TailraceError as error:
        if error.code != "log.not_found":
            raise
        return status_of(spec, None)


def status_of(spec: PipelineSpec, found: LogStat | None) -> PipelineStatus:
    """How a pipeline is, given its log as it was at one moment; None: it has none yet."""
    if found is None:
        reader = ReaderStatus(spec.read.adaptor, spec.read.options.where(), None)
        return PipelineStatus(spec.name, None, None, reader, (), tuple(_new(write) for write in spec.writes))
    failures = Failures(spec.log).read()
    tables = load_progress(LogReader(spec.log)).tables
    consumers = {consumer.name: consumer for consumer in found.consumers}
    return PipelineStatus(
        spec.name,
        found.writer,
        failures.get(RUN),
        ReaderStatus(spec.read.adaptor, spec.read.options.where(), failures.get(READING), LeftOut(spec.log).read()),
        tuple(_namespace(name, table) for name, table in sorted(tables.items())),
        tuple(
            _writer(write, consumers[write.name], found, failures.get(write.name))
            if write.name in consumers
            else _new(write, found)
            for write in spec.writes
        ),
    )


def _namespace(name: str, table: TableProgress) -> NamespaceStatus:
    done = table.pieces - len(table.missing())
    return NamespaceStatus(name, table.phase, table.rows, table.copied, table.pieces, done)


def _new(write: WriteSpec, found: LogStat | None = None) -> WriterStatus:
    """A writer that the log does not know will get everything there is."""
    lag = Lag(found.messages, found.bytes, 0.0) if found else Lag(0, 0, 0.0)
    position = found.oldest - 1 if found else -1
    return WriterStatus(
        write.name, write.adaptor, write.options.where(), WriterState.NEW, position, lag, None, None, None, None, 0
    )


def _writer(write: WriteSpec, consumer: ConsumerStat, found: LogStat, failure: Failure | None) -> WriterStatus:
    invalidated = None
    trouble = None
    consumers = Consumers(found.directory)
    if consumer.state != State.DAMAGED:
        known = consumers.get(write.name)
        invalidated = known.agreement.invalidated
        trouble = TroubleFile(found.directory, write.name).read()
        if trouble is not None and _is_over(trouble, consumer.position, known.positions.acknowledged):
            trouble = None
    if failure is not None and failure.error.code in OF_MESSAGES and trouble is None:
        failure = None  # an operator has got it over the messages at fault
    if consumer.state == State.INVALIDATED and invalidated is None:
        invalidated = "messages that it needs were removed from the log"
    singly = Acks(found.directory, write.name).take() if trouble is not None else None
    position, lag = consumer.position, consumer.lag
    if singly is not None and singly > position:
        position, lag = singly, lag_behind(consumers.view, singly, time.time())
    dead = found.namespaces.get(dead_letter_namespace(write.name))
    return WriterStatus(
        name=write.name,
        adaptor=write.adaptor,
        where=write.options.where(),
        state=_state(consumer, trouble, failure, found.writer, write.on_error),
        position=position,
        lag=lag,
        seen_s_ago=max(0.0, time.time() - consumer.seen_s) if consumer.seen_s else None,
        trouble=trouble,
        failure=failure,
        invalidated=invalidated,
        dead_letters=dead.messages if dead else 0,
    )


def _state(
    consumer: ConsumerStat, trouble: Trouble | None, failure: Failure | None, runs: Holder | None, on_error: OnError
) -> WriterState:
    if consumer.state != State.LIVE:
        return WriterState(consumer.state)
    if trouble is not None:
        is_old = runs is not None and trouble.at_s < datetime.fromisoformat(runs.since).timestamp()
        goes_on = is_old or on_error is not OnError.STOP or failure is None
        return WriterState.RETRYING if goes_on and consumer.in_use else WriterState.STOPPED
    if consumer.in_use:
        return WriterState.RUNNING
    return WriterState.STOPPED if failure is not None else WriterState.IDLE


def _is_over(trouble: Trouble, position: int, acknowledged: set[int]) -> bool:
    """Whether what failed was delivered, or acknowledged by an operator; its file stays until the writer runs."""
    if trouble.is_single:
        return trouble.first <= position or trouble.first in acknowledged
    return trouble.last <= position
