"""A node of sync at work, as a file declares it: its database, its server for others, and sync with its peers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from tailrace.gauge import Gauge
from tailrace.sync.client import SyncNode
from tailrace.sync.continuous import Continuous
from tailrace.sync.form import SyncForm
from tailrace.sync.garbage import collect_seldom
from tailrace.sync.opening import opened
from tailrace.sync.peerloop import PeerStatus
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer, Tls

STANDINGS_EVERY_S: Final = 5.0
STANDINGS_MAX: Final = 200
"""So many nodes are told of."""


def _say_nothing(_status: PeerStatus) -> None:
    return


class SyncSite:
    """`with SyncSite(form, report) as site`: everything runs until the end of the block."""

    def __init__(
        self,
        form: SyncForm,
        report: Callable[[str], None],
        changed: Callable[[PeerStatus], None] = _say_nothing,
    ) -> None:
        """`changed` is told when something is new about a peer, by several threads."""
        self._form = form
        self._report = report
        self._changed = changed
        self._closing = ExitStack()
        self._server: SyncServer | None = None
        self.url: str | None = None
        """Where other nodes reach it."""

    def __enter__(self) -> SyncSite:
        form = self._form
        collect_seldom()
        with ExitStack() as opening:
            self._store = opening.enter_context(opened(form))
            self._standings = Gauge(self._store.standings, STANDINGS_EVERY_S)
            opening.callback(self._standings.close)
            if form.listen is not None:
                enrol = None if form.enrol is None else form.enrol.get_secret_value()
                tls = None if form.tls is None else Tls(form.tls.certificate, form.tls.key)
                options = ServerOptions(form.accept, enrol, form.origins, form.authors)
                self._server = opening.enter_context(SyncServer(self._store, form.listen, options, tls))
                self.url = self._server.url
            node = SyncNode.over(self._store, clock=form.clock.rule, warn=self._report)
            peers = [peer.address for peer in form.peers]
            self._running = opening.enter_context(Continuous(node, peers, changed=self._changed))
            self._closing = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @property
    def node(self) -> str:
        """Its number."""
        return str(self._store.node_id)

    def described(self) -> str:
        """What runs, for people."""
        where = f", reached at {self.url}" if self.url is not None else ""
        peers = ", ".join(peer.name for peer in self._form.peers)
        calls = f", calls {peers}" if peers else ""
        return f"sync of {self._store.database.place}, node {self.node}{where}{calls}"

    def status(self) -> dict[str, Any]:
        """How it is doing, as plain JSON."""
        fault = None if self._server is None else self._server.fault
        error = self._running.error or fault
        standings = self._standings.read()
        return {
            "node": self.node,
            "url": self.url,
            "error": None if error is None else error.encode(),
            "peers": [peer.told() for peer in self._running.status()],
            "known": None if standings is None else [each.told() for each in standings[:STANDINGS_MAX]],
        }
