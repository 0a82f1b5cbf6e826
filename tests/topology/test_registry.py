"""The registry: what it answers is kept, also for the one that comes after it, and any number may ask at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.topology.answers import Confirmed, Offer, Reason, Refusal
from tailrace.topology.databasesql import DatabaseStorage
from tailrace.topology.member import UNKNOWN, Report, State
from tailrace.topology.registry import Registry
from tailrace.topology.site import Site
from tailrace.topology.storage import NoStorage, Record
from tests.topology.clock import Clock
from tests.topology.places import ROOT, site

THREADS = 50


def registry_in(address: str, clock: Clock | None = None) -> Registry:
    clock = clock or Clock()
    return Registry(DatabaseStorage(address), clock, clock.wall)


def in_memory(clock: Clock | None = None) -> Registry:
    clock = clock or Clock()
    found = Registry(NoStorage(), clock, clock.wall)
    found.reset_nodes([ROOT], State.ACTIVE)
    return found


def join(registry: Registry, number: int, report: Report | None = None) -> Site:
    offer = registry.register_replicant(site(number), report or Report())
    assert isinstance(offer, Offer), offer
    assert isinstance(registry.update_registry(site(number), offer.reserved), Confirmed)
    return offer.reserved


def all_at_once(work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []
    ready = threading.Barrier(THREADS)

    def run(number: int) -> None:
        ready.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  told by the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def children(records: Iterable[Record]) -> Counter[Site]:
    """How many hold or have reserved a slot, by node, as it is kept."""
    return Counter(at for record in records for at in (record.source, record.reserved) if at is not None)


@pytest.mark.parametrize("fanout", [1, 2, 8])
def test_fanout_is_kept_when_all_register_at_once(address: str, fanout: int) -> None:
    registry = registry_in(address)
    registry.set_tunable("physrep_fanout", str(fanout))
    registry.reset_nodes([ROOT], State.ACTIVE)

    def come(number: int) -> None:
        while not isinstance(offer := registry.register_replicant(site(number)), Offer):
            assert offer.retry_after_s > 0
            assert max(row.load for row in registry.topology()) <= fanout
        assert isinstance(registry.update_registry(site(number), offer.reserved), Confirmed)

    all_at_once(come)
    rows = registry.topology()
    assert max(row.load for row in rows) <= fanout
    assert all(row.state is State.ACTIVE and row.tier is not None for row in rows)
    registry.close()
    storage = DatabaseStorage(address)
    kept = children(storage.load().records)
    storage.close()
    assert sum(kept.values()) == THREADS
    assert max(kept.values()) <= fanout


def test_a_slot_is_reserved_for_one_when_all_ask_at_once(address: str) -> None:
    registry = registry_in(address)
    registry.set_tunable("physrep_fanout", "8")
    registry.reset_nodes([ROOT], State.ACTIVE)
    answers: list[Offer | Refusal] = []
    all_at_once(lambda number: answers.append(registry.register_replicant(site(number))))
    registry.close()
    assert sum(isinstance(answer, Offer) for answer in answers) == 8
    assert {answer.reason for answer in answers if isinstance(answer, Refusal)} == {Reason.FULL}
    storage = DatabaseStorage(address)
    assert children(storage.load().records) == {ROOT: 8}
    storage.close()


def test_all_is_there_after_a_restart(address: str) -> None:
    clock = Clock()
    registry = registry_in(address, clock)
    registry.set_tunable("physrep_fanout", "2")
    registry.override_fanout("bills", 5)
    registry.reset_nodes([ROOT], State.ACTIVE)
    for number in range(5):
        join(registry, number, Report(generation=3, received=100 + number))
    assert isinstance(registry.register_replicant(site(9)), Offer)
    registry.keepalive(site(1), Report(3, 10, 200, 150, 50, 1.5))
    registry.add_rule(site(7), ROOT)
    registry.stop_replication([site(2)])
    before = registry.topology()
    registry.close()

    again = registry_in(address, clock)
    assert again.topology() == before
    assert again.tunable("physrep_fanout") == 2
    assert again.should_wait_for_con(site(7))
    assert again.keepalive(site(2), Report()).is_stopped
    again.close()


def test_leases_begin_anew_after_a_restart(address: str) -> None:
    clock = Clock()
    registry = registry_in(address, clock)
    registry.reset_nodes([ROOT], State.ACTIVE)
    registry.keepalive(ROOT, Report())
    join(registry, 0)
    assert isinstance(registry.register_replicant(site(1)), Offer)
    registry.close()
    clock.now += 3600
    again = registry_in(address, clock)
    clock.now += 29
    assert [row.state for row in again.topology()] == [State.ACTIVE, State.ACTIVE, State.PENDING]
    clock.now += 1
    assert {row.state for row in again.topology()} == {State.INACTIVE}
    again.close()


def test_reports_are_kept_together(tmp_path: Path) -> None:
    class Counting(DatabaseStorage):
        flushes = 0

        def save_reports(self, records: Iterable[Record]) -> None:
            self.flushes += 1
            super().save_reports(records)

    clock = Clock()
    storage = Counting(str(tmp_path / "registry.db"))
    registry = Registry(storage, clock, clock.wall)
    registry.reset_nodes([ROOT], State.ACTIVE)
    for number in range(5):
        join(registry, number)
    for step in range(20):
        clock.now += 0.1
        registry.keepalive(site(step % 5), Report(received=step))
    assert storage.flushes == 2
    registry.close()
    again = DatabaseStorage(str(tmp_path / "registry.db"))
    assert sorted(r.report.received or 0 for r in again.load().records) == [0, 15, 16, 17, 18, 19]
    again.close()


def test_what_could_not_be_kept_is_kept_by_the_next_call() -> None:
    class Failing(NoStorage):
        def __init__(self) -> None:
            self.fails = True
            self.saved: list[Site] = []

        def save(self, records: Iterable[Record], forgotten: Iterable[Site]) -> None:
            if self.fails:
                raise TailraceError("topology.registry_failed", "no disk", hint="get one")
            self.saved += [record.site for record in records]

    storage = Failing()
    registry = Registry(storage)
    with pytest.raises(TailraceError):
        registry.reset_nodes([ROOT], State.ACTIVE)
    storage.fails = False
    registry.topology()
    assert storage.saved == [ROOT]


def test_an_unknown_node_is_told_to_register() -> None:
    registry = in_memory()
    assert not registry.keepalive(site(0), Report()).is_known
    with pytest.raises(TailraceError, match="unknown_node"):
        registry.needed(site(0))


def test_topology_has_tiers_and_orphans() -> None:
    clock = Clock()
    registry = in_memory(clock)
    registry.set_tunable("physrep_fanout", "1")
    for number in range(3):
        join(registry, number)
    clock.now += 2
    assert [(row.site, row.source, row.tier) for row in registry.topology()] == [
        (ROOT, None, 0),
        (site(0), ROOT, 1),
        (site(1), site(0), 2),
        (site(2), site(1), 3),
    ]
    registry.reset_nodes([site(0)], State.INACTIVE)
    rows = {row.site: row for row in registry.topology()}
    assert [rows[site(number)].is_orphan for number in range(3)] == [True, True, True]
    assert rows[site(1)].source == site(0)
    assert rows[site(2)].age_s == 2


def test_a_rule_that_makes_a_cycle_is_refused() -> None:
    registry = in_memory()
    registry.set_tunable("physrep_fanout", "1")
    join(registry, 0)
    join(registry, 1)
    for replica, source in ((ROOT, site(1)), (site(0), site(1)), (site(0), site(0))):
        with pytest.raises(TailraceError, match=r"topology\.cycle"):
            registry.add_rule(replica, source)
    registry.add_rule(site(5), site(1))
    with pytest.raises(TailraceError, match=r"topology\.cycle"):
        registry.add_rule(site(0), site(5))
    registry.remove_rule(site(5), site(1))
    registry.add_rule(site(0), site(5))
    assert registry.rules() == [(site(0), site(5))]


def test_reverse_hosts() -> None:
    registry = in_memory()
    registry.add_rule(site(1), ROOT)
    registry.add_rule(site(2), ROOT)
    assert registry.get_reverse_hosts(ROOT) == (site(1), site(2))
    assert registry.should_wait_for_con(site(1))
    assert not registry.should_wait_for_con(ROOT)
    assert registry.update_registry(site(1), ROOT) == Confirmed(1, 30.0), "without registering, as it is dialled"
    registry.remove_rule(site(1), ROOT)
    assert registry.get_reverse_hosts(ROOT) == (site(2),)


def test_a_call_names_few_nodes() -> None:
    registry = in_memory()
    many = [site(number) for number in range(1001)]
    with pytest.raises(TailraceError, match=r"input\.invalid"):
        registry.reset_nodes(many, State.ACTIVE)
    with pytest.raises(TailraceError, match=r"input\.invalid"):
        registry.register_replicant(site(0), unreachable=many)
    assert len(registry.topology()) == 1


def test_a_refusal_can_be_raised() -> None:
    registry = Registry(NoStorage())
    refusal = registry.register_replicant(site(0))
    assert isinstance(refusal, Refusal)
    assert str(refusal.error()) == ("topology.refused: nobody has log orders (no_source). Next: ask again in 5 s")


def test_tunables_change_while_it_runs() -> None:
    registry = in_memory()
    registry.set_tunable("physrep_fanout", "1")
    assert join(registry, 0) == ROOT
    assert join(registry, 1) == site(0)
    registry.set_tunable("physrep_fanout", "2")
    assert join(registry, 2) == ROOT
    with pytest.raises(TailraceError):
        registry.set_tunable("physrep_fanout", "0")
    with pytest.raises(TailraceError):
        registry.override_fanout("orders", 0)
    registry.override_fanout("orders", 3)
    assert join(registry, 3) == ROOT


def test_a_replica_hears_of_its_move_with_its_keepalive() -> None:
    clock = Clock()
    registry = in_memory(clock)
    registry.set_tunable("physrep_fanout", "1")
    for number in range(3):
        join(registry, number)
    registry.set_tunable("physrep_fanout", "2")
    move = registry.rebalance("orders")
    assert move is not None
    assert (move.replica, move.source, move.from_tier, move.to_tier) == (site(2), ROOT, 3, 1)
    assert registry.rebalance("orders") is None, "one at a time"
    assert registry.keepalive(site(1), Report()).move is None
    assert registry.keepalive(site(2), Report()).move == ROOT
    assert registry.update_registry(site(2), ROOT) == Confirmed(1, 30.0)
    assert registry.keepalive(site(2), Report()).move is None
    assert registry.rebalance("orders") is None, "nobody would gain a tier"
    with pytest.raises(TailraceError, match="knows no log ordres"):
        registry.rebalance("ordres")


def test_it_rebalances_by_itself() -> None:
    clock = Clock()
    registry = in_memory(clock)
    registry.set_tunable("physrep_fanout", "1")
    for number in range(3):
        join(registry, number)
    registry.set_tunable("physrep_fanout", "2")
    clock.now += 10
    assert [registry.keepalive(node, Report()).move for node in (ROOT, site(0), site(1), site(2))] == [
        None,
        None,
        None,
        ROOT,
    ], "the deepest"
    clock.now += 10
    assert registry.keepalive(site(1), Report()).move is None, "one at a time"


COMER = """
import sys
from tailrace.topology.databasesql import DatabaseStorage
from tailrace.topology.member import State
from tailrace.topology.registry import Registry
from tailrace.topology.site import Site

