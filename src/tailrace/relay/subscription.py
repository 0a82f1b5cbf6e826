"""A subscription: one peer that follows a node's log, from its first request to its end.

What was sent is remembered until the peer has acknowledged it; only then the log may let go of it (I6).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from tailrace.errors import TailraceError
from tailrace.log.lag import Lag, lag_behind
from tailrace.log.session import ConsumerSession
from tailrace.log.view import LogView
from tailrace.message import Lsn, NodeId, Offset, now
from tailrace.relay.heartbeat import HEARTBEAT_S, SILENCE
from tailrace.relay.outgoing import Frame, Outgoing, Wish
from tailrace.relay.vclock import LOCAL, Vclock

if TYPE_CHECKING:
    from tailrace.log.consumers import Consumers
    from tailrace.relay.journal import Journal

PREFIX: Final = "relay-"
"""Of the consumers of peers."""


def consumer_name(node: int) -> str:
    return f"{PREFIX}{node:016x}"


@dataclass(frozen=True, slots=True)
class _Sent:
    """A group that was sent: what the peer has after it, and where in the log it ends."""

    vclock: Vclock
    end: Offset


class Subscription:
    """What one peer gets and acknowledges."""

    def __init__(
        self,
        journal: Journal,
        consumers: Consumers,
        name: str,
        wish: Wish,
        vclock: Vclock,
        *,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.session = secrets.token_hex(8)
        """Under which the peer acknowledges what comes."""
        self._silence_s = SILENCE * heartbeat_s
        self.is_anonymous = wish.peer == LOCAL
        """Whether the peer only reads; what it has counts for nobody else."""
        self._has_acknowledged = False
        self.here = journal.vclock
        """How far the node was when the peer came: with this it is as far as its source was then."""
        self.acknowledged = vclock
        self.acknowledged_s = time.monotonic()
        self.name = name
        self._journal = journal
        self._wish = wish
        self._view = LogView(journal.log.directory)
        self._session = ConsumerSession(consumers, name)
        try:
            self._outgoing = Outgoing(self._view, wish, vclock, self.here)
        except BaseException:
            self._session.close()
            raise
        self.place = self._outgoing.next_offset
        """The peer has everything before."""
        self._waiting: deque[_Sent] = deque()
        self._lock = threading.Lock()
        self._failure: TailraceError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def sent(self) -> Vclock:
        return self._outgoing.vclock

    @property
    def behind(self) -> int:
        """How many messages the peer does not have yet."""
        return sum(max(0, lsn - self.acknowledged[origin]) for origin, lsn in self._wanted())

    def lag(self) -> Lag:
        """How far the peer is behind, as the log is now. For the thread that takes the groups."""
        behind = self.behind
        found = lag_behind(self._view, self.place - 1, now() / 1e6) if behind else Lag(0, 0, 0.0)
        return Lag(behind, found.bytes, found.seconds)

    def groups(self) -> Iterator[list[Frame]]:
        """What there is for the peer now."""
        return (group for group in self.steps() if group)

    def steps(self) -> Iterator[list[Frame]]:
        """Like `groups`, with an empty one now and then while a large one is gathered."""
        if self._failure is not None:
            raise self._failure
        end = self._journal.end
        for group in self._outgoing.steps(end):
            if group:
                with self._lock:
                    self._waiting.append(_Sent(self._outgoing.vclock, self._outgoing.next_offset))
            yield group
        with self._lock:
            if not self._waiting and end > 0:
                self._commit(end)  # nothing of it was for the peer

    def acknowledge(self, vclock: Vclock) -> None:
        """The peer has this of what it was sent, durably. Refuses what was not sent and what goes back (I3)."""
        with self._lock:
            if not self.acknowledged <= vclock:
                self._failure = _refused(f"it goes back from {self.acknowledged} to {vclock}")
            elif not vclock <= self._outgoing.vclock:
                self._failure = _refused(f"it has {vclock}, but only {self._outgoing.vclock} was sent")
            if self._failure is not None:
                raise self._failure
            self.acknowledged, self.acknowledged_s = vclock, time.monotonic()
            self._has_acknowledged = True
            done: _Sent | None = None
            while self._waiting and self._waiting[0].vclock <= vclock:
                done = self._waiting.popleft()
            if done is not None:
                self._commit(done.end)

    def vouches_for(self, origin: NodeId, lsn: Lsn) -> bool:
        """Whether the peer has said, since it follows, that it has a message durably. What it said when it came does
        not count: it may have promised a successor by then not to."""
        return self._has_acknowledged and not self.is_anonymous and self.acknowledged[origin] >= lsn

    def check_alive(self) -> None:
        """Refuse to go on with a peer that does not answer, or that has answered what cannot be."""
        if self._failure is not None:
            raise self._failure
        if self.is_silent:
            raise self._gone()

    @property
    def is_silent(self) -> bool:
        """Whether the peer did not answer for too long."""
        return time.monotonic() - self.acknowledged_s > self._silence_s

    def give_up(self) -> None:
        """Let go of everything for a peer that is silent. Whoever serves it may be caught in sending something that
        nobody takes, and hears of it when that ends."""
        with self._lock:
            self._failure = self._failure or self._gone()
        self._leave()

    def close(self) -> None:
        self._outgoing.close()
        self._leave()

    def _gone(self) -> TailraceError:
        what = f"the peer did not answer for {self._silence_s:g} s"
        return TailraceError("relay.unreachable", what, hint="see that it runs and can be reached")

    def _leave(self) -> None:
        with suppress(TailraceError):  # what was not recorded will be sent again, and is known to the peer
            self._session.close()

    def _wanted(self) -> Iterator[tuple[NodeId, Lsn]]:
        """How far the peer is to come."""
        for origin, lsn in self._journal.vclock.items():
            if origin == self._wish.peer:
                yield origin, min(lsn, self.here[origin])  # what it wrote since it came it has
            elif origin not in self._wish.without:
                yield origin, lsn

    def _commit(self, end: Offset) -> None:
        self.place = end
        self._session.commit(end - 1)


def _refused(why: str) -> TailraceError:
    what = f"an acknowledgement is refused: {why}"
    return TailraceError("relay.bad_ack", what, hint="subscribe again with the clock that the peer really has")
