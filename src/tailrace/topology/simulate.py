"""The real registry on a simulated clock and network: far more nodes than there are machines."""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Final, TypeVar

from tailrace.topology.answers import Confirmed, Refusal
from tailrace.topology.links import NOBODY, ROOT, Links
from tailrace.topology.member import Report, State
from tailrace.topology.registry import Registry
from tailrace.topology.scenario import Outcome, Scenario, Spread
from tailrace.topology.site import Site
from tailrace.topology.storage import NoStorage

_DATABASE: Final = "simulated"
_AGAIN_S: Final = 1.0
"""A replica that has tried all candidates registers again after this time, more or less."""
Answered = TypeVar("Answered")


def simulate(scenario: Scenario) -> Outcome:
    """Play a scenario to its end."""
    return _Simulation(scenario).run()


class _Simulation:
    """Node 0 is the source. Every node does what a replica does: register, connect, confirm, keep alive, notice."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._random = random.Random(scenario.seed)  # noqa: S311  a simulation that can be repeated
        self._now = 0.0
        self._registry = Registry(NoStorage(), lambda: self._now, lambda: self._now)
        self._registry.set_tunable("physrep_fanout", str(scenario.fanout))
        self._keepalive_s = float(self._registry.tunable("physrep_keepalive_freq_sec"))
        self._sites = [Site(_DATABASE, f"node{number}:4700") for number in range(scenario.nodes + 1)]
        self._numbers = {site: number for number, site in enumerate(self._sites)}
        self._candidates: list[list[int]] = [[] for _ in self._sites]
        self._unreachable: list[tuple[Site, ...]] = [() for _ in self._sites]
        self._links = Links(scenario.nodes + 1, scenario.write_bytes_s)
        self._events: list[tuple[float, int, Callable[[int], None], int]] = []
        self._order = count()
        self._report = (-1.0, Report())
        self._calls: Counter[str] = Counter()
        self._by_second: Counter[int] = Counter()
        self._refusals: Counter[str] = Counter()
        self._moves = 0
        self._registry_took_s = 0.0
        self._killed = 0
        self._cut_off: list[int] = []
        self._depth_before = Spread.of(())
        self._settled_at: float | None = None
        self._healed_at: float | None = None
        self._end = scenario.kill_at_s + scenario.heal_max_s

    def run(self) -> Outcome:
        started = time.perf_counter()
        self._registry.reset_nodes([self._sites[ROOT]], State.ACTIVE)
        self._later(self._keepalive_s, self._keep_alive, ROOT)
        for number in range(1, self._scenario.nodes + 1):
            self._later(self._random.uniform(0, self._scenario.arrive_s), self._arrive, number)
        self._later(self._scenario.kill_at_s, self._kill, NOBODY)
        while self._events and self._events[0][0] <= self._end:
            self._now, _, do, number = heapq.heappop(self._events)
            do(number)
        self._now = self._end
        return self._outcome(time.perf_counter() - started)

    def _arrive(self, number: int) -> None:
        self._links.arrive(number, self._now)
        self._later(self._random.uniform(0, self._keepalive_s), self._keep_alive, number)
        self._register(number)

    def _register(self, number: int) -> None:
        if not self._links.is_alive[number] or self._links.source[number] != NOBODY:
            return
        report = Report(generation=1, first_offset=0, received=self._links.position(number))
        unreachable, self._unreachable[number] = self._unreachable[number], ()
        found = self._ask(
            lambda: self._registry.register_replicant(self._sites[number], report, unreachable=unreachable),
            "register_replicant",
        )
        if isinstance(found, Refusal):
            self._refusals[found.reason] += 1
            self._later(found.retry_after_s * self._random.uniform(0.5, 1.5), self._register, number)
            return
        self._candidates[number] = [self._numbers[candidate.site] for candidate in reversed(found.candidates)]
        self._later(self._latency(), self._connect, number)

    def _connect(self, number: int) -> None:
        """Try the next candidate. Who has ended is told when registering again, at once, which gets another slot."""
        if not self._links.is_alive[number] or self._links.source[number] != NOBODY:
            return
        if not self._candidates[number]:
            self._later(_AGAIN_S * self._random.uniform(0.5, 1.5), self._register, number)
            return
        source = self._candidates[number].pop()
        if not self._links.is_alive[source]:
            self._unreachable[number] += (self._sites[source],)
            self._later(self._scenario.connect_s, self._register, number)
        elif self._confirm(number, source):
            self._links.connect(number, source)
            self._look()
        else:
            self._later(self._latency(), self._connect, number)

    def _confirm(self, number: int, source: int) -> bool:
        sites = self._sites
        found = self._ask(lambda: self._registry.update_registry(sites[number], sites[source]), "update_registry")
        if isinstance(found, Refusal):
            self._refusals[found.reason] += 1
        return isinstance(found, Confirmed)

    def _keep_alive(self, number: int) -> None:
        if not self._links.is_alive[number]:
            return
        self._later(self._keepalive_s, self._keep_alive, number)
        if number != ROOT and self._links.source[number] == NOBODY:
            return  # it is about to register
        report = self._position()
        answer = self._ask(lambda: self._registry.keepalive(self._sites[number], report), "keepalive")
        if not answer.is_known and number != ROOT:
            self._links.disconnect(number, self._now)
            self._later(self._latency(), self._register, number)
        elif answer.move is not None:
            self._move(number, self._numbers[answer.move])

    def _move(self, number: int, source: int) -> None:
        if self._links.is_alive[source] and self._confirm(number, source):
            self._links.disconnect(number, self._now)
            self._links.connect(number, source)
            self._moves += 1

    def _kill(self, _: int) -> None:
        self._depth_before = Spread.of(self._links.depths())
        killed = self._random.sample(range(1, self._scenario.nodes + 1), self._killed_wanted())
        self._killed = len(killed)
        for orphan in self._links.kill(killed, self._now):
            self._later(self._random.uniform(0, self._scenario.notice_s), self._notice, orphan)
        self._cut_off.append(self._links.unreached())
        self._later(1.0, self._watch, NOBODY)
        self._look()

    def _killed_wanted(self) -> int:
        return round(self._scenario.nodes * self._scenario.churn)

    def _notice(self, number: int) -> None:
        """Its source has ended."""
        source = self._links.source[number]
        if self._links.is_alive[number] and source != NOBODY and not self._links.is_alive[source]:
            self._links.disconnect(number, self._now)
            self._unreachable[number] = (self._sites[source],)
            self._register(number)

    def _watch(self, _: int) -> None:
        self._cut_off.append(self._links.unreached())
        if self._healed_at is None:
            self._later(1.0, self._watch, NOBODY)

    def _look(self) -> None:
        """Every link is whole when every live node has a live source, since nobody is above itself."""
        if self._links.broken:
            return
        if self._settled_at is None and self._links.arrived == self._scenario.nodes:
            self._settled_at = self._now
        if self._healed_at is None and self._now >= self._scenario.kill_at_s:
            self._healed_at = self._now
            self._end = self._now + self._scenario.watch_s

    def _ask(self, call: Callable[[], Answered], name: str) -> Answered:
        self._calls[name] += 1
        self._by_second[int(self._now)] += 1
        started = time.perf_counter()
        answered = call()
        self._registry_took_s += time.perf_counter() - started
        return answered

    def _position(self) -> Report:
        """How far a replica is that misses nothing; the same for all within a second."""
        if self._now - self._report[0] >= 1.0:
            position = int(self._now * self._scenario.write_bytes_s)
            self._report = self._now, Report(generation=1, first_offset=0, received=position, applied=position)
        return self._report[1]

    def _latency(self) -> float:
        return self._scenario.latency_s * self._random.uniform(0.1, 1.0)

    def _later(self, seconds: float, do: Callable[[int], None], number: int) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._order), do, number))

    def _outcome(self, took_s: float) -> Outcome:
        scenario = self._scenario
        seconds = tuple(self._by_second[second] for second in range(int(self._end) + 1))
        root_bytes, total_bytes = self._links.bytes_sent(self._end)
        settled = self._settled_at is not None and self._settled_at <= scenario.kill_at_s
        return Outcome(
            nodes=scenario.nodes,
            fanout=scenario.fanout,
            killed=self._killed,
            cut_off=self._cut_off[0],
            settled_s=round(max(0.0, (self._settled_at or 0.0) - scenario.arrive_s), 3) if settled else None,
            heal_s=None if self._healed_at is None else round(self._healed_at - scenario.kill_at_s, 3),
            cut_off_by_second=tuple(self._cut_off),
            depth_before=self._depth_before,
            depth_after=Spread.of(self._links.depths()),
            load_after=Spread.of(load for load in self._links.loads() if load),
            children_max=self._links.children_max,
            calls=dict(sorted(self._calls.items())),
            calls_per_s_mean=round(sum(seconds) / self._end, 1),
            calls_per_s_peak=max(seconds),
            calls_by_second=seconds,
            refusals=dict(sorted(self._refusals.items())),
            moves=self._moves,
            root_bytes=root_bytes,
            total_bytes=total_bytes,
            simulated_s=round(self._end, 3),
            took_s=round(took_s, 2),
            registry_took_s=round(self._registry_took_s, 2),
        )
