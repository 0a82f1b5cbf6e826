"""Receiving: what has come for a client, given to its application as callbacks, one by one, or in its own transactions.

What has come is in the log of the site. Any process that sees the directory may receive; each listener has a name, gets
everything, and keeps the log from removing what it has not answered.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import fields
from typing import Final

from tailrace.log.agreement import Hold
from tailrace.log.consumers import Consumers
from tailrace.log.identity import identity_of
from tailrace.log.view import LogView
from tailrace.log.watch import LOOK_EVERY_S
from tailrace.queues.answers import Answer
from tailrace.queues.desk import Desk, Patience, Place
from tailrace.queues.discovery import LISTENER, listener_consumer, sources
from tailrace.queues.incoming import Incoming, Unanswered
from tailrace.queues.ledger import Ledger
from tailrace.queues.listener import Listener, ask
from tailrace.queues.parked import Parked, ParkingLot
from tailrace.queues.transacting import Connection, OnError, Transacting

_FIELDS: Final = [field.name for field in fields(Incoming)]


class Receiver:
    """The receiving end of one client at a site."""

    def __init__(
        self,
        log_directory: str | os.PathLike[str],
        client: str,
        name: str = LISTENER,
        *,
        patience: Patience | None = None,
        hold: Hold | None = None,
    ) -> None:
        """`hold` says how much of the log a listener that does not come may keep from being removed; all of it unless
        said. Two with the same name do not listen at the same time: the second is refused (consumer.locked)."""
        self.directory = os.path.abspath(log_directory)
        self.client = client
        self.name = name
        self._consumer = listener_consumer(client, name)
        self._patience = patience or Patience()
        self._hold = hold

    def register(self) -> None:
        """Make the listener known without listening: from now on nothing is removed that it has not answered."""
        Consumers(self.directory).register(self._consumer, hold=self._hold, exist_ok=True)

    def sources(self) -> list[str]:
        """The sites from which something has come."""
        return sources(LogView(self.directory), self.client)

    def listen(self, listener: Listener, stopping: threading.Event) -> None:
        """Call a listener until somebody says stop. New sources are noticed when their first message comes."""
        with self._desk() as desk:
            while not stopping.is_set():
                message = desk.hand_out()
                if message is None:
                    desk.wait(LOOK_EVERY_S)
                else:
                    desk.settle(message, ask(listener, desk, message))

    def messages(self, timeout_s: float | None = None) -> Generator[Unanswered, None, None]:
        """The messages one by one, each to be answered with `ack`, `retry` or `park`. Ends when none came for a while.
        What was answered is on disk within a second, or when the generator is closed.

        Until a message is answered its source waits, and what is not answered in the end comes again. A snapshot begins
        with the message that `starts_snapshot`, and ends with one of kind SNAPSHOT_END.
        """
        with self._desk() as desk:
            ends_s = _after(timeout_s)
            while True:
                message = desk.hand_out()
                if message is not None:
                    values = {name: getattr(message, name) for name in _FIELDS}
                    yield Unanswered(**values, settle=desk.settle)
                    ends_s = _after(timeout_s)
                    continue
                left_s = LOOK_EVERY_S if ends_s is None else ends_s - time.monotonic()
                if left_s <= 0:
                    return
                desk.wait(left_s)

    def listen_in(
        self,
        connect: Callable[[], Connection],
        handler: Callable[[Connection, str, Incoming], Answer],
        stopping: threading.Event,
        on_error: OnError | None = None,
    ) -> None:
        """Give messages to a handler inside a transaction of the application's own database: exactly once.

        The table `LRQ_Received` there says how far it is, and is changed in the same transaction, which is committed
        when the handler answers with `Ack` and rolled back otherwise. A snapshot goes on where it was after a crash. A
        database that is away costs no attempts.
        """
        log = identity_of(self.directory)
        own = Transacting(
            connect,
            handler,
            lambda connection: Ledger(connection, log, self.client, self.name),
            self._patience,
            on_error,
        )
        with contextlib.closing(own):
            if not own.is_connected(stopping):
                return
            with self._desk(own.places()) as desk:
                while own.is_connected(stopping) and not stopping.is_set():
                    message = desk.hand_out()
                    if message is None:
                        desk.wait(LOOK_EVERY_S)
                    else:
                        desk.settle(message, own.apply(message))

    def parked(self) -> list[Parked]:
        """What was put aside of this listener, the oldest first."""
        with ParkingLot(self.directory) as lot:
            return lot.all(self.client, self.name)

    def replay(self, numbers: Sequence[int]) -> None:
        """Have parked messages delivered again, before the next new message of their source."""
        with ParkingLot(self.directory) as lot:
            lot.replay(numbers)

    def discard(self, numbers: Sequence[int]) -> None:
        """Throw parked messages away."""
        with ParkingLot(self.directory) as lot:
            lot.discard(numbers)

    def _desk(self, places: dict[str, Place] | None = None) -> Desk:
        return Desk(self.directory, self.client, self.name, self._patience, hold=self._hold, places=places)


def _after(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s
