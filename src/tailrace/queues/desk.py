"""The desk: hands out what has come for a client, one message of each source at a time, and takes the answers.

1. One cursor reads the queues of all sources; a lane that has to wait reads for itself later.
2. Before a message is handed out its attempt is counted, so that one that kills the process is parked at last.
3. What was answered is committed for its queue, and the whole log up to the first message that somebody waits for: a
   listener holds the log for itself and for nothing else (I6).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold
from tailrace.log.consumers import Consumers
from tailrace.log.cursor import Cursor
from tailrace.log.reader import LogReader
from tailrace.log.selection import Selection
from tailrace.log.session import ConsumerSession
from tailrace.log.watch import LOOK_EVERY_S, Watch
from tailrace.message import Offset
from tailrace.queues.answers import Ack, Answer, Park
from tailrace.queues.athand import AtHand
from tailrace.queues.discovery import client_queues, listener_consumer
from tailrace.queues.entries import Received
from tailrace.queues.incoming import Incoming
from tailrace.queues.lane import Lane
from tailrace.queues.names import parse_receive_queue, receive_queue
from tailrace.queues.parked import ParkedState, ParkingLot

_NOTE_EVERY_S: Final = 0.1
"""So often positions are noted and parked messages looked at, at least, while there is much to do."""
_KILLED: Final = "the process ended while it had it"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a message is tried."""

    attempts_max: int | None = 10
    """Then it is parked; None: never."""
    wait_s: float = 1.0
    """Before the second attempt; each further one waits twice as long as the one before."""
    wait_s_max: float = 60.0

    def __post_init__(self) -> None:
        if (self.attempts_max is not None and self.attempts_max < 1) or min(self.wait_s, self.wait_s_max) < 0:
            what = f"{self.attempts_max} attempts {self.wait_s} to {self.wait_s_max} seconds apart make no sense"
            raise TailraceError("input.invalid", what, hint="at least one attempt, and no negative times")

    def is_over(self, attempts: int) -> bool:
        return self.attempts_max is not None and attempts >= self.attempts_max

    def wait_after_s(self, attempts: int) -> float:
        doubled: float = self.wait_s * 2.0 ** min(attempts - 1, 30)
        return min(self.wait_s_max, doubled)


@dataclass(frozen=True, slots=True)
class Place:
    """How far an application has come with a source, as it has noted itself."""

    offset: int
    snapshot: str
    """The request of the snapshot that it is in the middle of."""


