"""What nodes and operators ask of a registry over the network, and what it answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from tailrace.relay.paper import Paper
from tailrace.topology.answers import Answer, Candidate, Confirmed, Move, Offer, Refusal, Row, Tuning
from tailrace.topology.member import Report, State
from tailrace.topology.registry import SITES_MAX
from tailrace.topology.site import Site

ROWS_MAX: Final = 1000
"""So many nodes are told with one answer."""

Sites = Annotated[list[Site], Field(max_length=SITES_MAX)]
Name = Annotated[str, Field(min_length=1, max_length=120)]


class Call(StrEnum):
    """The seed's names, and what else is needed."""

    REGISTER_REPLICANT = "register_replicant"
    UPDATE_REGISTRY = "update_registry"
    KEEPALIVE = "keepalive"
    RESET_NODES = "reset_nodes"
    TOPOLOGY = "topology"
    GET_REVERSE_HOSTS = "get_reverse_hosts"
    SHOULD_WAIT_FOR_CON = "should_wait_for_con"
    START_REPLICATION = "start_replication"
    STOP_REPLICATION = "stop_replication"
    ADD_RULE = "add_rule"
    REMOVE_RULE = "remove_rule"
    REBALANCE = "rebalance"
    TUNABLES = "tunables"
    SET_TUNABLE = "set_tunable"


class FullPaper(Paper):
    """What is told with all that is not known, too."""

    def packed(self) -> bytes:
        return self.model_dump_json().encode()


class RegisterReplicant(Paper):
    """A node wants to replicate."""

    site: Site
    report: Report
    sources: Sites = Field(default_factory=list)
    unreachable: Sites = Field(default_factory=list)


class Offered(Paper):
    """The answer: whom to try, or why not."""

    candidates: list[Candidate] = Field(default_factory=list, max_length=SITES_MAX)
    lease_s: float = 0.0
    refusal: Refusal | None = None

    @classmethod
    def of(cls, found: Offer | Refusal) -> Offered:
        if isinstance(found, Refusal):
            return cls(refusal=found)
        return cls(candidates=list(found.candidates), lease_s=found.lease_s)


class UpdateRegistry(Paper):
    """A node is connected to a source."""

    site: Site
    source: Site
    unreachable: Sites = Field(default_factory=list)


class Updated(FullPaper):
    """The answer."""

    confirmed: Confirmed | None = None
    refusal: Refusal | None = None

    @classmethod
    def of(cls, found: Confirmed | Refusal) -> Updated:
        return cls(refusal=found) if isinstance(found, Refusal) else cls(confirmed=found)


class Keepalive(Paper):
    """A node lives."""

    site: Site
    report: Report


class Kept(FullPaper):
    """The answer."""

    answer: Answer


class ResetNodes(Paper):
    """Nodes are cut off."""

    sites: Sites
    state: State


class Some(Paper):
    """Some nodes: of a question, or as an answer."""

    sites: Sites


class One(Paper):
    """One node is asked about."""

    site: Site


class Waits(Paper):
    """Whether a node waits to be dialled."""

    waits: bool


class Rule(Paper):
    """A source that dials a replica."""

    replica: Site
    source: Site


class Database(Paper):
    """One log is asked about."""

    database: Name


class Moved(FullPaper):
    """Who was asked to move up."""

    move: Move | None = None


class Rows(FullPaper):
    """Nodes of the topology."""

    rows: Annotated[list[Row], Field(max_length=ROWS_MAX)]


class OfLog(Paper):
    """All tunables are asked for, as they hold for a log."""

    database: Name | None = None


class Setting(Paper):
    """A tunable and its value as text."""

    name: Name
    text: Annotated[str, Field(max_length=1000)]


class SetTunable(Setting):
    """A tunable is to be changed: for all, or for one log."""

    database: Name | None = None


class Settings(Paper):
    """All of them."""

    version: Annotated[str, Field(max_length=64)]
    settings: Annotated[list[Setting], Field(max_length=1000)]

    @classmethod
    def of(cls, found: Tuning) -> Settings:
        said = [Setting(name=name, text=text) for name, text in found.values.items()]
        return cls(version=found.version, settings=said)

    def tuning(self) -> Tuning:
        return Tuning(self.version, {setting.name: setting.text for setting in self.settings})