registry = Registry(DatabaseStorage(sys.argv[1]))
registry.reset_nodes([Site("orders", "root:1")], State.ACTIVE)
for number in range(100_000):
    site = Site("orders", f"node{number}:4700")
    registry.update_registry(site, registry.register_replicant(site).reserved)
    print(number, flush=True)
"""


@pytest.mark.crash
def test_what_was_answered_is_there_after_a_kill(address: str) -> None:
    comer = subprocess.Popen([sys.executable, "-c", COMER, address], stdout=subprocess.PIPE, text=True)
    assert comer.stdout is not None
    answered = [int(line) for line, _ in zip(comer.stdout, range(60), strict=False)]
    comer.kill()
    answered += [int(line) for line in comer.stdout.read().splitlines()]
    comer.stdout.close()
    comer.wait()
    registry = registry_in(address)
    rows = {row.site: row for row in registry.topology()}
    registry.close()
    assert len(answered) >= 60
    assert all(rows[site(number)].state is State.ACTIVE for number in answered)
    assert all(rows[site(number)].tier is not None for number in answered)
    assert max(row.load for row in rows.values()) <= 8


def test_a_version_tells_one_set_of_tunables_from_another() -> None:
    registry = Registry(NoStorage())
    before = registry.keepalive(Site("shop", "a:1"), UNKNOWN).tunables_version
    assert before == registry.tuning("shop").version == registry.tuning("other").version
    registry.set_tunable("physrep_debug", "on")
    after = registry.keepalive(Site("shop", "a:1"), UNKNOWN).tunables_version
    assert after not in ("", before)
    registry.set_tunable("physrep_debug", "off")
    assert registry.tuning("shop").version == before, "the same for the same values, also after a restart"
    registry.set_tunable_of("shop", "physrep_fanout", "3")
    assert registry.tuning("shop").values["physrep_fanout"] == "3"
    assert registry.tuning("shop").version != registry.tuning("other").version == before
    registry.set_tunable_of("shop", "physrep_fanout", "")
    assert registry.tuning("shop").version == before
    with pytest.raises(TailraceError, match="the same for all logs"):
        registry.set_tunable_of("shop", "physrep_debug", "on")
