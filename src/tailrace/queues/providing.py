"""Providing snapshots: a client's application supplies all its data when a destination needs it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from tailrace.errors import TailraceError
from tailrace.limits import MIB
from tailrace.masking import masked
from tailrace.queues.application import Application, application_of
from tailrace.queues.claims import Claim, Claims
from tailrace.queues.payload import check_payload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.queues.application import Connection

LEASE_S: Final = 60.0
"""A provider that shows no life for so long loses its claim."""
RETRY_S: Final = 1.0
"""After a failure; each further one of a request waits twice as long as the one before."""
RETRY_S_MAX: Final = 300.0
_POLL_S: Final = 0.25
_WAIT_S_MAX: Final = 15.0
_FLUSH_BYTES: Final = MIB
_FLUSH_ROWS: Final = 1000
_ERROR_CHARS: Final = 500


class SnapshotContext:
    """What a provider is called with. One thread at a time may use it."""

    def __init__(self, claim: Claim, claims: Claims, is_over: Callable[[], bool]) -> None:
        self.client = claim.client
        self.request = claim.request
        self.sites: Sequence[str] = claim.sites
        """Those that get it: the data is read once for all of them."""
        self.done = 0
        self.total: int | None = None
        self._claim = claim
        self._claims = claims
        self._is_over = is_over
        self._waiting: list[bytes] = []
        self._size = 0
        self._says_progress = False

    def transmit(self, payload: bytes) -> None:
        """One message of the snapshot. It is written soon, in a transaction of its own or with others."""
        self._check_wanted()
        self._waiting.append(check_payload(payload))
        self._size += len(payload)
        if self._size >= _FLUSH_BYTES or len(self._waiting) >= _FLUSH_ROWS:
            self.flush()

    def transmit_frame(
        self, frame: DataFrame, column: str = "payload", *, log: str | os.PathLike[str] | None = None
    ) -> None:
        """A DataFrame of Spark as messages: one for each value of a column of bytes, in the order of the partitions.

        With `log`, the directory of the site's log (`DATA/queues`) as executors see it, the tasks write them there, all
        at once, and only their places go through the outbox. Without, the driver writes one partition to the outbox
        while tasks compute the next, so two must fit in memory.
        """
        from tailrace.queues.staged import Stage, check_column, discard, stage_frame

        if log is None:
            for row in frame.select(check_column(frame, column)).toLocalIterator(prefetchPartitions=True):
                self.transmit(row[0])
            return
        self.flush()
        stage = Stage(os.path.abspath(log), self.client, self._claim.attempt, self.sites)
        parts = stage_frame(frame, column, stage)
        try:
            while parts:
                self._check_wanted()
                if not self._says_progress:
                    self.done += parts[0].file.messages
                self._claims.refer(self._claim, parts[0].encode(), self.done, self.total)
                parts.pop(0)
        finally:
            for part in parts:
                discard(stage.log, part)

    def progress(self, done: int, of: int | None = None) -> None:
        """How much is done, in whatever the provider counts; without this, messages are counted."""
        self._says_progress = True
        self.done, self.total = done, of

    def flush(self) -> None:
        """What was transmitted is in the outbox when this returns."""
        self._check_wanted()
        if not self._waiting:
            return
        if not self._says_progress:
            self.done += len(self._waiting)
        self._claims.supply(self._claim, self._waiting, self.done, self.total)
        self._waiting, self._size = [], 0

    def _check_wanted(self) -> None:
        if self._is_over():
            what = f"snapshot {self._claim.attempt} of {self.client} is not wanted any more, or this process ends"
            raise TailraceError("queue.claim_lost", what, hint="let this exception end the provider")


Provider = Callable[[SnapshotContext], None]


class Providing:
    """`serve` in a thread of one's own, or `with queue.provide_snapshots(...)`, which has one."""

    def __init__(
        self,
        client: str,
        connect: Callable[[], Connection],
        provider: Provider,
        *,
        lease_s: float = LEASE_S,
        retry_s: float = RETRY_S,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`connect` makes a connection to the outbox that nobody else uses."""
        self._client = client
        self._connect = connect
        self._provider = provider
        self._lease_s = lease_s
        self._retry_s = retry_s
        self._report = report
        self._who = f"{socket.gethostname()}:{os.getpid()}"
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.serve, args=(self._stopping,), name=f"tailrace-{self._client}")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def serve(self, stopping: threading.Event) -> None:
        """Supply whatever is asked for, also what was asked before, until it is stopped. A database that is away is
        waited for."""
        told, wait_s = "", _POLL_S
        while not stopping.is_set():
            try:
                self._serve_connected(stopping)
            except Exception as error:  # noqa: BLE001  each driver has errors of its own
                if told != (told := _text(error)):
                    self._report(f"snapshots of {self._client} cannot be supplied: {told}")
                stopping.wait(wait_s)
                wait_s = min(2 * wait_s, _WAIT_S_MAX)
            else:
                told, wait_s = "", _POLL_S

    def step(self, application: Application, stopping: threading.Event) -> bool:
        """Supply one snapshot, if one is asked for."""
        claims = Claims(application)
        claim = claims.claim(self._client, self._who, self._lease_s)
        if claim is None:
            return False
        over = threading.Event()
        context = SnapshotContext(claim, claims, lambda: over.is_set() or stopping.is_set())
        beating = threading.Thread(target=self._beat, args=(context, claim, over), name=f"tailrace-{claim.attempt}")
        beating.start()
        try:
            self._supply(context, claim, claims, application)
        finally:
            over.set()
            beating.join()
        return True

    def _serve_connected(self, stopping: threading.Event) -> None:
        application = application_of(self._connect())
        try:
            while not stopping.is_set():
                if not self.step(application, stopping):
                    stopping.wait(_POLL_S)
        finally:
            with suppress(Exception):
                application.close()

    def _supply(self, context: SnapshotContext, claim: Claim, claims: Claims, application: Application) -> None:
        try:
            self._provider(context)
            context.flush()
            claims.finish(claim)
        except TailraceError as error:
            if error.code != "queue.claim_lost":
                self._fail(claim, claims, application, error)
                return
            application.rollback()
            with suppress(TailraceError):  # it may be another's already
                claims.give_back(claim)
        except Exception as error:  # noqa: BLE001  providers are anybody's
            self._fail(claim, claims, application, error)

    def _fail(self, claim: Claim, claims: Claims, application: Application, error: Exception) -> None:
        application.rollback()
        self._report(f"snapshot {claim.attempt} of {self._client} failed: {_text(error)}")
        with suppress(TailraceError):
            claims.fail(claim, _text(error), min(RETRY_S_MAX, self._retry_s * 2 ** min(claim.failures, 30)))

    def _beat(self, context: SnapshotContext, claim: Claim, over: threading.Event) -> None:
        """Show life while the provider is at work, whatever it does, and notice when it is not wanted any more."""
        application: Application | None = None
        while not over.wait(self._lease_s / 4):
            try:
                application = application or application_of(self._connect())
                Claims(application).renew(claim, context.done, context.total)
            except Exception as error:  # noqa: BLE001  each driver has errors of its own
                if isinstance(error, TailraceError) and error.code == "queue.claim_lost":
                    over.set()
                _close(application)
                application = None
        _close(application)


def _close(application: Application | None) -> None:
    if application is not None:
        with suppress(Exception):
            application.close()


def _text(error: Exception) -> str:
    told: Any = error if isinstance(error, TailraceError) else f"{type(error).__name__}: {error}"
    return masked(str(told))[:_ERROR_CHARS]
