"""One peer for as long as a node runs: connected, rounds when either side has something; away, asked again later."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.sync.address import PeerAddress
from tailrace.sync.backoff import Backoff
from tailrace.sync.client import SyncNode
from tailrace.sync.failing import unexpected
from tailrace.sync.httplink import HttpLink
from tailrace.sync.httppeer import HttpPeer
from tailrace.sync.meeting import wall_clock_ms
from tailrace.sync.round import Progress
from tailrace.sync.subscription import Subscription

ROUND_EVERY_S: Final = 60.0
"""A round takes place even if nobody has said that there is something."""
_log: Final = logging.getLogger(__name__)

Wait = Callable[[threading.Event, float], bool]
"""Waits for an event, or until so many seconds have passed."""


class State(StrEnum):
    """What is going on with a peer."""

    CONNECTING = "connecting"
    SYNCING = "syncing"
    WAITING = "waiting"
    """All is exchanged, and both will say when there is more."""
    OFFLINE = "offline"
    """It cannot be reached, or does not let this node in; it is asked again later."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """How sync with a peer is doing."""

    name: str
    url: str
    state: State = State.CONNECTING
    node_id: int | None = None
    rounds: int = 0
    total: Progress = field(default_factory=Progress)
    """All rounds since this node began to run."""
    last_success_ms: int | None = None
    last_error: TailraceError | None = None
    """Stays until a round succeeds."""
    clock_ahead_ms: int | None = None
    clock_warning: str | None = None

    def told(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "name": self.name,
            "url": self.url,
            "state": self.state.value,
            "node": None if self.node_id is None else str(self.node_id),
            "rounds": self.rounds,
            "fetched": self.total.fetched,
            "sent": self.total.sent,
            "refused": self.total.refused,
            "older": self.total.older,
            "left": self.total.left,
            "warnings": list(self.total.warnings),
            "last_success_ms": self.last_success_ms,
            "last_error": None if self.last_error is None else self.last_error.encode(),
            "clock_ahead_ms": self.clock_ahead_ms,
            "clock_warning": self.clock_warning,
        }


class PeerLoop:
    """A thread for one peer; `start`, then `stop`."""

    def __init__(
        self,
        node: SyncNode,
        address: PeerAddress,
        changed: Callable[[PeerStatus], None],
        *,
        backoff: Backoff | None = None,
        wait: Wait = threading.Event.wait,
    ) -> None:
        """`changed` is told whenever the status is another one."""
        self.address = address
        self._node = node
        self._changed = changed
        self._backoff = backoff or Backoff()
        self._wait = wait
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._link: HttpLink | None = None
        self._left: list[int] = []
        self.status = PeerStatus(address.name, address.url)
        self._thread = threading.Thread(target=self._run, name=f"tailrace-sync-with-{address.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        """A round that is under way is cut off; the next one goes on where it was."""
        with self._lock:
            self._stopping.set()
            if self._link is not None:
                self._link.cut()
        self._wake.set()

    def join(self) -> None:
        self._thread.join()

    def wake(self) -> None:
        """There may be something to exchange."""
        self._wake.set()

    def look(self, *, has_changed: bool) -> None:
        """Look whether this node has something for the peer that no round has left already."""
        node_id = self.status.node_id
        if self.status.state is State.WAITING and node_id is not None:
            pending = self._node.store.pending_tables(node_id)
            if pending and (has_changed or pending != self._left):
                self.wake()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._connected()
            except Exception as error:  # noqa: BLE001  whatever it is, this peer is asked again, and others go on
                if self._stopping.is_set():
                    break
                self._note(state=State.OFFLINE, last_error=unexpected(error))
                self._wait(self._stopping, self._backoff.next_s())
        self._note(state=State.STOPPED)

    def _connected(self) -> None:
        """Until it is cut off."""
        self._note(state=State.CONNECTING)
        with self._node.meeting(self.address, self._opened) as (peer, verdict):
            self._note(node_id=peer.node_id, clock_ahead_ms=verdict.ahead_ms, clock_warning=verdict.warning)
            with Subscription(peer.link, peer.node_id, self.wake) as subscription:
                self._wake.set()
                while self._wake.wait(ROUND_EVERY_S) or not self._stopping.is_set():
                    self._wake.clear()
                    if self._stopping.is_set():
                        return
                    if subscription.error is not None:
                        raise subscription.error
                    self._round(peer)

    def _opened(self, link: HttpLink) -> None:
        with self._lock:
            self._link = link
            if self._stopping.is_set():
                link.cut()

    def _round(self, peer: HttpPeer) -> None:
        before = self.status.total
        self._note(state=State.SYNCING)
        done = self._node.round(peer, lambda _table, progress: self._note(total=_sum(before, progress)))
        self._backoff.reset()
        left, was_left = self._node.store.pending_tables(peer.node_id), self._left
        self._left = left
        if left and (done.sent or left != was_left):
            self._wake.set()  # it has changed meanwhile
        now_ms = wall_clock_ms()
        total, rounds = _sum(before, done), self.status.rounds + 1
        self._note(state=State.WAITING, total=total, rounds=rounds, last_success_ms=now_ms, last_error=None)

    def _note(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)
        try:
            self._changed(self.status)
        except Exception:  # noqa: BLE001  whoever is told of it may fail, and sync goes on
            _log.exception("the status of %s could not be told", self.address.name)


def _sum(one: Progress, other: Progress) -> Progress:
    """What was done in several rounds; what the last one has left is all that is left, and was counted before."""
    return Progress(
        one.fetched + other.fetched,
        one.sent + other.sent,
        one.refused + other.refused,
        one.older + other.older,
        other.left,
        other.warnings,
    )
