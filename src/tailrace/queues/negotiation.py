"""Negotiation: how a session goes on, by what the sink has and what the source still has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tailrace.errors import TailraceError
from tailrace.queues.wire import Standing


class Course(StrEnum):
    """What a session does next."""

    RESUME = "resume"
    """Send entries from where the sink is."""
    WAIT = "wait"
    """The sink puts a snapshot in place."""
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Source:
    """What a source knows about a session."""

    log: str
    acknowledged: int
    """The last place that the sink has acknowledged; -1 when it never has."""
    last_enqueued: int
    """The queue id of the last entry for this sink, whether it is still in the log or not; -1 when there was none."""
    first_kept: int
    """All entries for this sink from this place on are in the log."""
    end: int
    """Where the log ends."""
    takes_snapshots: bool
    is_forced: bool = False
    """Whether somebody wants a snapshot, and it is not done."""


def decide(source: Source, sink: Standing) -> Course:
    """1. Wait while a snapshot is put in place. 2. A snapshot that somebody wants, or that a sink needs which knows
    nothing, or knows another log, or more than this one has, or has lost what it had acknowledged, or lacks entries
    that are gone here. 3. Else go on: a sink for which nothing came is never behind."""
    if sink.is_applying:
        return Course.WAIT
    is_ahead = sink.log == source.log and sink.position > source.end
    if not source.takes_snapshots:
        if is_ahead:
            raise _ahead(source, sink)
        return Course.RESUME
    if source.is_forced or sink.log != source.log or sink.position < 0 or sink.applied is None:
        return Course.SNAPSHOT
    if is_ahead or sink.position < source.acknowledged:
        return Course.SNAPSHOT
    has_all = source.last_enqueued < sink.position or sink.position >= source.first_kept
    return Course.RESUME if has_all else Course.SNAPSHOT


def _ahead(source: Source, sink: Standing) -> TailraceError:
    what = f"the destination has everything before {sink.position}, and the log here ends at {source.end}: it is older"
    hint = "without snapshots nobody knows what it lacks: move the directory `queues` of this site away to begin anew"
    return TailraceError("queue.ahead", what, hint=hint)
