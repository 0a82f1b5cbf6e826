"""Pulling: a log's bytes for those who copy it, from its files as they are. Only what is on disk is given away, so that
no copy ever has what its source loses in a power cut."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold
from tailrace.log.consumers import Consumers, State
from tailrace.log.head import LogHead
from tailrace.log.identity import identity_of
from tailrace.log.offsets import WHOLE_LOG
from tailrace.log.segment import Segment, list_segments, segment_name
from tailrace.log.session import ConsumerSession
from tailrace.log.standing import standing_of
from tailrace.log.view import LogView
from tailrace.log.watch import Watch
from tailrace.message import Offset
from tailrace.relay.heartbeat import SILENCE
from tailrace.relay.holds import REPLICA, Holds
from tailrace.topology.copied import is_begun
from tailrace.topology.pace import Pace
from tailrace.topology.request import HOPS_MAX, Extent, Keep, Leave, Match, Matched, Piece, Pull


@dataclass(frozen=True, slots=True)
class Bytes:
    """Some bytes of a segment, and where they are."""

    piece: Piece
    raw: bytes


class Pulling:
    """Serves one log directory. Threads may share it."""

    def __init__(
        self,
        directory: str,
        holds: Holds,
        *,
        fanout: Callable[[], int],
        beat_s: float,
        hold: Hold | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fanout` says how many may copy at the same time; at least every `beat_s` each hears of it. `hold` says how
        much of the log is kept for one."""
        self._hold = hold
        self._directory = directory
        self._holds = holds
        self._consumers = Consumers(directory)
        self._fanout = fanout
        self._beat_s = beat_s
        self._clock = clock
        self._turn = threading.Lock()
        self._pulling: dict[str, int] = {}
        """By the copy's name: which of its connections is the last, while it lasts."""
        self._left_s: dict[str, float] = {}
        """When copies were last heard of that pull now and then."""
        self._heard_s: dict[str, float] = {}
        """When each copy last asked for something."""
        self._connections = count()
        self.run: Final = secrets.token_hex(8)
        """Tells this server from all others."""
        self.above: Callable[[], Sequence[str]] = tuple
        """Where the log comes from, if it is a copy: its source, the source of that one, and so on."""
        self.age_s: Callable[[], float] = lambda: 0.0
        """How long ago the log itself was heard of, if this is a copy."""
        self.sent_bytes = 0

    @property
    def copies(self) -> list[str]:
        """Who copies, now or again and again."""
        with self._turn:
            return sorted(self._present())

    def heard(self) -> dict[str, float]:
        """By the name of each copy that is served: how many seconds ago it was heard of. After a restart only of those
        that came again."""
        kept = set[str]()
        with suppress(FileNotFoundError):  # a copy that is thrown away serves nobody
            kept = {name.removeprefix(REPLICA) for name in self._consumers.names() if name.startswith(REPLICA)}
        now_s = self._clock()
        with self._turn:
            self._heard_s = {name: at_s for name, at_s in self._heard_s.items() if name in kept}
            return {name: now_s - at_s for name, at_s in self._heard_s.items()}

    def extent(self) -> Extent:
        view = self._view()
        head = view.head()
        return Extent(
            log=identity_of(self._directory),
            generation=standing_of(self._directory).generation,
            first=view.bases()[0],
            base=head.base,
            position=head.durable,
            next_offset=head.next_offset,
            edition=self._edition(),
            above=[self.run, *self.above()][:HOPS_MAX],
        )

    def match(self, request: Match) -> Matched:
        """What is at some places."""
        return Matched(digests=[self._digest(each.base, each.position, each.size) for each in request.places])

    def keep(self, request: Keep) -> None:
        """Hold the log for a copy that needs what comes from an offset on. The message before is held, too: by it the
        copy is matched. Only forward: what was let go may be gone. Whoever would not be served is not held for."""
        name = REPLICA + request.name
        with self._turn:
            self._check_room(request.name)
            self._heard_s[request.name] = self._clock()
        begin = max(0, request.offset - 1)
        is_known = name in self._consumers.names()
        found = self._consumers.get(name) if is_known else None
        if found is None or found.state is State.INVALIDATED:
            if found is not None and begin <= found.positions.of(WHOLE_LOG) + 1:
                return  # it was past its cap there, and still is
            end = self._view().head().next_offset
            self._holds.keep(name, Offset(max(min(begin, end), list_segments(self._directory)[0])))
            if self._hold is not None:
                self._consumers.agree_on_hold(name, self._hold)
            return
        self._holds.show_life(name)
        with suppress(TailraceError), ConsumerSession(self._consumers, name) as session:  # else the next time
            if begin > session.resume_offset:
                session.commit(begin - 1)

    def leave(self, request: Leave) -> None:
        """It is not expected any more, though its log is kept for a while: it may come back."""
        with self._turn:
            self._heard_s.pop(request.name, None)

    def pull(self, request: Pull, is_over: Callable[[], bool]) -> Generator[Bytes]:
        """The bytes from a place on; whoever asks again under the same name takes over."""
        if request.log != identity_of(self._directory):
            what = "the copy is of another log"
            raise TailraceError("topology.other_log", what, hint="copy this one into a directory of its own")
        mine = self._enter(request.name)
        try:
            yield from self._bytes(request, lambda: is_over() or self._pulling.get(request.name) != mine)
        finally:
            with self._turn:
                if self._pulling.get(request.name) == mine:
                    del self._pulling[request.name]
                    self._left_s[request.name] = time.monotonic()

    def _check_room(self, name: str) -> None:
        """In the caller's turn."""
        others = len(self._present() - {name})
        if others >= self._fanout():
            what = f"{others} others copy this log already, as many as it serves"
            raise TailraceError("topology.full", what, hint="copy one of the copies")

    def _enter(self, name: str) -> int:
        with self._turn:
            self._check_room(name)
            self._heard_s[name] = self._clock()
            self._pulling[name] = next(self._connections)
            return self._pulling[name]

    def _present(self) -> set[str]:
        since_s = time.monotonic() - SILENCE * self._beat_s
        self._left_s = {name: left_s for name, left_s in self._left_s.items() if left_s > since_s}
        return {*self._pulling, *self._left_s}

    def _bytes(self, request: Pull, is_over: Callable[[], bool]) -> Iterator[Bytes]:
        view = self._view()
        base, position = Offset(request.base), request.position
        generation = standing_of(self._directory).generation
        told_s = 0.0
        pace = Pace(self._beat_s)
        with Watch(self._directory) as watch:
            while not is_over():
                head = view.head()
                with self._open(base) as segment:
                    limit = head.durable if base == head.base else segment.size()
                    if position > limit:
                        raise _beyond(base, position)
                    while position < limit:
                        begin = position
                        raw = segment.bytes_at(begin, min(pace.piece_bytes, limit - begin))
                        self._check_edition(request)
                        position = begin + len(raw)
                        self.sent_bytes += len(raw)
                        told_s = time.monotonic()
                        yield Bytes(self._piece(base, begin, head, generation, limit - position), raw)
                        pace.note(len(raw), time.monotonic() - told_s)
                        if is_over():
                            return
                self._check_edition(request)
                following = view.base_after(base) if base < head.base else None
                if following is not None:
                    base, position = following, 0
                    continue
                if not request.waits or time.monotonic() - told_s >= self._beat_s:
                    told_s = time.monotonic()
                    yield Bytes(self._piece(base, position, head, generation, 0), b"")
                if not request.waits:
                    return
                watch.wait(max(0.0, told_s + self._beat_s - time.monotonic()))

    def _view(self) -> LogView:
        if not is_begun(self._directory):
            what = "the source is a copy that has nothing yet, or is copied anew"
            raise TailraceError("topology.nothing_yet", what, hint="it is asked again")
        return LogView(self._directory)

    def _edition(self) -> str:
        """A server that begins anew may serve what somebody has put there meanwhile."""
        return self.run + standing_of(self._directory).edition

    def _check_edition(self, request: Pull) -> None:
        """After bytes were read, before they are given away: a cut is told before anything is written in its place."""
        if request.edition != self._edition():
            raise TailraceError(
                "topology.mismatch", "the log may have been cut since it was matched", hint="it is matched again"
            )

    def _piece(self, base: int, position: int, head: LogHead, generation: int, rest: int) -> Piece:
        behind = rest
        if base < head.base:
            later = (each for each in list_segments(self._directory) if base < each < head.base)
            behind += sum(self._size(each) for each in later) + head.durable
        return Piece(
            base=base,
            position=position,
            next_offset=head.next_offset,
            behind_bytes=behind,
            generation=generation,
            age_s=self.age_s(),
        )

    def _size(self, base: int) -> int:
        try:
            return os.stat(os.path.join(self._directory, segment_name(base))).st_size
        except FileNotFoundError:
            return 0

    def _open(self, base: Offset) -> Segment:
        try:
            return Segment(self._directory, base)
        except FileNotFoundError:
            raise _beyond(base, 0) from None

    def _digest(self, base: int, position: int, size: int) -> str:
        head = self._view().head()
        try:
            with Segment(self._directory, Offset(base)) as segment:
                end = head.durable if base == head.base else segment.size()
                if position + size > end:
                    return ""
                return hashlib.sha256(segment.bytes_at(position, size)).hexdigest()
        except FileNotFoundError:
            return ""


def _beyond(base: int, position: int) -> TailraceError:
    what = f"the log has nothing at byte {position} of {segment_name(base)}"
    return TailraceError("topology.mismatch", what, hint="it is matched again")
