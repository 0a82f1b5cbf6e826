"""A registry, asked over the network. One that is away is told as an error; whoever replicates goes on without."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from tailrace.relay.applier import Source
from tailrace.relay.flight import ask
from tailrace.relay.paper import Paper
from tailrace.topology.answers import Answer, Confirmed, Move, Refusal, Row, Tuning
from tailrace.topology.member import Report, State
from tailrace.topology.registrycalls import (
    Call,
    Database,
    Keepalive,
    Kept,
    Moved,
    Offered,
    OfLog,
    One,
    RegisterReplicant,
    ResetNodes,
    Rows,
    Rule,
    Settings,
    SetTunable,
    Some,
    Updated,
    UpdateRegistry,
    Waits,
)
from tailrace.topology.site import Site

_TIMEOUT_S: Final = 5.0


class RegistryClient:
    """The calls of `Registry`, at an address. Threads may share it: each call connects by itself."""

    def __init__(self, where: Source) -> None:
        self._where = where

    def register_replicant(
        self, site: Site, report: Report, *, sources: Sequence[Site] = (), unreachable: Sequence[Site] = ()
    ) -> Offered:
        asked = RegisterReplicant(site=site, report=report, sources=list(sources), unreachable=list(unreachable))
        return Offered.read(self._one(Call.REGISTER_REPLICANT, asked))

    def update_registry(self, site: Site, source: Site, *, unreachable: Sequence[Site] = ()) -> Confirmed | Refusal:
        asked = UpdateRegistry(site=site, source=source, unreachable=list(unreachable))
        found = Updated.read(self._one(Call.UPDATE_REGISTRY, asked))
        return found.refusal or found.confirmed or Confirmed(None, 0.0)

    def keepalive(self, site: Site, report: Report) -> Answer:
        return Kept.read(self._one(Call.KEEPALIVE, Keepalive(site=site, report=report))).answer

    def reset_nodes(self, sites: Sequence[Site], state: State) -> None:
        self._ask(Call.RESET_NODES, ResetNodes(sites=list(sites), state=state))

    def topology(self) -> list[Row]:
        return [row for said in self._ask(Call.TOPOLOGY, Paper()) for row in Rows.read(said).rows]

    def get_reverse_hosts(self, source: Site) -> list[Site]:
        return Some.read(self._one(Call.GET_REVERSE_HOSTS, One(site=source))).sites

    def should_wait_for_con(self, site: Site) -> bool:
        return Waits.read(self._one(Call.SHOULD_WAIT_FOR_CON, One(site=site))).waits

    def start_replication(self, sites: Sequence[Site]) -> None:
        self._ask(Call.START_REPLICATION, Some(sites=list(sites)))

    def stop_replication(self, sites: Sequence[Site]) -> None:
        self._ask(Call.STOP_REPLICATION, Some(sites=list(sites)))

    def add_rule(self, replica: Site, source: Site) -> None:
        self._ask(Call.ADD_RULE, Rule(replica=replica, source=source))

    def remove_rule(self, replica: Site, source: Site) -> None:
        self._ask(Call.REMOVE_RULE, Rule(replica=replica, source=source))

    def rebalance(self, database: str) -> Move | None:
        return Moved.read(self._one(Call.REBALANCE, Database(database=database))).move

    def tuning(self, database: str = "") -> Tuning:
        return Settings.read(self._one(Call.TUNABLES, OfLog(database=database or None))).tuning()

    def set_tunable(self, name: str, text: str, database: str = "") -> None:
        """For all, or for one log."""
        self._ask(Call.SET_TUNABLE, SetTunable(name=name, text=text, database=database or None))

    def _one(self, call: Call, paper: Paper) -> bytes:
        (answer,) = self._ask(call, paper)
        return answer

    def _ask(self, call: Call, paper: Paper) -> list[bytes]:
        with closing(self._where.client()) as client:
            return ask(client, call, paper, self._where.token, _TIMEOUT_S)
