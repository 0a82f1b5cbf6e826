"""A node at work: its journal, its store, its server, and an applier for each source."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.identity import identity_of as log_identity
from tailrace.message import NodeId
from tailrace.node.form import NodeForm, NodeSpec, SourceForm
from tailrace.node.identity import Identity, enter, identity_of
from tailrace.node.store import Store
from tailrace.relay.applier import Applier, Progress, Source, State
from tailrace.relay.flight import RelayServer
from tailrace.relay.join import Joins
from tailrace.relay.joining import Joining
from tailrace.relay.journal import Journal
from tailrace.relay.service import Service
from tailrace.relay.vclock import Vclock

POLL_S: Final = 0.05
"""How often the store is looked at for changes of its own."""
_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Peer:
    """One that follows this node."""

    node: NodeId
    acknowledged: Vclock
    behind: int
    """Messages that it does not have yet."""


class Node:
    """`with Node(spec, report) as node`: everything runs until the end of the block."""

    def __init__(self, spec: NodeSpec, report: Callable[[str], None]) -> None:
        self._spec = spec
        self._report = report
        self._closing = ExitStack()
        self._stopping = threading.Event()
        self._joining = threading.Lock()
        self._told: dict[str, str] = {}
        self.appliers: list[Applier] = []

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._open(opening)
            self._closing = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._closing.close()

    @property
    def identity(self) -> Identity:
        return self._service.identity

    @property
    def vclock(self) -> Vclock:
        return self._journal.vclock

    @property
    def port(self) -> int:
        return int(self._server.port)

    def peers(self) -> list[Peer]:
        found = dict(self._service.following)
        return [Peer(NodeId(node), each.acknowledged, each.behind) for node, each in found.items()]

    def progress(self) -> dict[str, Progress]:
        """By source."""
        return {applier.source.name: applier.progress for applier in self.appliers}

    def _open(self, opening: ExitStack) -> None:
        form = self._spec.form
        os.makedirs(form.data, exist_ok=True)
        identity = enter(form.data) if form.founder else identity_of(form.data)
        log_path = os.path.join(form.data, "log")
        log = opening.enter_context(CommitLog.open(log_path, LogConfig(segment_bytes=form.segment_bytes)))
        self._journal = Journal(log, identity.node)
        opening.callback(self._journal.remember)
        self._store = self._open_store(opening)
        self._joins = None
        if self._store is not None:
            self._joins = Joins(self._journal, self._store, os.path.join(form.data, "joins"))
            opening.callback(self._joins.close)
        self._service = Service(identity, self._journal, self._joins)
        self._server = RelayServer(
            self._service,
            location=f"{'grpc+tls' if form.tls else 'grpc'}://{form.listen}",
            tokens={name: token.get_secret_value() for name, token in form.tokens.items()},
            heartbeat_s=form.heartbeat,
            **_server_tls(form),
        )
        opening.callback(self._server.stop)
        for source in form.sources:
            self._follow(source, opening)
        if self._store is not None:
            worker = threading.Thread(target=self._tend_store, name="tailrace-store", daemon=True)
            worker.start()
            opening.callback(worker.join)
            opening.callback(self._stopping.set)

    def _open_store(self, opening: ExitStack) -> Store | None:
        spec = self._spec.store
        if spec is None:
            return None
        consumer = f"node-{log_identity(self._journal.log.directory)}"
        writing = spec.writing.model_copy(update={"consumer": consumer})
        reading = spec.reading
        if "pipeline" in type(reading).model_fields:
            reading = reading.model_copy(update={"pipeline": f"node {self._spec.form.node}"})
        namespace: re.Pattern[str] = spec.namespace
        store = Store(reading, writing, self._journal, namespace, replaces=spec.replaces, policies=spec.policies)
        opening.callback(store.close)
        return store

    def _follow(self, said: SourceForm, opening: ExitStack) -> None:
        source = Source(
            said.name,
            f"{'grpc+tls' if said.ca else 'grpc'}://{said.address}",
            said.token.get_secret_value(),
            _read(said.ca),
            _read(said.certificate),
            _read(said.key),
        )
        applier = Applier(
            source,
            self._service.identity,
            self._journal,
            heartbeat_s=self._spec.form.heartbeat,
            changed=lambda: self._tell(applier),
            join=self._join,
        )
        self.appliers.append(applier)
        applier.start()
        opening.callback(applier.stop)

    def _join(self, client: fl.FlightClient, source: Source, cluster: str) -> Identity:
        """Join the cluster, once, through whichever source is there first."""
        with self._joining:
            if self._service.identity.cluster is None:
                directory = os.path.join(self._spec.form.data, "joining")
                if self._store is None:
                    what = "a node without a store cannot join: there is no place for what the others have"
                    raise TailraceError("relay.no_snapshot", what, hint="give it a `store`")
                self._report(f"joins the cluster of {source.name}")
                Joining(source, self._service.identity, directory).run(client, self._journal, self._store)
                self._service.identity = enter(self._spec.form.data, cluster)
                self._report(f"has joined cluster {cluster}")
            return self._service.identity

    def _tend_store(self) -> None:
        """Carry changes both ways, for as long as the node runs; what fails is told and tried again."""
        store = self._store
        while store is not None and not self._stopping.is_set():
            try:
                if self._service.identity.cluster is not None:
                    store.capture()
                    store.apply()
                if self._joins is not None:
                    self._joins.forget_old()
                self._tell_once("store", "")
                self._stopping.wait(POLL_S)
            except TailraceError as error:
                self._tell_once("store", f"the store is not served: {error}")
                self._stopping.wait(_AGAIN_S)

    def _tell(self, applier: Applier) -> None:
        progress = applier.progress
        if progress.state in (State.CONNECT, State.READY, State.REGISTER):
            return  # only on the way
        why = f": {progress.error}" if progress.error is not None else ""
        self._tell_once(applier.source.name, f"source {applier.source.name}: {progress.state}{why}")

    def _tell_once(self, about: str, text: str) -> None:
        if self._told.get(about, "") != text:
            self._told[about] = text
            if text:
                self._report(text)


def _server_tls(form: NodeForm) -> dict[str, Any]:
    if form.tls is None:
        return {}
    found: dict[str, Any] = {"tls_certificates": [(_read(form.tls.certificate), _read(form.tls.key))]}
    if form.tls.clients is not None:
        found |= {"verify_client": True, "root_certificates": _read(form.tls.clients)}
    return found


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as stream:
            return stream.read(1 << 20)
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}"
        raise TailraceError("config.invalid", what, hint="name a file in PEM that can be read") from None
