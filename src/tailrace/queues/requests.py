"""Requests: the snapshots that sinks need, kept so that a restart forgets none.

Sites that need one at about the same time share a request: the client's data is read once for all of them.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tailrace.log.disk import Disk, disk_errors

GATHER_S: Final = 0.2
"""So long others are waited for before a request is made."""


@dataclass(slots=True)
class Request:
    """One snapshot of one client's data, for some sites."""

    id: str
    client: str
    base: int
    """Entries from this place of the log on follow it."""
    sites: list[str]
    """Those that have not got it yet."""


@dataclass(slots=True)
class _Kept:
    requests: list[Request] = field(default_factory=list)
    forced: list[tuple[str, str]] = field(default_factory=list)
    """Clients and sites for which somebody wants a snapshot."""


class Requests:
    """Of one site. Any thread may call."""

    def __init__(
        self,
        path: str,
        end: Callable[[], int],
        ask: Callable[[Request], None],
        over: Callable[[Request], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """They are kept in a file. `end` says where the log ends; `ask` tells the client of a new request, `over` that
        all sites have got it."""
        self._path = path
        self._end = end
        self._ask = ask
        self._over = over
        self._clock = clock
        self._turn = threading.RLock()
        self._waiting: dict[str, tuple[float, set[str]]] = {}
        """By client: since when some sites wait for a request, and which."""
        self._kept = _read(path)

    def open(self, client: str | None = None) -> list[Request]:
        """Those that are not over."""
        with self._turn:
            return [each for each in self._kept.requests if client in (None, each.client)]

    def need(self, client: str, site: str) -> Request | None:
        """The request that is for a site; None while it is made: ask again."""
        with self._turn:
            found = self._of(client, site)
            if found is not None:
                return found
            since_s, sites = self._waiting.setdefault(client, (self._clock(), set()))
            sites.add(site)
            if self._clock() - since_s < GATHER_S:
                return None
            del self._waiting[client]
            made = Request(secrets.token_hex(8), client, self._end(), sorted(sites))
            self._kept.requests.append(made)
            self._keep()
        self._ask(made)
        return made

    def force(self, client: str, site: str) -> None:
        """A site gets a new snapshot, whatever it has: also if it is down now, or this site ends before."""
        with self._turn:
            if (client, site) not in self._kept.forced:
                self._kept.forced.append((client, site))
            self._leave(client, site)
            self._keep()

    def is_forced(self, client: str, site: str) -> bool:
        with self._turn:
            return (client, site) in self._kept.forced

    def done(self, client: str, site: str, request: str) -> None:
        """A site has got the snapshot of a request. If another one was wished for since, that stays."""
        with self._turn:
            found = self._of(client, site)
            if found is None or found.id != request:
                return
            self._kept.forced = [each for each in self._kept.forced if each != (client, site)]
            over = self._leave(client, site)
            self._keep()
        for each in over:
            self._over(each)

    def give_up(self, client: str, site: str, request: str) -> None:
        """A site cannot get the snapshot of a request: some of it is gone. It needs another one."""
        with self._turn:
            found = self._of(client, site)
            if found is not None and found.id == request:
                self._leave(client, site)
                self._keep()

    def keep_only(self, sessions: Collection[tuple[str, str]]) -> None:
        """Forget what was for clients and sites that are there no more."""
        with self._turn:
            gone = [
                (each.client, site)
                for each in self._kept.requests
                for site in each.sites
                if (each.client, site) not in sessions
            ]
            for client, site in gone:
                self._leave(client, site)
            forced = [each for each in self._kept.forced if each in sessions]
            if gone or forced != self._kept.forced:
                self._kept.forced = forced
                self._keep()

    def ask_again(self) -> None:
        """Tell clients of all requests that are open, as after a restart."""
        for request in self.open():
            self._ask(request)

    def _of(self, client: str, site: str) -> Request | None:
        return next((each for each in self._kept.requests if each.client == client and site in each.sites), None)

    def _leave(self, client: str, site: str) -> list[Request]:
        """A site does not need the request that was for it any more; says which requests are over by that."""
        found = self._of(client, site)
        if found is None:
            return []
        found.sites.remove(site)
        if found.sites:
            return []
        self._kept.requests.remove(found)
        return [found]

    def _keep(self) -> None:
        with disk_errors("keeping requests for snapshots", self._path):
            Disk().replace_file(self._path, json.dumps(asdict(self._kept)).encode())


def _read(path: str) -> _Kept:
    with disk_errors("reading requests for snapshots", path):
        if not os.path.exists(path):
            return _Kept()
        with open(path, encoding="utf-8") as stream:
            told: dict[str, Any] = json.load(stream)
    forced = [(client, site) for client, site in told["forced"]]
    return _Kept([Request(**each) for each in told["requests"]], forced)
