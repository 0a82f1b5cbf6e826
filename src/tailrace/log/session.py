"""A consumer at work: it acknowledges what it has delivered, and its offsets reach the disk every second.

I3: an offset is recorded only after the writer succeeded; it never goes back except by an operator's command.
I4: after a crash at most one flush interval is repeated.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Final, Self

from tailrace.errors import TailraceError
from tailrace.limits import OFFSET_FLUSH_S
from tailrace.log.consumers import Consumer, Consumers, State, outside_log
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.offsets import NOTHING, WHOLE_LOG, Kind, OffsetLog, Positions, Record
from tailrace.message import Offset

_HEARTBEAT_S: Final = 10.0


class ConsumerSession:
    """One process's exclusive use of a consumer, from `open` to `close`."""

    def __init__(
        self, consumers: Consumers, name: str, *, flush_s: float = OFFSET_FLUSH_S, disk: Disk | None = None
    ) -> None:
        self.name = name
        self._consumers = consumers
        self._disk = disk or Disk()
        self._owning = contextlib.ExitStack()
        self._path = self._owning.enter_context(consumers.owning(name))
        try:
            # While consumers do not change nothing is removed, and from then on nothing that this one needs (I6).
            with disk_errors("opening a consumer's offsets", self._path), consumers.changing():
                ttl_s = self._check_valid().agreement.ttl_s
                self._offsets = OffsetLog(self._path, self._disk)
                self._show_life()
            self._heartbeat_s = _HEARTBEAT_S if ttl_s is None else min(_HEARTBEAT_S, ttl_s / 3)
        except BaseException:
            self._owning.close()
            raise
        self._flush_s = flush_s
        self._lock = threading.Lock()
        self._pending: dict[str, Record] = {}
        self._failure: TailraceError | None = None
        self._closed = threading.Event()
        self._flusher = threading.Thread(target=self._flush_regularly, name=f"tailrace-offsets-{name}", daemon=True)
        self._flusher.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def positions(self) -> Positions:
        """How far the consumer has come, as of the last flush."""
        return self._offsets.positions

    @property
    def resume_offset(self) -> Offset:
        """Where delivery goes on: everything before is acknowledged."""
        return Offset(self._consumers.position_of(self.positions) + 1)

    def commit(self, offset: int, namespace: str = WHOLE_LOG) -> None:
        """Everything up to `offset` (of one namespace, or of the whole log) was delivered. A lower one is no news."""
        end = self._consumers.view.head().next_offset
        if not 0 <= offset < end:
            raise outside_log(offset, self._consumers.view.bases()[0], end)
        record = Record(Kind.COMMIT, namespace, offset)
        with self._lock:
            self._check_usable()
            known = self._pending.get(namespace)
            self._pending[namespace] = record if known is None or known.offset < offset else known

    def flush(self) -> None:
        """What was committed so far is on disk when this returns."""
        with self._lock:
            self._check_usable()
            self._flush()

    def close(self) -> None:
        """Flush and let others use the consumer."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            try:
                if self._failure is None:
                    self._flush()
            finally:
                self._offsets.close()
                self._owning.close()
        self._flusher.join()

    def _flush(self) -> None:
        known = self.positions.by_namespace
        news = [record for name, record in self._pending.items() if record.offset > known.get(name, NOTHING)]
        self._pending.clear()
        if not news:
            return
        try:
            with disk_errors("writing a consumer's offsets", self._path):
                self._offsets.append(news, int(self._consumers.clock()))
        except TailraceError as error:
            self._failure = error  # I7: not tried again; what was not recorded will be repeated
            raise

    def _flush_regularly(self) -> None:
        while not self._closed.wait(self._flush_s):
            with self._lock:
                if self._closed.is_set() or self._failure is not None:
                    return
                with contextlib.suppress(TailraceError):  # kept in _failure: the next commit reports it
                    self._flush()
                    if time.monotonic() - self._shown_s >= self._heartbeat_s:
                        self._show_life()

    def _show_life(self) -> None:
        """A consumer that has nothing to commit is alive all the same; one that had expired holds the log again."""
        self._consumers.show_life(self.name)
        self._shown_s = time.monotonic()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed.is_set():
            raise TailraceError("log.closed", f"the session of consumer {self.name} was closed", hint="open it again")

    def _check_valid(self) -> Consumer:
        consumer = self._consumers.get(self.name)
        if consumer.state is State.INVALIDATED:
            raise TailraceError(
                "consumer.invalidated",
                f"consumer {self.name} cannot go on: {consumer.agreement.invalidated or 'messages it needs are gone'}",
                hint=f"take a new snapshot, then: tailrace offset rewind {self.name} oldest",
            )
        return consumer
