"""Capturing: what applications leave in an outbox goes to the log, exactly once.

1. Read whole transactions behind the bookmark. 2. Append them as one group, with the new bookmark. 3. When that is
durable, let the outbox forget them (I2). After a crash between 2 and 3 the bookmark says that they are there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.message import now
from tailrace.namespace import RESERVED
from tailrace.queues.bookmark import Bookmark
from tailrace.queues.names import check_client
from tailrace.queues.outbox import Outbox, OutboxBatch, Position

POLL_S: Final = 0.05
_WAIT_S: Final = 0.5
"""After a failure; each further one in a row waits twice as long as the one before."""
_WAIT_S_MAX: Final = 15.0


class Capturing:
    """Of one outbox. One thread at a time may call `step` or `run`."""

    def __init__(
        self,
        name: str,
        outbox: Outbox,
        log: CommitLog,
        *,
        report: Callable[[str], None],
        appended: Callable[[], None] = lambda: None,
        poll_s: float = POLL_S,
    ) -> None:
        """`name` tells the outboxes of a log apart. `appended` is called when the log has grown."""
        self._name = check_client(name)
        self._outbox = outbox
        self._log = log
        self._report = report
        self._appended = appended
        self._poll_s = poll_s
        self._bookmark = Bookmark(log, f"{RESERVED}queue.outbox.{name}", f"_outbox-{name}")
        self._is_forgotten = False
        """Whether the outbox knows how far it was read."""
        self.error: TailraceError | None = None
        """Why nothing is captured now."""

    def run(self, stopping: threading.Event) -> None:
        """Until it is stopped. An outbox that is away is waited for."""
        wait_s = _WAIT_S
        while not stopping.is_set():
            try:
                moved = self.step()
            except TailraceError as error:
                self._tell(error)
            except Exception as error:  # noqa: BLE001  a thread that ends without a word would be taken for one that works
                self._tell(TailraceError("queue.failed", f"outbox {self._name}: {error!r}", hint="report it"))
            else:
                if self.error is not None:
                    self.error, wait_s = None, _WAIT_S
                    self._report(f"outbox {self._name} is read again")
                if not moved:
                    stopping.wait(self._poll_s)
                continue
            stopping.wait(wait_s)
            wait_s = min(2 * wait_s, _WAIT_S_MAX)

    def step(self) -> int:
        """Take what there is, up to the size of a batch; says how many messages that were."""
        known = self._bookmark.value
        position = None if known is None else Position.decode(known)
        if position is not None and not self._is_forgotten:
            self._outbox.forget(position)
        self._is_forgotten = True
        batch = self._outbox.read(position)
        if batch is None:
            self._bookmark.renew()
            return 0
        if not self._publish(batch):
            return 0
        at, value = now(), batch.position.encode()
        with self._log.group() as group:
            for rows in batch.batches(group.range.first, at):
                group.add(rows)
            for rows in self._bookmark.batches(value, at):
                group.add(rows)
        self._bookmark.moved(value, group.range.end)
        self._is_forgotten = False
        self._appended()
        self._outbox.forget(batch.position)
        self._is_forgotten = True
        return len(batch)

    def _publish(self, batch: OutboxBatch) -> bool:
        """What is staged comes before what is in the outbox, such as its end. Once, whatever happens then: each part
        has a name. False when something is gone: then the whole attempt does not count."""
        for attempt, part in batch.staged:
            try:
                self._log.publish(part.batch, [part.file])
            except TailraceError as error:
                if not error.code.startswith("log.staging"):
                    raise
                self._report(f"snapshot {attempt} cannot be used: {error}")
                self._outbox.refuse(attempt, str(error))
                return False
        return True

    def close(self) -> None:
        self._bookmark.close()

    def _tell(self, error: TailraceError) -> None:
        if self.error is None or (self.error.code, self.error.what) != (error.code, error.what):
            self._report(f"outbox {self._name}: {error}")
        self.error = error