class Desk:
    """One listener at work, from here to `close`. Threads may share it."""

    def __init__(
        self,
        directory: str,
        client: str,
        listener: str,
        patience: Patience,
        *,
        hold: Hold | None = None,
        places: Mapping[str, Place] | None = None,
    ) -> None:
        """`places` are those of an application that keeps them in its own transactions."""
        self._client = client
        self._listener = listener
        self._patience = patience
        self._places = places
        self._consumers = Consumers(directory)
        consumer = listener_consumer(client, listener)
        self._consumers.register(consumer, hold=hold, exist_ok=True)
        if hold is not None:
            self._consumers.agree_on_hold(consumer, hold)
        self._session = ConsumerSession(self._consumers, consumer)
        try:
            self._positions = self._session.positions
            self._at_hand = AtHand(self._consumers.directory, consumer)
            self._watch = Watch(self._consumers.directory)
            self._view = LogReader(self._consumers.directory).view
            selection = Selection(namespace=client_queues(client))
            self._feed = Cursor(self._view, self._session.resume_offset, selection)
        except BaseException:
            self._session.close()
            raise
        self._lot = ParkingLot(self._consumers.directory)
        self._lot_version: int | None = None
        self._lanes: dict[str, Lane] = {}
        self._busy: deque[Lane] = deque()
        """The lanes that have something to hand out, or wait."""
        self._noted_s = self._looked_s = 0.0
        self._turn = threading.RLock()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hand_out(self) -> Incoming | None:
        """The next message whose turn it is; None when there is none now."""
        with self._turn:
            self._check_open()
            now_s = time.monotonic()
            if now_s - self._noted_s >= _NOTE_EVERY_S:
                self._note_positions()
            if now_s - self._looked_s >= _NOTE_EVERY_S:
                self._look_at_parked()
            try:
                return self._hand_out()
            except TailraceError as error:
                if error.code != "log.below_oldest":
                    raise
                what = f"listener {self._listener} of {self._client} waited too long: what it needs next is gone"
                hint = "let the sources send snapshots: tailrace queue resync"
                raise TailraceError("consumer.invalidated", what, hint=hint) from error

    def start(self, incoming: Incoming) -> None:
        """The application knows that a snapshot starts; it is not told again when its first message is retried."""
        with self._turn:
            self._lane_of(incoming.source).snapshot = incoming.request

    def settle(self, incoming: Incoming, answer: Answer) -> None:
        """The application has answered. A message is answered once each time that it was handed out."""
        with self._turn:
            self._check_open()
            lane = self._lanes.get(incoming.source)
            out = lane.out if lane is not None else None
            if lane is None or out is None or (out.offset, out.attempt) != (incoming.offset, incoming.attempt):
                what = f"message {incoming.offset} of {incoming.source} was answered already"
                raise TailraceError("input.invalid", what, hint="answer each message once")
            lane.out = None
            if isinstance(answer, Ack):
                self._finish(lane, out)
            elif isinstance(answer, Park):
                self._park(lane, out, answer.reason)
            elif self._patience.is_over(out.attempt):
                self._park(lane, out, f"tried {out.attempt} times: {answer.reason or 'retry'}")
            else:
                waits_s = self._patience.wait_after_s(out.attempt) if answer.after_s is None else answer.after_s
                lane.due_s = time.monotonic() + waits_s
                lane.trouble = answer.reason

    def wait(self, timeout_s: float) -> None:
        """Until something may be due, or for a while."""
        now_s = time.monotonic()
        due_s = min((lane.due_s for lane in self._busy if lane.out is None), default=now_s + LOOK_EVERY_S)
        self._watch.wait(max(0.0, min(timeout_s, due_s - now_s)))

    def close(self) -> None:
        """Note how far everything is. What was handed out and not answered comes again."""
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._note_positions()
            finally:
                self._feed.close()
                for lane in self._lanes.values():
                    lane.close()
                self._watch.close()
                self._at_hand.close()
                self._lot.close()
                self._session.close()

    def _hand_out(self) -> Incoming | None:
        while True:
            lane = self._due_lane()
            if lane is None:
                if self._read_on():
                    continue
                self._note_positions()
                return None
            incoming = self._next_replay(lane) if lane.replays else self._next_message(lane)
            if incoming is not None:
                lane.out = incoming
                return incoming

    def _due_lane(self) -> Lane | None:
        """The lanes take turns."""
        now_s = time.monotonic()
        waiting = 0
        while waiting < len(self._busy):
            lane = self._busy[0]
            self._busy.rotate(-1)
            if lane.out is not None or lane.due_s > now_s:
                waiting += 1
                continue
            if lane.reads_on and self._read_on():  # who catches up lets the others go on
                waiting = 0
            if lane.replays or lane.peek(self._view, self._feed.next_offset) is not None:
                return lane
            self._busy.remove(lane)
            lane.is_busy = False
        return None

    def _read_on(self) -> bool:
        """One more frame of any source, the new ones included; False when there is none."""
        end = self._view.head().next_offset
        frame = next(iter(self._feed.advance(end)), None) if self._feed.next_offset < end else None
        if frame is None:
            return False
        self._look_at_parked()  # what was to be replayed before this frame came is handed out before it
        found = parse_receive_queue(frame.head.namespace)
        if found is not None and found[0] == self._client:
            lane = self._lane_of(found[1])
            lane.offer(frame)
            self._make_busy(lane)
        return True

    def _next_message(self, lane: Lane) -> Incoming | None:
        message = lane.peek(self._view, self._feed.next_offset)
        if message is None:
            return None
        if message.offset in lane.skipped:
            lane.pass_over(message, was_seen=False)
            return None
        attempts = self._at_hand.attempts(lane.queue, message.offset)
        if attempts and self._patience.is_over(attempts):
            self._put_aside(lane, message, attempts, f"tried {attempts} times: {lane.trouble or _KILLED}")
            lane.pass_over(message, was_seen=False)
            return None
        if attempts:  # so that after a crash it is the first again, and its attempts are not those of another one
            self._note_positions()
            self._session.flush()
        attempt = self._at_hand.begin(lane.queue, message.offset)
        return _incoming(lane, message, attempt, starts_snapshot=lane.starts_snapshot(message))

    def _next_replay(self, lane: Lane) -> Incoming | None:
        number = lane.replays[0]
        found = self._lot.get(number)
        if found is None or found.state is not ParkedState.REPLAYING:
            lane.replays.popleft()
            return None
        if self._patience.is_over(found.attempts):
            self._lot.park_again(number, f"tried {found.attempts} times again: {lane.trouble or _KILLED}")
            lane.replays.popleft()
            return None
        attempt = self._lot.begin_replay(number)
        return _incoming(lane, found.message, attempt, starts_snapshot=False, replay=found.replay)

    def _finish(self, lane: Lane, message: Incoming) -> None:
        if message.is_replay:
            self._lot.forget([lane.replays.popleft()])
            lane.due_s, lane.trouble = 0.0, ""
            return
        if message.attempt > 1:
            self._at_hand.forget(lane.queue, message.offset)
        lane.pass_over(message, was_seen=True)

    def _park(self, lane: Lane, message: Incoming, reason: str) -> None:
        if message.is_replay:
            self._lot.park_again(lane.replays.popleft(), reason)
            lane.due_s, lane.trouble = 0.0, ""
            return
        self._put_aside(lane, message, message.attempt, reason)
        lane.pass_over(message, was_seen=True)

    def _put_aside(self, lane: Lane, message: Received, attempts: int, reason: str) -> None:
        number = self._lot.park(self._client, self._listener, lane.source, message, attempts, reason)
        lane.skipped[message.offset] = number

    def _lane_of(self, source: str) -> Lane:
        lane = self._lanes.get(source)
        if lane is None:
            queue = receive_queue(self._client, source)
            done, snapshot = self._positions.of(queue), ""
            place = (self._places or {}).get(source)
            if place is not None and place.offset >= done:
                done, snapshot = place.offset, place.snapshot
            lane = self._lanes[source] = Lane(queue, source, done, snapshot, keeps_place=self._places is not None)
        return lane

    def _make_busy(self, lane: Lane) -> None:
        if not lane.is_busy:
            lane.is_busy = True
            self._busy.append(lane)

    def _note_positions(self) -> None:
        """What needs not come again, on disk within a second."""
        self._noted_s = time.monotonic()
        floor = self._feed.next_offset
        for lane in self._lanes.values():
            if lane.safe > self._positions.of(lane.queue):
                self._session.commit(lane.safe, lane.queue)
            floor = Offset(min(floor, lane.held_from(floor)))
        if floor > 0:
            self._session.commit(floor - 1)

    def _look_at_parked(self) -> None:
        """Somebody may have parked, replayed or discarded messages."""
        self._looked_s = time.monotonic()
        version = self._lot.version()
        if version == self._lot_version:
            return
        self._lot_version = version
        for lane in self._lanes.values():
            lane.skipped.clear()
            lane.replays.clear()
        done: list[int] = []
        for mark in self._lot.marks(self._client, self._listener):
            lane = self._lane_of(mark.source)
            if mark.state is ParkedState.REPLAYING and mark.offset < lane.next:
                lane.replays.append(mark.id)
                self._make_busy(lane)
            elif mark.state is ParkedState.REPLAYING:
                done.append(mark.id)  # it comes in its turn
            elif mark.state is ParkedState.DISCARDED and mark.offset <= lane.safe:
                done.append(mark.id)  # it never comes
            else:
                lane.skipped[mark.offset] = mark.id
        if done:
            self._lot.forget(done)
        for lane in self._lanes.values():
            message = lane.peek(self._view, self._feed.next_offset)
            if message is not None and message.offset in lane.skipped:
                lane.due_s = 0.0  # what it waits for was taken from it

    def _check_open(self) -> None:
        if self._is_closed:
            what = f"listener {self._listener} of {self._client} has ended"
            raise TailraceError("log.closed", what, hint="what is not answered comes again to the next one")


def _incoming(lane: Lane, message: Received, attempt: int, *, starts_snapshot: bool, replay: str = "") -> Incoming:
    return Incoming(
        message.offset,
        message.kind,
        message.payload,
        message.source_id,
        message.transaction,
        message.request,
        message.timestamp,
        lane.source,
        attempt,
        starts_snapshot,
        replay,
    )
