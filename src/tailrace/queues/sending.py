"""Sending: an application gives payloads and their destinations, inside its own transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tailrace.errors import TailraceError
from tailrace.queues.application import application_of
from tailrace.queues.entries import Outgoing
from tailrace.queues.fullness import WhenFull, full_error
from tailrace.queues.leaving import Addressed, Beside, Leaving, leaving_of
from tailrace.queues.names import check_client, check_site
from tailrace.queues.payload import check_payload
from tailrace.queues.providing import LEASE_S, RETRY_S, Provider, Providing
from tailrace.queues.sent import Sent

if TYPE_CHECKING:
    from tailrace.queues.application import Connection

DESTINATIONS_MAX: Final = 10_000
"""Of one message: a frame has room for the names of so many."""
TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 0.05


class Transmitting(Protocol):
    """A site, for whom it is in the same process."""

    def transmit(self, entries: Sequence[Outgoing], *, timeout_s: float | None = None) -> Sent:
        """One transaction, as one group of the log; durable when this returns."""
        ...


class RoutingQueue:
    """What a client sends, and supplies. Any thread may use it, each with a connection of its own."""

    def __init__(self, client: str, *, site: Transmitting | None = None) -> None:
        """Through the outbox of the database that each call has a connection to, or straight through a site."""
        self.client = check_client(client)
        self._site = site
        self._beside = Beside()

    def transmit(
        self,
        connection: Connection | None,
        payload: bytes,
        destinations: Sequence[str],
        *,
        timeout_s: float | None = TIMEOUT_S,
    ) -> Sent:
        """Send one payload to some sites when the connection's transaction commits; nothing when it is rolled back."""
        return self.transmit_all(connection, [(payload, destinations)], timeout_s=timeout_s)

    def transmit_all(
        self, connection: Connection | None, messages: Sequence[Addressed], *, timeout_s: float | None = TIMEOUT_S
    ) -> Sent:
        """Send several payloads, all of them or, after an exception, none. While a destination with the policy `block`
        is full, this waits, and raises `queue.full` in the end."""
        wanted = [(check_payload(payload), _checked(sites)) for payload, sites in messages]
        if not wanted:
            return Sent()
        if self._site is not None:
            if connection is not None:
                what = "a queue that sends through a site has no part in a transaction of a database"
                raise TailraceError("input.invalid", what, hint="give None instead of a connection, or no site")
            entries = [Outgoing(self.client, payload, sites) for payload, sites in wanted]
            return self._site.transmit(entries, timeout_s=timeout_s)
        if connection is None:
            what = "a queue without a site sends through a database"
            raise TailraceError("input.invalid", what, hint="give a connection to it")
        leaving = leaving_of(application_of(connection), self._beside)
        left_out = self._admit(leaving, sorted({site for _, sites in wanted for site in sites}), timeout_s)
        admitted = [(payload, [site for site in sites if site not in left_out]) for payload, sites in wanted]
        if found := [(payload, sites) for payload, sites in admitted if sites]:
            leaving.write(self.client, found)
        return Sent(left_out)

    def provide_snapshots(
        self,
        connect: Callable[[], Connection],
        provider: Provider,
        *,
        lease_s: float = LEASE_S,
        retry_s: float = RETRY_S,
        report: Callable[[str], None] = lambda _: None,
    ) -> Providing:
        """Supply this client's data when a destination needs it: `with queue.provide_snapshots(...)`, or `serve`. The
        provider is called with a `SnapshotContext`; `connect` gives it connections to the outbox."""
        return Providing(self.client, connect, provider, lease_s=lease_s, retry_s=retry_s, report=report)

    def close(self) -> None:
        self._beside.close()

    def _admit(self, leaving: Leaving, sites: Sequence[str], timeout_s: float | None) -> tuple[str, ...]:
        """Those that are left out; waits for those that are worth it."""
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            known = leaving.fullness(self.client, sites)
            if unknown := [site for site in sites if site not in known]:
                what = f"{self.client} cannot send to {', '.join(unknown[:10])}"
                hint = "name the client and the destination in the node file of its site"
                raise TailraceError("queue.unknown_destination", what, hint=hint)
            full = {
                policy: [site for site in sites if known[site].is_full and known[site].policy is policy]
                for policy in WhenFull
            }
            if full[WhenFull.REJECT]:
                raise full_error(self.client, full[WhenFull.REJECT], "try again later")
            if not full[WhenFull.BLOCK]:
                return tuple(full[WhenFull.SHED])
            if not leaving.can_wait():
                hint = "waiting is of no use in a transaction that sees one moment only: end it, and try again"
                raise full_error(self.client, full[WhenFull.BLOCK], hint)
            if ends_s is not None and time.monotonic() >= ends_s:
                raise full_error(self.client, full[WhenFull.BLOCK], "try again later")
            time.sleep(_LOOK_S)


def _checked(sites: Sequence[str]) -> tuple[str, ...]:
    if isinstance(sites, str) or not all(isinstance(site, str) for site in sites):
        raise TailraceError("input.invalid", "destinations are a list of names", hint="write [name], also for one")
    if not sites:
        raise TailraceError("queue.no_destination", "a message goes nowhere", hint="name at least one destination")
    if len(sites) > DESTINATIONS_MAX:
        what = f"a message has {len(sites)} destinations, {DESTINATIONS_MAX} are allowed"
        raise TailraceError("queue.too_many", what, hint="send it several times")
    return tuple(dict.fromkeys(check_site(site) for site in sites))
