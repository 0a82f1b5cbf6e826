"""The keys of a node file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from tailrace.adaptor.options import Bytes, FilePath, Options, ReaderOptions, Seconds, WriterOptions
from tailrace.limits import SEGMENT_BYTES_DEFAULT
from tailrace.node.conflict import Policies, Policy
from tailrace.pipeline.form import NamespacePattern
from tailrace.pipeline.names import name_problem
from tailrace.pipeline.parts import Parts
from tailrace.pipeline.problem import Problem, unknown_key
from tailrace.pipeline.spec import EVERYTHING

PORT: Final = 4700
_OWN_KEYS: Final = ["namespace", "replace", "conflict", "conflicts"]


def _address(value: str) -> str:
    parts = urlsplit(value if "//" in value else f"//{value}")
    if parts.scheme not in ("", "grpc", "grpc+tls") or not parts.hostname or parts.path or parts.username:
        raise ValueError("should be host:port")
    try:
        port = parts.port if parts.port is not None else PORT
    except ValueError:
        raise ValueError("the port is none") from None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}"


Address = Annotated[str, AfterValidator(_address)]
"""Where a node listens: `127.0.0.1:4700`."""


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
    token: SecretStr
    """What this node says there to be let in."""
    ca: FilePath | None = None
    """Certificates that sign its own: then the connection is encrypted."""
    certificate: FilePath | None = None
    """This node's certificate, for a source that wants one."""
    key: FilePath | None = None
    """Its private key."""


class NodeForm(Options):
    """What can be said about a node beside its store."""

    node: str
    """The node's name, for people."""
    data: FilePath
    """The directory in which it keeps who it is, and its log."""
    listen: Address = f"127.0.0.1:{PORT}"
    """Where peers reach it."""
    tokens: dict[str, SecretStr] = Field(default_factory=dict)
    """By peer: what it must say to be let in."""
    tls: TlsForm | None = None
    """How connections to it are encrypted."""
    sources: tuple[SourceForm, ...] = ()
    """The nodes that it follows."""
    founder: bool = False
    """Whether it begins a cluster of its own if it belongs to none; otherwise it joins through one of its sources."""
    heartbeat: Annotated[Seconds, Field(gt=0)] = 1.0
    """How often a peer hears from it; after four times as long without a word a connection is given up."""
    segment_bytes: Bytes = SEGMENT_BYTES_DEFAULT
    """The size at which a file of the log is sealed and a new one begun."""

    @model_validator(mode="after")
    def _is_safe(self) -> NodeForm:
        host = self.listen.rpartition(":")[0].strip("[]")
        if not _is_loopback(host) and (self.tls is None or not self.tokens):
            raise ValueError(f"listen: {host} can be reached by others, so `tls` and `tokens` are needed")
        if not self.founder and not self.sources:
            raise ValueError("a node that follows nobody begins a cluster: say `founder: true`, or name its sources")
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError("sources: two have the same name")
        if why := name_problem(self.node, "node"):
            raise ValueError(f"node: {why}")
        return self


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
    conflict: Policy = Policy.LAST_WRITE
    """What happens when two nodes write one row at the same time."""
    conflicts: dict[str, Policy] = Field(default_factory=dict)
    """By namespace: what happens there instead."""


def assemble(said: Any, base: str) -> tuple[NodeSpec | None, list[Problem]]:
    """The node that plain keys and values declare, None when there are problems."""
    problems: list[Problem] = []
    parts = Parts(base, problems)
    if not isinstance(said, Mapping):
        parts.add((), "should be a mapping with the keys node and data")
        return None, problems
    form: NodeForm | None = parts.options(NodeForm, {key: each for key, each in said.items() if key != "store"}, ())
    store = _store(parts, said["store"]) if said.get("store") is not None else None
    return (None if problems or form is None else NodeSpec(form, store)), problems


def _store(parts: Parts, said: Any) -> StoreSpec | None:
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


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
