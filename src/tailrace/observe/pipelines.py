"""A pipeline as the status model has it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tailrace.observe.logs import LogLook, consumers_of, log_part, namespaces_of
from tailrace.observe.model import Health, Kind, Lag, NamespacePart, Overview, Part, Stuck, Wrong
from tailrace.pipeline.status import PipelineStatus, WriterState, WriterStatus, status_of
from tailrace.source.bookmark import CONSUMER as CAPTURE

if TYPE_CHECKING:
    from tailrace.gauge import Gauge
    from tailrace.log.stat import LogStat
    from tailrace.pipeline.failures import Failure
    from tailrace.pipeline.spec import PipelineSpec

_HEALTH = {
    WriterState.NEW: Health.WAITING,
    WriterState.RUNNING: Health.GOOD,
    WriterState.RETRYING: Health.TROUBLED,
    WriterState.IDLE: Health.WAITING,
}
_LEFT_OUT_MAX = 20
"""So many namespaces that are left out are named."""
_LEFT_OUT_CURE = "mend what it says (tailrace doctor tells how), or do without it: `namespace` of `read`"


def overview_of_pipeline(
    spec: PipelineSpec, slot: Gauge[int] | None = None, log_look: LogLook | None = None
) -> Overview:
    """Look at a pipeline's log; nothing is changed. Only the gauge asks the source, and nobody waits for it."""
    log = (log_look or LogLook(spec.log)).stat()
    found = status_of(spec, log)
    at_s = time.time()
    steps = {write.name: tuple(type(function).__name__.lower() for function in write.through) for write in spec.writes}
    writers = tuple(_writer(each, spec.log, at_s, steps.get(each.name, ())) for each in found.writers)
    others = () if log is None else tuple(consumers_of(log, without={each.name for each in found.writers}))
    seen_s_ago = next((each.seen_s_ago for each in others if each.name == CAPTURE), None)
    failure = _wrong(found.failure, at_s)
    return Overview(
        name=found.pipeline,
        what="pipeline",
        at_s=at_s,
        is_running=found.running is not None,
        runs_as="" if found.running is None else str(found.running),
        log=None if log is None else log_part(log),
        namespaces=() if log is None else tuple(_namespaces(found, log)),
        parts=(_reader(found, log, at_s, seen_s_ago, None if slot is None else slot.read()), *writers, *others),
        wrong=() if failure is None else (failure,),
    )


def look_at_pipeline(spec: PipelineSpec) -> Callable[[], Overview]:
    """How to look, again and again."""
    from tailrace.observe.slots import slot_gauge

    return partial(overview_of_pipeline, spec, slot_gauge(spec), LogLook(spec.log))


def _namespaces(found: PipelineStatus, log: LogStat) -> list[NamespacePart]:
    phases = {each.namespace: each for each in found.namespaces}
    known = {each.name: each for each in namespaces_of(log)}
    for name, told in phases.items():
        known[name] = replace(
            known.get(name, NamespacePart(name, 0, 0, -1)),
            phase=told.phase,
            rows=told.rows,
            rows_copied=told.rows_copied,
            pieces=told.pieces,
            pieces_copied=told.pieces_copied,
        )
    return sorted(known.values(), key=lambda part: part.name)


def _reader(
    found: PipelineStatus, log: LogStat | None, at_s: float, seen_s_ago: float | None, slot_bytes: int | None
) -> Part:
    wrong = _wrong(found.reader.failure, at_s)
    health = Health.BAD if wrong is not None else Health.GOOD if found.running else Health.WAITING
    state = "failed" if wrong is not None else "running" if found.running else "not running"
    if wrong is None and (wrong := _left_out(found.reader.left_out)) is not None:
        health = Health.TROUBLED
    return Part(
        Kind.READER,
        found.reader.adaptor,
        found.reader.where,
        state,
        health,
        position=None if log is None else log.next_offset - 1,
        seen_s_ago=seen_s_ago,
        wrong=wrong,
        more={
            "tables": len(found.namespaces),
            "pieces copied": sum(each.pieces_copied for each in found.namespaces),
            "pieces": sum(each.pieces for each in found.namespaces),
            "left out": len(found.reader.left_out),
            "slot bytes": slot_bytes,
        },
    )


def _left_out(found: Mapping[str, str]) -> Wrong | None:
    """What the source has and nobody gets."""
    if not found:
        return None
    told = [f"{name} is left out: {why}" for name, why in sorted(found.items())[:_LEFT_OUT_MAX]]
    more = [f"and {len(found) - len(told)} more"] * (len(found) > len(told))
    return Wrong("source.left_out", "; ".join((*told, *more)), _LEFT_OUT_CURE)


def _writer(found: WriterStatus, log: str, at_s: float, steps: tuple[str, ...]) -> Part:
    wrong, trouble = _wrong(found.failure, at_s), found.trouble
    if found.invalidated is not None:  # whatever it failed at before: neither a retry nor an acknowledgement helps now
        cure = f"tailrace offset delete {found.name} --log {shlex.quote(log)}\nthen run it again"
        wrong = Wrong("consumer.invalidated", found.invalidated, cure)
        trouble = None
    stuck = None
    if trouble is not None:
        stuck = Stuck(
            trouble.first, trouble.last, trouble.error, max(0.0, at_s - trouble.at_s), is_single=trouble.is_single
        )
    return Part(
        Kind.WRITER,
        found.name,
        f"{found.adaptor} {found.where}",
        str(found.state),
        _HEALTH.get(found.state, Health.BAD),
        found.position,
        Lag.of(found.lag),
        seen_s_ago=found.seen_s_ago,
        wrong=wrong,
        stuck=stuck,
        steps=steps,
        more={"dead letters": found.dead_letters},
    )


def _wrong(failure: Failure | None, at_s: float) -> Wrong | None:
    return None if failure is None else Wrong.of(failure.error, max(0.0, at_s - failure.at_s))
