"""The keys of a node file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from tailrace.adaptor.options import Bytes, FilePath, Options, ReaderOptions, Seconds, WriterOptions
from tailrace.limits import HOLD_S, SEGMENT_BYTES_DEFAULT, U64_MAX, WEB_TOKEN_LETTERS_MIN
from tailrace.log.agreement import Hold, Policy
from tailrace.node.access import Writes
from tailrace.node.conflict import Policies
from tailrace.node.conflict import Policy as ConflictPolicy
from tailrace.pipeline.form import NamespacePattern
from tailrace.pipeline.names import name_problem
from tailrace.pipeline.parts import Parts
from tailrace.pipeline.problem import Problem, unknown_key
from tailrace.pipeline.spec import EVERYTHING
from tailrace.queues.form import QueuesForm
from tailrace.relay.address import PORT, Address, is_loopback
from tailrace.relay.names import OPERATOR
from tailrace.sync.form import SyncForm
from tailrace.topology.tunables import Value, read_file

FANOUT: Final = 8
"""So many copy one log at the same time, unless somebody says otherwise."""
_OWN_KEYS: Final = ["namespace", "replace", "conflict", "conflicts"]


NodeNumber = Annotated[int, Field(gt=0, le=U64_MAX)]
"""What `tailrace node status` shows behind a node's name."""


Token = Annotated[SecretStr, Field(min_length=1)]
"""A word that only two know."""


OwnTunables = Annotated[
    dict[str, Value],
    BeforeValidator(read_file, json_schema_input_type=dict[str, Value]),
]
"""By name: what holds for this node, whatever the registry says."""


class TlsForm(Options):
    """How connections to a node are encrypted."""

    certificate: FilePath
    """The node's certificate, in PEM."""
    key: FilePath
    """Its private key, in PEM."""
    clients: FilePath | None = None
    """Certificates that sign those of peers: then peers must show one (mutual TLS)."""


class SourceForm(Options):
    """A node that this one follows."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
    """What it is called here."""
    address: Address
    """Where it listens."""
    token: Token
    """What this node says there to be let in."""
    ca: FilePath | None = None
    """Certificates that sign its own: then the connection is encrypted."""
    certificate: FilePath | None = None
    """This node's certificate, for a source that wants one."""
    key: FilePath | None = None
    """Its private key."""
    namespace: NamespacePattern | None = None
    """Only messages of namespaces in which this regular expression is found; of others come as many noops."""
    without: tuple[NodeNumber, ...] = ()
    """Numbers of nodes whose messages are not wanted from this source."""


class RetentionForm(Options):
    """What of its log a node removes when nobody needs it any more."""

    every: Annotated[Seconds, Field(gt=0)] = 60.0
    """How often it is looked at."""
    keep_bytes: Bytes = 0
    """At least so much of the log's end stays."""
    keep_age: Seconds = 0.0
    """What is not older stays."""
    cap_bytes: Bytes | None = None
    """Past so many bytes the log is not kept for a peer any more, which then needs a new snapshot."""
    cap_age: Seconds | None = None
    """Past this age the log is not kept for a peer any more, which then needs a new snapshot."""

    @model_validator(mode="after")
    def _keeps_less_than_cap(self) -> RetentionForm:
        if self.cap_bytes is not None and self.cap_bytes < self.keep_bytes:
            raise ValueError("cap_bytes: a peer would lose what is kept anyway; let it be at least keep_bytes")
        if self.cap_age is not None and self.cap_age < self.keep_age:
            raise ValueError("cap_age: a peer would lose what is kept anyway; let it be at least keep_age")
        return self

    def said_tunables(self) -> dict[str, Value]:
        """What its keys say that is a tunable, too."""
        return {"physrep_check_minlog_freq_sec": self.every} if "every" in self.model_fields_set else {}

    def hold(self) -> Hold:
        """How much a peer may hold back."""
        has_cap = self.cap_bytes is not None or self.cap_age is not None
        return Hold(Policy.CAP if has_cap else Policy.HOLD, self.cap_bytes, self.cap_age)


