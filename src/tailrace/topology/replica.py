"""A replica: keeps a copy of a log up with one source at a time, and changes the source when that is needed.

    connect → match → (cut) → copy → follow, and back to connect whenever the connection is lost

When no source has what the copy needs next, that is told as an alarm, and everything is copied anew where that is
allowed.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.log.standing import Standing
from tailrace.message import Offset
from tailrace.relay.applier import Source
from tailrace.topology.copied import CopiedLog, is_begun
from tailrace.topology.following import Arrival, Following
from tailrace.topology.matching import ANY, Meeting, Rollback
from tailrace.topology.request import Extent

_AGAIN_S: Final = 1.0
_GONE: Final = "topology.gone"
_LACKING: Final = (_GONE, "topology.older", "topology.rollback")
"""Errors of sources that answer and do not have what is needed next."""
_INVALID: Final = ("topology.diverged", "topology.rollback", "topology.other_log")
"""Errors of sources whose log does not continue the copy."""


class State(StrEnum):
    """What a replica does."""

    CONNECT = "connect"
    MATCH = "match"
    COPY = "copy"
    """It gets what it missed."""
    FOLLOW = "follow"
    STOPPED = "stopped"
    """An operator wants it so."""
    NO_SOURCE = "no viable source"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a replica behaves."""

    beat_s: float = 1.0
    """How often a source is heard of; after four times as long it is given up."""
    keep_s: float = 10.0
    """How often the source is told up to where its log is not needed."""
    waits: bool = True
    """Whether sources send what comes; otherwise they are asked every `poll_s`."""
    poll_s: float = 0.05
    max_rollback: Rollback = ANY
    alarm_after: int = 10
    """After so many rounds in which no source had what is needed, that is told."""
    may_recopy: bool = False
    """Whether everything is copied anew then."""
    ends_when_invalid: bool = False
    """Whether it ends when a source's log does not continue the copy, instead of going back to where they are equal."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How a replica is doing."""

    state: State = State.CONNECT
    source: str | None = None
    error: TailraceError | None = None
    next_offset: Offset = Offset(0)
    """Of the copy, durably."""
    source_offset: Offset | None = None
    behind_bytes: int | None = None
    heard_s: float | None = None
    """When the source was last heard of, by the monotonic clock."""
    top_s: float | None = None
    """When the log itself was last heard of, through the source, by the monotonic clock."""
    copied_bytes: int = 0
    """Since the start."""
    thrown_bytes: int = 0
    """Since the start: what was not what the source had."""


