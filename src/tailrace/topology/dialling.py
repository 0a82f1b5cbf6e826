"""Dialling: the end of a reverse connection at the source. It calls replicas that may not connect upwards, and serves
them through the connection that it made: its log's bytes and nothing else."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, Self

from tailrace.errors import TailraceError
from tailrace.node.connecting import registry_at, tls_options
from tailrace.node.form import DialForm, TlsForm
from tailrace.topology.handshake import TIMEOUT_S, greet_replica
from tailrace.topology.knobs import Knobs
from tailrace.topology.member import State
from tailrace.topology.pulling import Pulling
from tailrace.topology.registryclient import RegistryClient
from tailrace.topology.serving import GuestServer, LogGuest, TracedGuest
from tailrace.topology.site import Site
from tailrace.topology.tunnel import join_ends

PEER: Final = "reverse"


class _Link:
    """Whom one thread dials, as long as that is wanted."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self._connection: socket.socket | None = None

    def hold(self, connection: socket.socket) -> None:
        """The connection that ends with the link."""
        self._connection = connection
        if self.is_over.is_set():
            self.end()

    def end(self) -> None:
        self.is_over.set()
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


class Dialling:
    """`with Dialling(…)`: replicas are dialled until the end of the block."""

    def __init__(
        self,
        site: Site,
        secret: str,
        pulling: Pulling,
        hosts: Callable[[], Collection[Site]],
        knobs: Knobs,
        report: Callable[[str], None],
        **tls: Any,
    ) -> None:
        """`hosts` says whom to dial; when it cannot, it stays as it was. What goes through a connection is encrypted as
        `tls` says."""
        self._site = site
        self._secret = secret
        self._hosts = hosts
        self._report = report
        self._knobs = knobs
        self._trace = knobs.tracing("revsql_debug", report)
        self._stopping = threading.Event()
        self._links: dict[Site, _Link] = {}
        location = f"{'grpc+tls' if tls else 'grpc'}://127.0.0.1:0"
        guest = TracedGuest(LogGuest(pulling), knobs.tracing("revsql_cdb2_debug", report))
        self._server = GuestServer([guest], location=location, tokens={PEER: secret}, **tls)
        self._thread = threading.Thread(target=self._run, name="tailrace-dialling", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.stop()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(TailraceError):
                wanted = set(self._hosts())
                self._trace(f"{len(wanted)} replicas wait to be dialled")
                for site in self._links.keys() - wanted:
                    self._links.pop(site).end()
                for site in wanted - self._links.keys():
                    link = self._links[site] = _Link()
                    threading.Thread(target=self._keep, args=(site, link), name="tailrace-link", daemon=True).start()
            self._knobs.pause("revsql_host_refresh_freq_sec", self._stopping)

    def _keep(self, replica: Site, link: _Link) -> None:
        """Dial one replica again and again."""
        told = ""
        while not self._stopping.is_set() and not link.is_over.is_set():
            try:
                self._dial(replica, link)
                self._trace(f"the connection to {replica.host} has ended")
                told = ""
            except (TailraceError, OSError) as error:
                if str(error) != told:
                    told = str(error)
                    self._report(f"{replica.host} was dialled in vain: {error}")
            chance = random.uniform(0.8, 1.2)  # noqa: S311  not all at once
            self._knobs.pause("revsql_connect_freq_sec", self._stopping, chance)

    def _dial(self, replica: Site, link: _Link) -> None:
        self._trace(f"dials {replica.host}")
        host, _, port = replica.host.rpartition(":")
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_S)
        try:
            reached = greet_replica(connection, self._site, self._secret)
            if reached.database != self._site.database:
                what = f"{replica.host} replicates {reached.database}, which is another log"
                raise TailraceError("topology.handshake", what, hint="correct the rule in the registry")
            self._trace(f"{replica.host} has answered")
            inside = socket.create_connection(("127.0.0.1", self._server.port), timeout=TIMEOUT_S)
            connection.settimeout(None)
            inside.settimeout(None)
            link.hold(connection)
            join_ends(connection, inside)
        finally:
            connection.close()


def dialling(
    said: DialForm, listen: str, tls: TlsForm | None, pulling: Pulling, knobs: Knobs, report: Callable[[str], None]
) -> Dialling:
    """As a node file says."""
    client = RegistryClient(registry_at(said.registry))
    site = Site(said.registry.database, said.registry.advertise or listen)
    is_known = False

    def hosts() -> Collection[Site]:
        nonlocal is_known
        if not is_known:
            client.reset_nodes([site], State.ACTIVE)  # it is one at the top
            is_known = True
        return client.get_reverse_hosts(site)

    return Dialling(
        site,
        said.secret.get_secret_value(),
        pulling,
        hosts,
        knobs,
        report,
        **tls_options(tls),
    )