class PlacingForm(Options):
    """A registry that is asked."""

    address: Address
    """Where the node listens that serves the registry."""
    token: Token
    """What this node says there to be let in."""
    ca: FilePath | None = None
    """Certificates that sign its own: then the connection is encrypted."""
    certificate: FilePath | None = None
    """This node's certificate, for a registry that wants one."""
    key: FilePath | None = None
    """Its private key."""
    database: Annotated[str, Field(min_length=1, max_length=60)]
    """What the log is called there."""
    advertise: Address | None = None
    """Where others reach this node; where it listens unless said."""


class DialForm(Options):
    """Replicas that cannot connect to this node, and are dialled."""

    secret: Token
    """What both know."""
    registry: PlacingForm
    """Who says which replicas these are."""
    refresh: Annotated[Seconds, Field(gt=0)] = 5.0
    """How often the registry is asked."""
    every: Annotated[Seconds, Field(gt=0)] = 5.0
    """How often a replica is dialled that has no connection."""


class RegistryForm(Options):
    """A registry, and where it keeps what it knows: one of the two."""

    path: FilePath | None = None
    """A SQLite database."""
    url: SecretStr | None = None
    """A PostgreSQL database, `postgresql://…`."""
    database: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    """What this node's own log is called there: then it is known as a source of it."""
    advertise: Address | None = None
    """Where others reach this node; where it listens unless said."""

    @model_validator(mode="after")
    def _is_one(self) -> RegistryForm:
        if (self.path is None) == (self.url is None):
            raise ValueError("name either a path or a url")
        return self

    @property
    def address(self) -> str:
        return self.path or (self.url.get_secret_value() if self.url is not None else "")


class WebForm(Options):
    """A status page."""

    listen: Address = "127.0.0.1:8480"
    """Where it is served. An address that is not loopback needs `tls`."""
    token: Token
    """What whoever looks must say."""
    hosts: tuple[str, ...] = ()
    """Names under which it is reached, beside the address itself."""


class SynchronousForm(Options):
    """When a synchronous transaction has happened."""

    acks: int = Field(default=1, ge=0)
    """So many other nodes must have it."""
    timeout: Annotated[Seconds, Field(gt=0)] = 5.0
    """After so long without it is rolled back."""


