"""What a run would do, found out without changing anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers
from tailrace.log.lag import lag_behind
from tailrace.log.reader import LogReader
from tailrace.namespace import RESERVED
from tailrace.pipeline.spec import PipelineSpec, ReadSpec, WriteSpec
from tailrace.source.contract import left_out
from tailrace.source.phase import Phase

if TYPE_CHECKING:
    from tailrace.source.phase import TableProgress


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    """One namespace of the source."""

    namespace: str
    phase: str
    rows: int | None
    """About how many it has; None when the source does not say."""
    pieces: int
    """Pieces that are still to be copied."""
    key: tuple[str, ...]
    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """One writer."""

    name: str
    adaptor: str
    where: str
    namespaces: tuple[str, ...]
    resumes_at: int
    """The offset of the first message that it will get."""
    is_new: bool
    state: str
    messages_behind: int
    bytes_behind: int
    seconds_behind: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do."""

    pipeline: str
    log: str
    log_exists: bool
    log_end: int
    """The offset that the next message will get."""
    namespaces: tuple[NamespacePlan, ...]
    left_out: dict[str, str]
    """What the source has and cannot be read, each with the reason."""
    writers: tuple[WriterPlan, ...]


def plan(spec: PipelineSpec) -> Plan:
    """Ask the source what it has and the log how far everybody is."""
    consumers = _existing_log(spec.log)
    namespaces, unreadable = _source(spec.read, spec.writes, phases(spec.log) if consumers else {})
    writers = tuple(
        _writer(write, consumers, tuple(each.namespace for each in namespaces if write.name in each.writers))
        for write in spec.writes
    )
    end = consumers.view.head().next_offset if consumers else 0
    return Plan(spec.name, spec.log, consumers is not None, end, namespaces, unreadable, writers)


def phases(log_directory: str) -> Mapping[str, TableProgress]:
    """How far the source's namespaces are, by what the log says."""
    from tailrace.source.bookmark import load_progress

    return load_progress(LogReader(log_directory)).tables


def _existing_log(directory: str) -> Consumers | None:
    consumers = Consumers(directory)
    try:
        consumers.view.bases()
    except TailraceError as error:
        if error.code != "log.not_found":
            raise
        return None
    return consumers


def _source(
    read: ReadSpec, writes: tuple[WriteSpec, ...], known: Mapping[str, TableProgress]
) -> tuple[tuple[NamespacePlan, ...], dict[str, str]]:
    """The namespaces that are read, and those that cannot be."""
    reader = read.options.open()
    try:
        found = []
        for table in sorted(reader.tables(), key=lambda table: table.namespace):
            name = table.namespace
            if not _is_wanted(read, name):
                continue
            progress = known.get(name)
            pieces = len(reader.plan_copy(table)) if progress is None else len(progress.missing())
            writers = tuple(write.name for write in writes if write.namespace.search(name))
            phase = Phase.COPY if progress is None else progress.phase
            found.append(NamespacePlan(name, phase, table.rows, pieces, table.key, writers))
        return tuple(found), {name: why for name, why in left_out(reader).items() if _is_wanted(read, name)}
    finally:
        reader.close()


def _is_wanted(read: ReadSpec, namespace: str) -> bool:
    return not namespace.startswith(RESERVED) and read.namespace.search(namespace) is not None


def _writer(write: WriteSpec, consumers: Consumers | None, namespaces: tuple[str, ...]) -> WriterPlan:
    is_new = consumers is None or write.name not in consumers.names()
    position, state = -1, "new"
    if consumers is not None and not is_new:
        found = consumers.get(write.name)
        position, state = consumers.position(found), str(found.state)
    elif consumers is not None:
        position = consumers.view.bases()[0] - 1
    lag = lag_behind(consumers.view, position, time.time()) if consumers else None
    return WriterPlan(
        name=write.name,
        adaptor=write.adaptor,
        where=write.options.where(),
        namespaces=namespaces,
        resumes_at=position + 1,
        is_new=is_new,
        state=state,
        messages_behind=lag.messages if lag else 0,
        bytes_behind=lag.bytes if lag else 0,
        seconds_behind=lag.seconds if lag else 0.0,
    )