class Replica:
    """One copy. `run` is for one thread; `progress` may be read by any."""

    def __init__(
        self,
        directory: str,
        name: str,
        sources: Callable[[], Sequence[Source]],
        settings: Settings,
        report: Callable[[str], None],
    ) -> None:
        """`sources` says whom to follow, the best first; it is asked whenever one is needed."""
        self.directory = directory
        self.settings = settings
        self.progress = Progress()
        self._name = name
        self._sources = sources
        self._report = report
        self._stopping = threading.Event()
        self._changing = threading.Event()
        self._log: CopiedLog | None = None
        self._misses = 0
        self._last_source: Source | None = None
        self._kept_s = 0.0
        """When a source was last told what is needed."""
        self._is_paused = threading.Event()
        self.failure: TailraceError | None = None
        """Why it has ended by itself."""
        self.itself = ""
        """As whom it serves the copy."""
        self.above: tuple[str, ...] = ()
        """From whom the copy comes: its source, the source of that one, and so on."""
        self.trace: Callable[[str], None] = lambda _: None
        """Told more than people usually want to know."""
        self.connected: Callable[[Source], None] = lambda _: None
        """Told which source is followed now; may refuse."""
        self.failed: Callable[[Source], None] = lambda _: None
        """Told of a source that could not be followed, other than by the will of the registry."""
        self.floor: Callable[[], Offset | None] = lambda: None
        """The lowest offset that copies of this copy need."""
        self.cutting: Callable[[Offset], AbstractContextManager[None]] = lambda _: nullcontext()
        """Entered while what is behind an offset is thrown away: whoever has it lets go of it first, durably."""

    def run(self) -> None:
        """Until `stop`."""
        try:
            while not self._stopping.is_set():
                self._changing.clear()
                if self._is_paused.is_set():
                    self._tell(state=State.STOPPED, source=None, behind_bytes=None)
                    self._stand_by()
                else:
                    self._round()
                self._stopping.wait(_AGAIN_S * random.uniform(0.5, 1.0))  # noqa: S311  not all at once
        finally:
            if self._log is not None:
                self._log.close()

    def stop(self) -> None:
        self._stopping.set()

    def pause(self, is_paused: bool) -> None:
        """Copy nothing for a while, or go on."""
        if is_paused != self._is_paused.is_set():
            (self._is_paused.set if is_paused else self._is_paused.clear)()
            self._changing.set()

    def change_source(self) -> None:
        """Leave the source, and look for the best one again."""
        self._changing.set()

    def _stand_by(self) -> None:
        """Who is stopped still needs what comes next: the last source keeps it."""
        source, log = self._last_source, self._log
        if source is None or log is None or time.monotonic() - self._kept_s < self.settings.keep_s:
            return
        self._kept_s = time.monotonic()
        with suppress(TailraceError), Following(source, self._name, beat_s=self.settings.beat_s) as following:
            following.keep(self._needed(log))

    def _round(self) -> None:
        """Try the sources in turn until one was followed for a while."""
        errors: list[TailraceError] = []
        found = list(self._sources())
        for source in found:
            if self._stopping.is_set():
                return
            error = self._try(source)
            if error is None:
                return
            if error.code in _INVALID and self.settings.ends_when_invalid:
                self._fail(error)
                return
            self._tell(state=State.CONNECT, error=error)
            self._report(f"source {source.name}: {error}")
            errors.append(error)
            if error.code != "topology.refused":
                self.failed(source)
        if errors and all(error.code in _LACKING for error in errors):
            self._miss(may_recopy=all(error.code == _GONE for error in errors))

    def _try(self, source: Source) -> TailraceError | None:
        """Follow a source for as long as that goes; says why it ended, unless that was wished."""
        try:
            self._follow(source)
        except TailraceError as error:
            return error
        except Exception as error:  # noqa: BLE001  whatever it is, the replica tells it and tries again
            what = f"copying failed: {type(error).__name__}: {error}"
            return TailraceError("relay.failed", what, hint="it is tried again; please report it")
        return None

    def _fail(self, error: TailraceError) -> None:
        self._tell(error=error)
        self.failure = error
        self._stopping.set()

    def _miss(self, *, may_recopy: bool) -> None:
        """No source has what is needed next. Only where it is gone everywhere a new copy helps: one that is of an older
        generation, or would cost more than may be thrown away, is for people to decide."""
        self._misses += 1
        if self._misses < self.settings.alarm_after:
            return
        if self._misses == self.settings.alarm_after:
            self._report("no viable source: none has what this copy needs next; a full copy may be needed")
        self._tell(state=State.NO_SOURCE)
        if may_recopy and self.settings.may_recopy:
            self._begin_anew()

    def _begin_anew(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        self._report("everything is copied anew")
        with self.cutting(Offset(0)):
            shutil.rmtree(self.directory)
            self._tell(next_offset=Offset(0), source_offset=None, behind_bytes=None)
        self._misses = 0

    def _follow(self, source: Source) -> None:
        settings = self.settings
        self._tell(state=State.CONNECT, source=source.name, error=None)
        with Following(source, self._name, beat_s=settings.beat_s) as following, self._below():
            extent = following.extent()
            self._look_above(source, extent)
            if self._log is None:
                if not is_begun(self.directory):
                    CopiedLog.begin(self.directory, Offset(extent.first), extent.log, Standing(extent.generation))
                self._log = CopiedLog.open(self.directory)
            log = self._log
            self._tell(state=State.MATCH, next_offset=log.durable_offset)
            following.keep(self._needed(log))
            try:
                self._meet(following, log, extent)
                self.connected(source)
            except TailraceError:
                following.leave()  # or the source would wait to hear of a copy that it never had
                raise
            log.rise(extent.generation)
            self._last_source = source
            self._misses = 0
            self._tell(state=State.COPY)
            self.trace(f"{source.name} is followed from offset {log.next_offset} on")
            self._pull(following, log, extent)
            self.trace(f"{source.name} is followed no more, at offset {log.next_offset}")
            if self._is_over():
                following.leave()

    @contextmanager
    def _below(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.above = ()

    def _look_above(self, source: Source, extent: Extent) -> None:
        """Two copies that follow each other would both be content, and get nothing."""
        if self.itself in extent.above:
            what = f"{source.name} copies this copy, or one that does"
            raise TailraceError("topology.cycle", what, hint="it is tried again; name a source that is above both")
        self.above = tuple(extent.above)

    def _meet(self, following: Following, log: CopiedLog, extent: Extent) -> None:
        """Go back to where the copy is what the source has."""
        source, settings = following.source, self.settings
        log.forget_rest()
        self.trace(f"{source.name} has {extent.first} to {extent.next_offset}, this copy {log.next_offset}")
        meeting = following.meet(log, extent, settings.max_rollback)
        if meeting is None:
            what = (
                f"the source begins at offset {extent.first}, and has not what this copy has before {log.next_offset}"
            )
            raise TailraceError("topology.gone", what, hint="follow another source, or copy everything anew")
        if meeting.spot == log.spot:
            return
        if settings.ends_when_invalid:
            raise _diverged(source, meeting)
        with self.cutting(meeting.next_offset):
            aside = log.cut(meeting.spot)
        thrown = self.progress.thrown_bytes + meeting.rollback_bytes
        self._tell(thrown_bytes=thrown, next_offset=log.durable_offset)
        self._report(f"{meeting.rollback_bytes} bytes were not what {source.name} has, and are in {aside}")

    def _pull(self, following: Following, log: CopiedLog, extent: Extent) -> None:
        self._kept_s = time.monotonic()
        while not self._is_over():
            waits = self.settings.waits
            for arrival in following.pull(log, extent, waits=waits, is_over=partial(self._is_pull_over, waits)):
                self._note(arrival)
                if time.monotonic() - self._kept_s >= self.settings.keep_s:
                    self._kept_s = time.monotonic()
                    following.keep(self._needed(log))
                    self._look_above(following.source, following.extent())
            if waits and self.settings.waits:
                return  # the source ended it
            self._wait_to_poll()

    def _is_pull_over(self, waits: bool) -> bool:
        return self._is_over() or self.settings.waits is not waits

    def _wait_to_poll(self) -> None:
        """In steps, since all of it may change meanwhile."""
        begun_s = time.monotonic()
        while (rest_s := begun_s + self.settings.poll_s - time.monotonic()) > 0 and not self._is_over():
            self._stopping.wait(min(rest_s, _AGAIN_S))

    def _needed(self, log: CopiedLog) -> Offset:
        """The lowest offset that this copy and those of it still need."""
        floor = self.floor()
        return log.durable_offset if floor is None else min(floor, log.durable_offset)

    def _note(self, arrival: Arrival) -> None:
        state = State.COPY if arrival.behind_bytes else State.FOLLOW
        self._tell(
            state=state,
            next_offset=arrival.next_offset,
            source_offset=arrival.source_offset,
            behind_bytes=arrival.behind_bytes,
            heard_s=time.monotonic(),
            top_s=time.monotonic() - arrival.age_s,
            copied_bytes=self.progress.copied_bytes + arrival.came_bytes,
        )

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._changing.is_set() or self._is_paused.is_set()

    def _tell(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)


def _diverged(source: Source, meeting: Meeting) -> TailraceError:
    what = f"{source.name} has another log than this copy from offset {meeting.next_offset} on"
    hint = "turn physrep_exit_on_invalid_logstream off to go back to there, or follow another source"
    return TailraceError("topology.diverged", f"{what}, which are {meeting.rollback_bytes} bytes", hint=hint)