class NodeForm(Options):
    """What can be said about a node beside its store."""

    node: str
    """The node's name, for people."""
    data: FilePath
    """The directory in which it keeps who it is, and its log."""
    listen: Address = f"127.0.0.1:{PORT}"
    """Where peers reach it."""
    tokens: dict[str, Token] = Field(default_factory=dict)
    """By peer: what it must say to be let in."""
    tls: TlsForm | None = None
    """How connections to it are encrypted."""
    iproto: Address | None = None
    """Where Tarantools reach it that follow it as one of theirs (experimental); nowhere unless said."""
    sources: tuple[SourceForm, ...] = ()
    """The nodes that it follows."""
    founder: bool = False
    """Whether it begins a cluster of its own if it belongs to none; otherwise it joins through one of its sources."""
    quorum: int | None = Field(default=None, ge=0)
    """So many sources must be in sync before programs may write the store; by default more than half of them. A node
    that nobody ever joined is writable at once."""
    writes: Writes = Writes.ANY
    """Whether programs may write the store of every node, or only that of the leader."""
    synchronous: SynchronousForm = SynchronousForm()
    """When a synchronous transaction has happened."""
    operator: Token | None = None
    """What operators and applications must say to promote the node and to commit through it."""
    anonymous: bool = False
    """Whether it only reads: its cluster does not know it, and changes of its own store are refused."""
    anonymous_ttl: Annotated[Seconds, Field(gt=0)] = HOLD_S
    """How long the log is kept for anonymous peers, and for pipelines that read it, after they were last heard of."""
    heartbeat: Annotated[Seconds, Field(gt=0)] = 1.0
    """How often a peer hears from it; after four times as long without a word a connection is given up."""
    fanout: Annotated[int, Field(ge=1)] = FANOUT
    """So many may copy its log, byte for byte, at the same time."""
    registry: RegistryForm | None = None
    """The registry of a topology, which this node serves."""
    announce: PlacingForm | None = None
    """A registry elsewhere that knows this node as a source; the one of `dials` unless said."""
    dials: DialForm | None = None
    """Replicas that cannot connect to this node, and are dialled."""
    tunables: OwnTunables = Field(default_factory=dict)
    """Tunables of the topology that hold for this node, whatever the registry says."""
    queues: QueuesForm | None = None
    """Routing queues: what is sent from here, and to whom. Whoever sends to this node is called like its token."""
    sync: SyncForm | None = None
    """Tables that are synced with other nodes, which may be away for long, and written anywhere."""
    web: WebForm | None = None
    """A status page, with metrics; none unless said."""
    segment_bytes: Bytes = SEGMENT_BYTES_DEFAULT
    """The size at which a file of the log is sealed and a new one begun."""
    retention: RetentionForm | None = None
    """What is removed from the log; nothing when it is not said."""
    resnapshot: bool = False
    """Whether the store's rows are replaced by a source's when nobody has the messages any more that are missing."""

    @model_validator(mode="after")
    def _is_safe(self) -> NodeForm:
        check_listen(self.listen, is_safe=self.tls is not None and bool(self.tokens))
        if self.web is not None:
            check_web(self.web, is_encrypted=self.tls is not None)
        if OPERATOR in self.tokens:
            raise ValueError(f"tokens: no peer can be called {OPERATOR}, which has a key of its own")
        if self.dials is not None and self.tls is None and not is_loopback(self.dials.registry.address):
            raise ValueError("dials: others could read what goes through these connections, so `tls` is needed")
        if self.registry is not None and self.registry.database is not None and self.announce is not None:
            raise ValueError("announce: its own registry knows this node already; name one of the two")
        check_said_once(self.tunables, self.said_tunables())
        words = [token.get_secret_value() for token in (*self.tokens.values(), self.operator) if token is not None]
        if len(set(words)) < len(words):
            raise ValueError("tokens: two have the same, peers or the operator, so nobody could tell who asks")
        if self.iproto is not None and not is_loopback(self.iproto):
            raise ValueError("iproto: Tarantool's protocol is not encrypted, so only loopback is served; use a tunnel")
        if not self.founder and not self.sources:
            raise ValueError("a node that follows nobody begins a cluster: say `founder: true`, or name its sources")
        if self.quorum is not None and self.quorum > len(self.sources):
            raise ValueError(f"quorum: {self.quorum} of {len(self.sources)} sources can never be in sync")
        if self.founder and self.anonymous:
            raise ValueError("anonymous: a node that begins a cluster is one of its nodes")
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError("sources: two have the same name")
        if why := name_problem(self.node, "node"):
            raise ValueError(f"node: {why}")
        return self

    def said_tunables(self) -> dict[str, Value]:
        """What keys of their own say that is a tunable, too."""
        found: dict[str, Value] = {}
        if "fanout" in self.model_fields_set:
            found["physrep_fanout"] = self.fanout
        if self.retention is not None:
            found |= self.retention.said_tunables()
        if self.dials is not None and "refresh" in self.dials.model_fields_set:
            found["revsql_host_refresh_freq_sec"] = self.dials.refresh
        if self.dials is not None and "every" in self.dials.model_fields_set:
            found["revsql_connect_freq_sec"] = self.dials.every
        return found


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """The database of a node."""

    adaptor: str
    reading: ReaderOptions
    writing: WriterOptions
    namespace: Any
    replaces: bool
    """Whether rows that its tables have when the node joins are thrown away."""
    policies: Policies

    def reading_as(self, name: str) -> ReaderOptions:
        """How it is read, where the database must know by whom."""
        if "pipeline" not in type(self.reading).model_fields:
            return self.reading
        return self.reading.model_copy(update={"pipeline": name})


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as its file declares it."""

    form: NodeForm
    store: StoreSpec | None


class StoreForm(Options):
    """What can be said about a store beside its adaptor's options."""

    namespace: NamespacePattern = EVERYTHING
    """Replicate the tables in whose namespaces this regular expression is found."""
    replace: bool = False
    """When the node joins, throw away the rows that its tables have; otherwise it does not join with any."""
    conflict: ConflictPolicy = ConflictPolicy.LAST_WRITE
    """What happens when two nodes write one row at the same time."""
    conflicts: dict[str, ConflictPolicy] = Field(default_factory=dict)
    """By namespace: what happens there instead."""


