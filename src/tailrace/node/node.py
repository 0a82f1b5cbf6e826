"""A node at work: its journal, its store, its server, and an applier for each source."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.consumers import Consumers
from tailrace.log.identity import identity_of as log_identity
from tailrace.message import NodeId
from tailrace.node.access import Access, Writes
from tailrace.node.change import changed_batches
from tailrace.node.connecting import server_options, source_of
from tailrace.node.form import NodeForm, NodeSpec
from tailrace.node.gaps import Gaps
from tailrace.node.identity import Identity, become_registered, enter, identity_of
from tailrace.node.peers import Peer, peers
from tailrace.node.retaining import Retaining
from tailrace.node.store import Store
from tailrace.queues.guest import QueueGuest
from tailrace.queues.site import Site
from tailrace.relay.applier import Applier, Source, State, register
from tailrace.relay.commit import Committer
from tailrace.relay.copies import Copies
from tailrace.relay.flight import Call, RelayServer, ask
from tailrace.relay.guest import Guest
from tailrace.relay.holds import Held
from tailrace.relay.join import Joins
from tailrace.relay.joining import Joining
from tailrace.relay.journal import Journal
from tailrace.relay.reading import Readings
from tailrace.relay.request import Commit, Committed, Elect, Elected, Promoted
from tailrace.relay.service import Service
from tailrace.relay.subscription import PREFIX
from tailrace.relay.vclock import Vclock
from tailrace.topology.answers import Row
from tailrace.topology.sourceside import SourceSide, knobs_of

if TYPE_CHECKING:
    from tailrace.sync.site import SyncSite

POLL_S: Final = 0.05
"""How often the store is looked at for changes of its own."""
_AGAIN_S: Final = 1.0
_SWEEP_S: Final = 30.0
_AWAY: Final = ("source.unreachable", "destination.unreachable")


class Node:
    """`with Node(spec, report) as node`: everything runs until the end of the block."""

    def __init__(self, spec: NodeSpec, report: Callable[[str], None], ending: threading.Event | None = None) -> None:
        """`ending` is set by whoever wants it to end while it still waits for its store."""
        self._ending = ending or threading.Event()
        self._spec = spec
        self._report = report
        self._closing = ExitStack()
        self._stopping = threading.Event()
        self._joining = threading.Lock()
        self._told: dict[str, str] = {}
        self.appliers: list[Applier] = []
        self.store_error: TailraceError | None = None
        """Why the store is not served, while it is not."""
        self._access: Access | None = None
        self.site: Site | None = None
        """Its end of routing queues."""
        self.sync: SyncSite | None = None
        """Its end of sync."""

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
        """All for whom the log is kept, or was until they were away for too long. For one thread."""
        return peers(self._consumers, self._service.present())

    @property
    def slow(self) -> dict[str, float]:
        """Copies of its log that were not heard of for long, with the seconds."""
        return self._side.slow.copies

    def topology(self) -> list[Row]:
        """Who copies logs from whom, if this node serves the registry that knows."""
        return self._side.topology()

    def held(self) -> list[Held]:
        """The readers beside the cluster's nodes for which the log is kept."""
        return self._service.holds.all()

    @property
    def why_read_only(self) -> str | None:
        """Why programs cannot write the store; None when they can."""
        return None if self._access is None else self._access.why_closed

    @property
    def leader(self) -> tuple[int, NodeId]:
        """The term, and who leads; 0 when nobody does."""
        return self._journal.limbo.term, self._journal.limbo.leader

    def promote(self) -> Promoted:
        """Lead from now on, if enough sources agree."""
        cluster = self.identity.cluster
        if cluster is None:
            raise TailraceError("relay.loading", "the node has not joined yet", hint="try again in a moment")
        term = self._committer.promote(cluster, self._elect)
        self._report(f"leads since term {term}")
        return Promoted(term=term)

    def commit(self, request: Commit) -> Committed:
        """One synchronous transaction."""
        if self._store is None:
            what = "a node without a store does not know what its tables look like"
            raise TailraceError("relay.no_snapshot", what, hint="commit at a node that has a `store`")
        batches = changed_batches(request.changes, self._store.by_namespace())
        try:
            self._store.try_out(batches)
        except TailraceError as error:
            if error.code != "destination.refused":
                raise
            raise TailraceError("input.invalid", error.what, hint="correct the rows") from error
        return Committed(lsn=self._committer.commit(batches, acks=request.acks, timeout_s=request.timeout_s))

    def _elect(self, request: Elect) -> list[Elected]:
        found = []
        for applier in self.appliers:
            with suppress(TailraceError), applier.source.client() as client:
                token, timeout_s = applier.source.token, self._spec.form.synchronous.timeout
                found += [Elected.read(said) for said in ask(client, Call.ELECT, request, token, timeout_s)]
        return found

    def _open(self, opening: ExitStack) -> None:
        form = self._spec.form
        os.makedirs(form.data, exist_ok=True)
        identity = enter(form.data) if form.founder else identity_of(form.data)
        if form.anonymous and identity.cluster is not None and not identity.is_anonymous:
            what = "anonymous: this node is registered in its cluster, and stays so"
            raise TailraceError("config.invalid", what, hint="take it away, or begin with a new `data`")
        log_path = os.path.join(form.data, "log")
        log = opening.enter_context(CommitLog.open(log_path, LogConfig(segment_bytes=form.segment_bytes)))
        self._journal = Journal(log, identity.node)
        self._store = self._await_store(opening)
        knobs = knobs_of(form)
        has_store = self._store is not None
        self._retaining = Retaining(self._journal, form.retention, self._report, has_store=has_store, knobs=knobs)
        opening.callback(self._retaining.close)
        self._consumers = Consumers(log_path)
        self._joins = None
        if self._store is not None:
            self._joins = Joins(self._journal, self._store, os.path.join(form.data, "joins"))
            opening.callback(self._joins.close)
        hold = None if form.retention is None else form.retention.hold()
        self._service = Service(identity, self._journal, self._joins, hold_s=form.anonymous_ttl, hold=hold)
        self._committer = Committer(self._service, acks=form.synchronous.acks, timeout_s=form.synchronous.timeout)
        if self._store is not None:
            self._service.serve_pipelines(self._readings(self._store, opening))
        self._side = SourceSide(form, log_path, self._service.holds, knobs, self._report, opening)
        self._server = RelayServer(
            self._service,
            heartbeat_s=form.heartbeat,
            operator=None if form.operator is None else (form.operator.get_secret_value(), self),
            guests=[*self._side.guests, *self._queues(form, opening)],
            **server_options(form.listen, form.tokens, form.tls),
        )
        opening.callback(self._server.stop)
        self._sync(form, opening)
        for work in self._side.begin(self.port, self._stopping, opening):
            self._begin(threading.Thread(target=work, name="tailrace-topology"), opening)
        if form.iproto is not None:
            opening.enter_context(_front(self._service, form, form.iproto))
        sources = [source_of(said) for said in form.sources]
        self._gaps = Gaps(self._service, sources, self._store, form.data, self._report, may_resnapshot=form.resnapshot)
        for source in sources:
            self._follow(source, opening)
        threading.Thread(target=self._committer.resume, name="tailrace-undecided", daemon=True).start()
        self._begin(threading.Thread(target=self._tend_holds, name="tailrace-holds"), opening)
        if self._store is not None:
            self._access = self._make_access(self._store)
            self._access.settle()
            for unknown in self._store.idle_policies() if identity.cluster is not None else ():
                self._report(f"there is no table {unknown} yet, for which `conflicts` has a policy")
            self._begin(threading.Thread(target=self._tend_store, name="tailrace-store"), opening)
        retention = threading.Thread(target=self._retaining.run, args=(self._stopping,), name="tailrace-retention")
        self._begin(retention, opening)

    def _queues(self, form: NodeForm, opening: ExitStack) -> list[Guest]:
        if form.queues is None:
            return []
        self.site = opening.enter_context(Site(form.queues, form.node, form.data, self._report))
        return [QueueGuest(self.site.sink)]

    def _sync(self, form: NodeForm, opening: ExitStack) -> None:
        if form.sync is not None:
            from tailrace.sync.packages import check_packages

            check_packages("httpx", "starlette", "uvicorn", extra="sync")
            from tailrace.sync.site import SyncSite

            self.sync = opening.enter_context(SyncSite(form.sync, self._report))
            self._report(self.sync.described())

    def _begin(self, worker: threading.Thread, opening: ExitStack) -> None:
        worker.daemon = True
        worker.start()
        opening.callback(worker.join)
        opening.callback(self._stopping.set)

    def _readings(self, store: Store, opening: ExitStack) -> Readings:
        copies = Copies(store, os.path.join(self._spec.form.data, "copies"))
        opening.callback(copies.close)
        return Readings(self._journal, self._service.consumers, self._service.holds, store, copies)

    def _await_store(self, opening: ExitStack) -> Store | None:
        """A database that is away for a while is waited for, if the node has had it before."""
        while True:
            try:
                return self._open_store(opening)
            except TailraceError as error:
                if error.code not in _AWAY or not self._journal.end:
                    raise
                self._tell_once("store", f"the store is waited for: {error}")
                if self._ending.wait(_AGAIN_S):
                    raise

    def _open_store(self, opening: ExitStack) -> Store | None:
        spec = self._spec.store
        if spec is None:
            return None
        consumer = f"node-{log_identity(self._journal.log.directory)}"
        writing = spec.writing.model_copy(update={"consumer": consumer})
        reading = spec.reading_as(f"node {self._spec.form.node}")
        if self._spec.form.founder:
            with closing(reading.open()) as reader:
                reader.tables()  # a newcomer's database may be made now, a founder's is there
        namespace: re.Pattern[str] = spec.namespace
        store = Store(
            reading,
            writing,
            self._journal,
            namespace,
            replaces=spec.replaces,
            policies=spec.policies,
            is_read_only=self._spec.form.anonymous,
        )
        opening.callback(store.close)
        return store

    def _follow(self, source: Source, opening: ExitStack) -> None:
        applier = Applier(
            source,
            self._service.identity,
            self._journal,
            heartbeat_s=self._spec.form.heartbeat,
            changed=lambda: self._tell(applier),
            join=self._join,
            is_anonymous=self._spec.form.anonymous,
            close_gap=self._gaps.close,
        )
        self.appliers.append(applier)
        applier.start()
        opening.callback(applier.stop)

    def _join(self, client: fl.FlightClient, source: Source, cluster: str) -> Identity:
        """Join the cluster, once, through whichever source is there first; register if it only read until now."""
        is_anonymous = self._spec.form.anonymous
        with self._joining:
            if self._service.identity.is_anonymous and not is_anonymous:
                register(client, source, self._service.identity, self._journal.vclock, is_newcomer=True)
                self._service.identity = become_registered(self._spec.form.data)
                self._report("is registered in its cluster now")
            if self._service.identity.cluster is None:
                self._tell_once("join", f"joins the cluster of {source.name}")
                if self._store is None:
                    self._join_without_rows(client, source, cluster)
                else:
                    directory = os.path.join(self._spec.form.data, "joining")
                    joining = Joining(source, self._service.identity, directory, is_anonymous=is_anonymous)
                    joining.run(client, self._journal, self._store)
                self._service.identity = enter(self._spec.form.data, cluster, is_anonymous=is_anonymous)
                self._report(f"has joined cluster {cluster}")
            return self._service.identity

    def _join_without_rows(self, client: fl.FlightClient, source: Source, cluster: str) -> None:
        """There is no place for a snapshot: a node without a store gets the whole log, from its beginning on."""
        if not self._spec.form.anonymous:
            newcomer = replace(self._service.identity, cluster=cluster)
            register(client, source, newcomer, self._journal.vclock, is_newcomer=True)

    def _tend_store(self) -> None:
        """Carry changes both ways, for as long as the node runs; what fails is told and tried again."""
        store = self._store
        while store is not None and not self._stopping.is_set():
            try:
                if self._service.identity.cluster is not None:
                    store.capture()
                    store.apply()
                    self._tell_once("tables", "".join(f"a table is left out: {why}" for why in store.left_out()[:1]))
                    self._settle_access()
                    self._committer.close_rollbacks()
                self.store_error = None
                self._tell_once("store", "")
                self._stopping.wait(POLL_S)
            except TailraceError as error:
                self.store_error = error
                self._tell_once("store", f"the store is not served: {error}")
                self._stopping.wait(_AGAIN_S)

    def _make_access(self, store: Store) -> Access:
        form = self._spec.form
        is_alone = form.founder and not any(name.startswith(PREFIX) for name in self._service.consumers.names())
        quorum = len(form.sources) // 2 + 1 if form.quorum is None else form.quorum
        return Access(
            store,
            quorum=0 if is_alone or not form.sources else quorum,
            states=lambda: [applier.progress.state for applier in self.appliers],
            refusal=self._why_read_only,
        )

    def _why_read_only(self) -> str | None:
        if self._spec.form.anonymous:
            return "the node only reads (`anonymous: true`)"
        if self._spec.form.writes is Writes.LEADER and not self._committer.is_leading:
            return "only the leader is written (`writes: leader`)"
        return None

    def _settle_access(self) -> None:
        if self._access is not None:
            self._access.settle()
            why = self._access.why_closed
            if why is not None:
                self._tell_once("access", f"the store is read-only: {why}")
            elif self._told.get("access"):
                self._tell_once("access", "the store can be written")

    def _tend_holds(self) -> None:
        """Let go of what nobody asks for any more."""
        while not self._stopping.wait(min(_SWEEP_S, self._spec.form.anonymous_ttl / 4)):
            try:
                for name in self._service.sweep():
                    self._report(f"the log is not kept any more for {name}, which was not heard of")
            except TailraceError as error:
                self._tell_once("holds", f"who reads the log cannot be looked at: {error}")

    def _tell(self, applier: Applier) -> None:
        progress = applier.progress
        if progress.state in (State.CONNECT, State.READY, State.REGISTER, State.JOIN):
            return  # only on the way
        why = f": {progress.error}" if progress.error is not None else ""
        self._tell_once(applier.source.name, f"source {applier.source.name}: {progress.state}{why}")

    def _tell_once(self, about: str, text: str) -> None:
        if self._told.get(about, "") != text:
            self._told[about] = text
            if text:
                self._report(text)


def _front(service: Service, form: NodeForm, address: str) -> AbstractContextManager[Any]:
    from tailrace.adaptor.tarantool.front.server import Front

    host, _, port = address.rpartition(":")
    tokens = {name: token.get_secret_value() for name, token in form.tokens.items()}
    return Front(service, form.data, (host.strip("[]"), int(port)), tokens=tokens, heartbeat_s=form.heartbeat)
