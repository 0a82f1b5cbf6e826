"""The keys of a node file whose node is a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, model_validator

from tailrace.adaptor.options import Bytes, FilePath, Options, Seconds
from tailrace.limits import HOLD_S
from tailrace.node.conflict import Policies
from tailrace.node.form import (
    FANOUT,
    OwnTunables,
    PlacingForm,
    RetentionForm,
    SourceForm,
    StoreSpec,
    TlsForm,
    Token,
    WebForm,
    check_listen,
    check_said_once,
    check_web,
    parts_of_store,
)
from tailrace.pipeline.names import name_problem
from tailrace.pipeline.parts import Parts
from tailrace.pipeline.problem import Problem
from tailrace.relay.address import PORT, Address
from tailrace.topology.tunables import Value


class ReverseForm(Options):
    """A replica that may not connect upwards is dialled by its source."""

    secret: Token
    """What both know."""
    database: Annotated[str, Field(min_length=1, max_length=60)]
    """What the log is called."""


class ReplicateForm(Options):
    """What is copied, and from where."""

    sources: Annotated[tuple[SourceForm, ...], Field(min_length=1)]
    """Where the log is, the best first; the next one is tried when one does not answer or lacks what is needed."""
    registry: PlacingForm | None = None
    """Who decides from whom this replica copies: then `sources` are those at the top, and the token and the
    certificates of the first of them are those of all replicas."""
    reverse: ReverseForm | None = None
    """Whether it waits to be dialled: always, or if the registry says so."""
    resync: bool = False
    """Whether everything is copied anew when no source has what is needed next."""
    max_rollback: Bytes = 0
    """So many bytes of the copy may be thrown away because its source has others; 0 is no limit."""
    blocking: bool = False
    """Whether sources send what is new as it comes; otherwise they are asked every `poll`."""
    poll: Annotated[Seconds, Field(gt=0)] = 0.05
    keepalive: Annotated[Seconds, Field(gt=0)] = 10.0
    """How often a source is told up to where its log is not needed any more."""
    rows_from: tuple[SourceForm, ...] = ()
    """Nodes with a store that are asked for the rows with which this replica's `store` begins; `sources` unless
    said."""
    alarm_after: Annotated[int, Field(ge=1)] = 10
    """After so many rounds in which no source had what is needed, that is told as an alarm."""

    def said_tunables(self) -> dict[str, Value]:
        """What its keys say that is a tunable, too."""
        values: dict[str, tuple[str, Value]] = {
            "blocking": ("blocking_physrep", self.blocking),
            "poll": ("physrep_pollms", 1000 * self.poll),
            "keepalive": ("physrep_keepalive_freq_sec", self.keepalive),
            "alarm_after": ("physrep_no_source_alarm_threshold", self.alarm_after),
            "max_rollback": ("physrep_max_rollback", 0),  # its bytes count instead of segments
        }
        return {name: value for key, (name, value) in values.items() if key in self.model_fields_set}


class ReplicaForm(Options):
    """What can be said about a replica."""

    node: str
    """Its name, under which sources keep their logs for it."""
    data: FilePath
    """The directory in which it keeps its copy."""
    replicate_from: ReplicateForm
    """What is copied, and from where."""
    listen: Address = f"127.0.0.1:{PORT}"
    """Where others copy it."""
    tokens: dict[str, Token] = Field(default_factory=dict)
    """By peer: what it must say to be let in."""
    tls: TlsForm | None = None
    """How connections to it are encrypted."""
    heartbeat: Annotated[Seconds, Field(gt=0)] = 1.0
    """How often a copy hears from it; after four times as long without a word a connection is given up."""
    fanout: Annotated[int, Field(ge=1)] = FANOUT
    """So many may copy it at the same time."""
    hold: Annotated[Seconds, Field(gt=0)] = HOLD_S
    """How long its log is kept for copies after they were last heard of."""
    retention: RetentionForm | None = None
    """What is removed from its log; nothing when it is not said."""
    tunables: OwnTunables = Field(default_factory=dict)
    """Tunables of the topology that hold for this replica, whatever the registry says."""
    replicate_wait: Annotated[Seconds, Field(ge=0)] = 0.0
    """What comes is copied at once, and applied to the `store` so long after it was written."""
    physrep_ignore: tuple[str, ...] = ()
    """Tables, as `schema.table`, that are not applied to the `store`. They are copied all the same."""
    web: WebForm | None = None
    """A status page, with metrics; none unless said."""

    @model_validator(mode="after")
    def _is_safe(self) -> ReplicaForm:
        check_listen(self.listen, is_safe=self.tls is not None and bool(self.tokens))
        if self.web is not None:
            check_web(self.web, is_encrypted=self.tls is not None)
        names = [source.name for source in self.replicate_from.sources]
        if len(set(names)) < len(names):
            raise ValueError("replicate_from: two sources have the same name")
        if why := name_problem(self.node, "node"):
            raise ValueError(f"node: {why}")
        for name in self.physrep_ignore:
            if "." not in name:
                raise ValueError(f"physrep_ignore: {name} names no schema; write it as main.{name} or public.{name}")
        check_said_once(self.tunables, self.said_tunables())
        return self

    def said_tunables(self) -> dict[str, Value]:
        """What keys of their own say that is a tunable, too."""
        found = self.replicate_from.said_tunables()
        if "fanout" in self.model_fields_set:
            found["physrep_fanout"] = self.fanout
        return found if self.retention is None else found | self.retention.said_tunables()


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """A replica as its file declares it."""

    form: ReplicaForm
    store: StoreSpec | None = None


def assemble(said: Any, base: str) -> tuple[ReplicaSpec | None, list[Problem]]:
    """The replica that plain keys and values declare, None when there are problems."""
    problems: list[Problem] = []
    parts = Parts(base, problems)
    if not isinstance(said, Mapping):
        parts.add((), "should be a mapping with the keys node, data and replicate_from")
        return None, problems
    own = {key: each for key, each in said.items() if key != "store"}
    form: ReplicaForm | None = parts.options(ReplicaForm, own, ())
    store = parts_of_store(parts, said["store"]) if said.get("store") is not None else None
    if form is not None and store is None:
        for key in {"replicate_wait", "physrep_ignore"} & form.model_fields_set:
            parts.add((key,), "says how a `store` is kept up, and there is none")
    if store is not None and store.policies != Policies():
        parts.add(("store", "conflict"), "the last write stays in the store of a replica")
    return (None if problems or form is None else ReplicaSpec(form, store)), problems
