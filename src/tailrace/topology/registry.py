"""The registry: who replicates from whom, for nodes that come and go.

Any thread may call. What a call has changed is kept before the call returns; how far nodes are is kept together, at
most once a second.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from tailrace.errors import TailraceError
from tailrace.topology.answers import Answer, Confirmed, Move, Needed, Offer, Refusal, Row, Tuning
from tailrace.topology.limits import Limits
from tailrace.topology.member import UNKNOWN, Member, Report, State
from tailrace.topology.placement import Placement
from tailrace.topology.rebalancing import propose_move, propose_move_of
from tailrace.topology.site import Site
from tailrace.topology.storage import Record, Storage
from tailrace.topology.tunables import Tunable, Tunables, Value, find

REPORTS_FLUSH_S: Final = 1.0
"""How long a report may wait before it is kept."""
FANOUT_MAX: Final = 100_000
_FANOUT: Final = "physrep_fanout"
_VERSION_CHARS: Final = 16
SITES_MAX: Final = 1000
"""Nodes that one call names."""


class Registry:
    """The calls have the names that Comdb2 gave its procedures."""

    def __init__(
        self, storage: Storage, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        """Go on from what was kept. Whoever was there has one full lease to be heard of again."""
        self._storage = storage
        self._clock = clock
        self._wall = wall
        self._lock = threading.RLock()
        kept = storage.load()
        self._tunables = Tunables(kept.tunables)
        self._placement = Placement(Limits.of(self._tunables))
        for database, fanout in kept.fanouts.items():
            self._placement.override_fanout(database, fanout)
        for replica, source in kept.rules:
            self._placement.rules.add(replica, source)
        self._balanced: dict[str, float] = {}
        self._versions: dict[int, str] = {}
        """By fan-out: what tells one set of values from another."""
        self._rebalance_s = self._tunables.seconds("physrep_rebalance_interval")
        self._flushed = clock()
        self._restore(kept.records)

    def register_replicant(
        self,
        site: Site,
        report: Report = UNKNOWN,
        *,
        sources: Sequence[Site] = (),
        unreachable: Sequence[Site] = (),
        over_fanout: bool = False,
    ) -> Offer | Refusal:
        """Candidates for a node that wants to replicate from its `received` on.

        `sources` are the nodes of tier 0 as the caller knows them: who is new among them is believed to be one.
        `unreachable` are nodes that it could not connect to: they are offered last until they are heard of again.
        """
        _check_few(sources)
        _check_few(unreachable)
        with self._call() as now:
            return self._placement.register(
                site, report, now, sources=sources, unreachable=unreachable, over_fanout=over_fanout
            )

    def update_registry(self, site: Site, source: Site, *, unreachable: Sequence[Site] = ()) -> Confirmed | Refusal:
        """The node is connected to the source, by its own connection or by one that the source made, after it had tried
        those that are `unreachable`."""
        _check_few(unreachable)
        with self._call() as now:
            return self._placement.confirm(site, source, now, unreachable=unreachable)

    def keepalive(self, site: Site, report: Report) -> Answer:
        """The node lives and is so far."""
        with self._call() as now:
            version = self._version(site.database)
            answer = replace(self._placement.keepalive(site, report, now), tunables_version=version)
            if not answer.is_known or now - self._balanced.get(site.database, -math.inf) < self._rebalance_s:
                return answer
            move = propose_move_of(self._placement, self._placement.members[site], now)
            if move is None:
                return answer
            self._balanced[site.database] = now
            return replace(answer, move=move.source)

    def reset_nodes(self, sites: Sequence[Site], state: State) -> None:
        """Cut nodes off from where they replicate. Active makes them sources, Inactive nobody's source."""
        _check_few(sites)
        with self._call() as now:
            for site in sites:
                self._placement.reset(site, state, now)

    def start_replication(self, sites: Sequence[Site]) -> None:
        """Tell nodes with their next keepalive that they may replicate."""
        self._set_stopped(sites, is_stopped=False)

    def stop_replication(self, sites: Sequence[Site]) -> None:
        """Tell nodes with their next keepalive that they shall not replicate."""
        self._set_stopped(sites, is_stopped=True)

    def topology(self) -> list[Row]:
        """Every node, by log, tier and place; orphans last."""
        with self._call() as now:
            rows = [_row(member, now) for member in self._placement.members.values()]
        return sorted(rows, key=lambda row: (row.site.database, row.tier is None, row.tier or 0, row.site))

    def get_reverse_hosts(self, source: Site) -> tuple[Site, ...]:
        """The replicas that this source has to dial."""
        with self._lock:
            return self._placement.rules.replicas_of(source)

    def should_wait_for_con(self, site: Site) -> bool:
        """Whether a node is to wait until a source dials it."""
        with self._lock:
            return bool(self._placement.rules.sources_of(site))

    def add_rule(self, replica: Site, source: Site) -> None:
        """From now on the source dials the replica."""
        with self._call():
            if replica.database != source.database:
                what = f"{replica} cannot replicate from {source}: that is another log"
                raise TailraceError("input.invalid", what, hint="name a source of the same log")
            if replica == source or self._placement.is_below(source, replica):
                what = f"{source} gets its log from {replica}, and cannot be its source"
                raise TailraceError("topology.cycle", what, hint="remove the rule that leads the other way")
            self._storage.add_rule(replica, source)
            self._placement.rules.add(replica, source)

    def remove_rule(self, replica: Site, source: Site) -> None:
        """The source dials the replica no more."""
        with self._call():
            self._storage.remove_rule(replica, source)
            self._placement.rules.remove(replica, source)

    def rules(self) -> list[tuple[Site, Site]]:
        """Every replica that waits with every source that dials it."""
        with self._lock:
            return sorted(self._placement.rules)

    def rebalance(self, database: str) -> Move | None:
        """Ask one replica to move up, if one would gain by it and none is on its way."""
        with self._call() as now:
            if database not in self._placement.trees:
                hint = "name a log that `tailrace topology show` has"
                raise TailraceError("topology.unknown_node", f"the registry knows no log {database}", hint=hint)
            return propose_move(self._placement, database, now)

    def needed(self, site: Site) -> Needed:
        """Which part of its log the live replicas below a node still need."""
        with self._call():
            return self._placement.needed(self._known(site))

    def tunables(self) -> list[tuple[Tunable, Value]]:
        """Every tunable with its value."""
        with self._lock:
            return list(self._tunables)

    def tuning(self, database: str = "") -> Tuning:
        """What holds for the nodes of one log."""
        with self._lock:
            return Tuning(self._version(database), self._settings(database))

    def tunable(self, name: str) -> Value:
        """The value of one."""
        with self._lock:
            return self._tunables.get(name)

    def set_tunable(self, name: str, text: str) -> Value:
        """Change one, for good."""
        with self._call():
            value = Tunables().set(name, text)
            self._storage.set_tunable(name, text)
            self._tunables.set(name, text)
            self._versions.clear()
            self._placement.set_limits(Limits.of(self._tunables))
            self._rebalance_s = self._tunables.seconds("physrep_rebalance_interval")
            return value

    def set_tunable_of(self, database: str, name: str, text: str) -> None:
        """Change one for one log, for good; no text takes that back. Only the fan-out can be another for one log."""
        if find(name).name != _FANOUT:
            what = f"{name} is the same for all logs"
            raise TailraceError("input.invalid", what, hint=f"change it for all; only {_FANOUT} can differ")
        self.override_fanout(database, int(Tunables().set(name, text)) if text else None)

    def override_fanout(self, database: str, fanout: int | None) -> None:
        """Another fan-out for one log, for good; None takes that back."""
        if fanout is not None and not 1 <= fanout <= FANOUT_MAX:
            raise TailraceError("input.invalid", f"{fanout} is no fan-out", hint=f"name one from 1 to {FANOUT_MAX}")
        with self._call():
            self._storage.set_fanout(database, fanout)
            self._placement.override_fanout(database, fanout)

    def flush(self) -> None:
        """Keep all reports that wait."""
        with self._lock:
            self._flush(self._clock())

    def close(self) -> None:
        """Keep what waits, and let another registry have the storage."""
        with self._lock:
            try:
                self._flush(self._clock())
            finally:
                self._storage.close()

    def _settings(self, database: str) -> dict[str, str]:
        values = {tunable.name: tunable.show(value) for tunable, value in self._tunables}
        return {**values, _FANOUT: str(self._placement.fanout(database))}

    def _version(self, database: str) -> str:
        """Logs differ in nothing but their fan-out, so there are as many versions as there are fan-outs."""
        fanout = self._placement.fanout(database)
        if fanout not in self._versions:
            told = json.dumps(self._settings(database), sort_keys=True).encode()
            self._versions[fanout] = hashlib.sha256(told).hexdigest()[:_VERSION_CHARS]
        return self._versions[fanout]

    @contextmanager
    def _call(self) -> Iterator[float]:
        """One call: what it changed is kept before it returns. What could not be kept is kept by the next call."""
        with self._lock:
            now = self._clock()
            self._placement.expire(now)
            yield now
            placement = self._placement
            if placement.changed or placement.forgotten:
                self._storage.save(self._records(placement.changed, now), placement.forgotten)
                placement.changed.clear()
                placement.forgotten.clear()
            if now - self._flushed >= REPORTS_FLUSH_S:
                self._flush(now)

    def _flush(self, now: float) -> None:
        if self._placement.reported:
            self._storage.save_reports(self._records(self._placement.reported, now))
            self._placement.reported.clear()
        self._flushed = now

    def _records(self, members: Iterable[Member], now: float) -> Iterator[Record]:
        began = self._wall() - now
        for member in members:
            yield Record(
                member.site,
                member.state,
                member.is_source,
                member.is_stopped,
                member.report,
                None if member.seen is None else began + member.seen,
                None if member.parent is None else member.parent.site,
                None if member.reserved is None else member.reserved.site,
            )

    def _restore(self, records: Sequence[Record]) -> None:
        now, wall = self._clock(), self._wall()
        placement = self._placement
        for record in records:
            seen = None if record.seen is None else now - max(0.0, wall - record.seen)
            placement.restore(
                Member(
                    record.site,
                    record.state,
                    is_source=record.is_source,
                    is_stopped=record.is_stopped,
                    report=record.report,
                    seen=seen,
                ),
                now,
            )
        for record in records:
            parent = None if record.source is None else placement.members.get(record.source)
            reserved = None if record.reserved is None else placement.members.get(record.reserved)
            placement.restore_links(placement.members[record.site], parent, reserved, now)
        placement.changed.clear()

    def _set_stopped(self, sites: Sequence[Site], *, is_stopped: bool) -> None:
        _check_few(sites)
        with self._call():
            for member in [self._known(site) for site in sites]:
                member.is_stopped = is_stopped
                self._placement.changed[member] = None

    def _known(self, site: Site) -> Member:
        member = self._placement.members.get(site)
        if member is None:
            hint = "name a node that has registered"
            raise TailraceError("topology.unknown_node", f"the registry knows no node {site}", hint=hint)
        return member


def _check_few(sites: Sequence[Site]) -> None:
    if len(sites) > SITES_MAX:
        raise TailraceError("input.invalid", f"{len(sites)} nodes in one call", hint=f"name at most {SITES_MAX}")


def _row(member: Member, now: float) -> Row:
    return Row(
        member.site,
        None if member.parent is None else member.parent.site,
        member.tier,
        member.state,
        member.is_source,
        member.tier is None and member.state is not State.PENDING,
        member.is_stopped,
        member.load,
        None if member.seen is None else now - member.seen,
        None if member.reserved is None else member.reserved.site,
        member.report,
    )
