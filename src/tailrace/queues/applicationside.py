"""The application's side of a site: an outbox that is captured, and told where messages can be sent and which snapshots
are wanted. Clients whose applications share a database share it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.identity import identity_of
from tailrace.queues.capturing import Capturing
from tailrace.queues.form import OutboxForm
from tailrace.queues.fullness import Fullness
from tailrace.queues.outbox import Asked, Outbox, Owner
from tailrace.queues.requests import Requests

_LOOK_S: Final = 0.25
_AGAIN_S: Final = 2.0


class ApplicationSide:
    """Of one outbox. `run` and `tend` are for one thread each."""

    def __init__(
        self,
        form: OutboxForm,
        site: str,
        clients: Sequence[str],
        log: CommitLog,
        requests: Requests,
        destinations: Callable[[str], Mapping[str, Fullness]],
        report: Callable[[str], None],
        appended: Callable[[], None],
    ) -> None:
        """`destinations` says of a client where it can send to, and what is full."""
        self._outbox = _open(form, Owner(site, identity_of(log.directory)))
        self._clients = clients
        self._requests = requests
        self._destinations = destinations
        self._report = report
        self.asked: list[Asked] = []
        """The snapshots that are wanted, as they stood when that was last told."""
        self.capturing = Capturing(_name(form), self._outbox, log, report=report, appended=appended)

    def run(self, stopping: threading.Event) -> None:
        """Capture what applications leave, until it is stopped."""
        self.capturing.run(stopping)

    def tend(self, stopping: threading.Event) -> None:
        """Keep the outbox told, until it is stopped. That the database is away is told by who reads it."""
        while not stopping.is_set():
            try:
                self.tell()
                stopping.wait(_LOOK_S)
            except TailraceError:
                stopping.wait(_AGAIN_S)

    def tell(self) -> None:
        """Say where messages can be sent, ask for the snapshots that are wanted, and for no others."""
        wanted = [request for client in self._clients for request in self._requests.open(client)]
        for client in self._clients:
            self._outbox.set_destinations(client, self._destinations(client))
        for client in self._outbox.clients() - set(self._clients):
            self._outbox.set_destinations(client, {})
        for request in wanted:
            self._outbox.ask(request.id, request.client, request.sites)
        known = {request.id for request in wanted}
        standing = self._outbox.requests()
        for asked in standing:
            if asked.request not in known:
                self._outbox.withdraw(asked.request)
        self.asked = [asked for asked in standing if asked.request in known]

    def close(self) -> None:
        self.capturing.close()
        self._outbox.close()


def _open(form: OutboxForm, owner: Owner) -> Outbox:
    if form.sqlite is not None:
        from tailrace.queues.outboxsqlite import SqliteOutbox

        return SqliteOutbox(form.sqlite, owner)

    from tailrace.queues.outboxpostgres import PostgresOutbox

    return PostgresOutbox(form.address, owner)


def _name(form: OutboxForm) -> str:
    return f"o{hashlib.sha256(form.address.encode()).hexdigest()[:16]}"