def assemble(said: Any, base: str) -> tuple[NodeSpec | None, list[Problem]]:
    """The node that plain keys and values declare, None when there are problems."""
    problems: list[Problem] = []
    parts = Parts(base, problems)
    if not isinstance(said, Mapping):
        parts.add((), "should be a mapping with the keys node and data")
        return None, problems
    form: NodeForm | None = parts.options(NodeForm, {key: each for key, each in said.items() if key != "store"}, ())
    store = parts_of_store(parts, said["store"]) if said.get("store") is not None else None
    return (None if problems or form is None else NodeSpec(form, store)), problems


def parts_of_store(parts: Parts, said: Any) -> StoreSpec | None:
    """The database that is said under `store`."""
    path = ("store",)
    if not isinstance(said, Mapping):
        parts.add(path, "should be a mapping with an adaptor in it, such as `sqlite: {path: shop.db}`")
        return None
    own: StoreForm | None = parts.options(StoreForm, {k: v for k, v in said.items() if k in _OWN_KEYS}, path)
    adaptor = parts.adaptor(said, path, _OWN_KEYS)
    if adaptor is None or own is None:
        return None
    at = (*path, adaptor.name)
    if adaptor.reader is None or adaptor.writer is None:
        parts.add(at, f"the adaptor {adaptor.name} cannot be both read and written", is_about_key=True)
        return None
    given = said[adaptor.name] if isinstance(said[adaptor.name], Mapping) else {}
    known = {*adaptor.reader.model_fields, *adaptor.writer.model_fields}
    parts.problems.extend(unknown_key((*at, key), sorted(known)) for key in given if key not in known)
    reading = parts.options(adaptor.reader, _of(given, adaptor.reader), at)
    writing = parts.options(adaptor.writer, _of(given, adaptor.writer), at)
    if reading is None or writing is None:
        return None
    return StoreSpec(adaptor.name, reading, writing, own.namespace, own.replace, Policies(own.conflict, own.conflicts))


def _of(given: Mapping[str, Any], model: type[Options]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key in model.model_fields}


def check_listen(address: str, *, is_safe: bool) -> None:
    """Refuse to be reached by others without encryption and tokens."""
    if not is_loopback(address) and not is_safe:
        host = address.rpartition(":")[0].strip("[]")
        raise ValueError(f"listen: {host} can be reached by others, so `tls` and `tokens` are needed")


def check_web(web: WebForm, *, is_encrypted: bool) -> None:
    """Refuse a page that others could read on its way, or whose token can be guessed."""
    if not is_loopback(web.listen) and not is_encrypted:
        raise ValueError(f"web: {web.listen} can be reached by others, so `tls` is needed")
    if len(web.token.get_secret_value()) < WEB_TOKEN_LETTERS_MIN:
        raise ValueError(f"web: its token needs at least {WEB_TOKEN_LETTERS_MIN} letters")


def check_said_once(tunables: Mapping[str, Any], keys: Mapping[str, Any]) -> None:
    """Refuse what is said twice: a key of a file, and the tunable that it is."""
    for name in tunables.keys() & keys.keys():
        raise ValueError(f"tunables: {name} is said by a key of its own, too; say it once")
