"""What a replica does turn by turn: keepalives, and what follows from their answers and from the time."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tailrace.relay.applier import Source
from tailrace.topology.answers import Offer
from tailrace.topology.knobs import Knobs
from tailrace.topology.member import Report, State
from tailrace.topology.placing import Placing
from tailrace.topology.registry import Registry
from tailrace.topology.site import Site
from tailrace.topology.storage import NoStorage
from tests.topology.clock import Clock
from tests.topology.direct import Direct, Idle
from tests.topology.test_knobs import Passing

ROOT, HERE = Site("shop", "root:1"), Site("shop", "here:1")
REPORT = Report(generation=0, first_offset=0, received=5)


def source_at(site: Site) -> Source:
    return Source(site.host, f"grpc://{site.host}", "token")


@dataclass
class Turns:
    """A replica that is placed, on a clock of its own."""

    clock: Clock = field(default_factory=Clock)
    said: list[str] = field(default_factory=list)
    report: Report = REPORT
    idle: Idle = field(default_factory=Idle)

    def __post_init__(self) -> None:
        self.knobs = Knobs(clock=self.clock)
        self.direct = Direct(Registry(NoStorage(), self.clock, self.clock.wall))
        self.placing = Placing(
            self.direct.client,
            HERE,
            {ROOT: source_at(ROOT)},
            source_at,
            lambda: self.report,
            self.knobs,
            self.said.append,
            self.knobs.tracing("physrep_debug", self.said.append),
            self.clock,
        )

    def connect(self) -> None:
        (source, *_) = self.placing.sources()
        self.placing.connected(source)

    def turn(self, after_s: float) -> None:
        self.clock.now += after_s
        self.direct.asked.clear()
        self.placing.turn(self.idle.replica)


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_an_idle_replica_sends_one_keepalive_and_nothing_else(turns: Turns) -> None:
    turns.connect()
    turns.turn(1)
    turns.turn(10)
    assert turns.direct.asked == ["keepalive"]
    assert turns.idle.changes == 0


def test_a_change_is_heard_with_the_next_keepalive(turns: Turns) -> None:
    turns.connect()
    turns.turn(1)
    turns.direct.registry.set_tunable("physrep_keepalive_freq_sec", "2")
    turns.turn(10)
    assert turns.direct.asked == ["keepalive", "tuning"]
    assert turns.knobs.seconds("physrep_keepalive_freq_sec") == 2


def test_the_fanout_of_one_log_is_heard_by_its_nodes(turns: Turns) -> None:
    turns.connect()
    turns.direct.registry.set_tunable_of("shop", "physrep_fanout", "3")
    turns.turn(1)
    assert turns.knobs.number("physrep_fanout") == 3


def test_it_registers_anew_after_the_interval(turns: Turns) -> None:
    turns.direct.registry.set_tunable("physrep_register_interval", "60")
    turns.connect()
    turns.turn(20)
    turns.turn(20)
    assert turns.idle.changes == 0
    turns.turn(20)
    assert turns.idle.changes == 1
    turns.connect()
    turns.turn(20)
    assert turns.idle.changes == 1, "the interval begins anew"


def test_a_replica_that_was_dialled_stays(turns: Turns) -> None:
    turns.direct.registry.reset_nodes([ROOT], State.ACTIVE)
    turns.direct.registry.set_tunable("physrep_register_interval", "60")
    turns.direct.registry.set_tunable("physrep_keepalive_freq_sec", "1h")
    turns.placing.place(source_at(ROOT), ROOT)
    turns.placing.connected(source_at(ROOT))
    turns.turn(600)
    turns.turn(600)
    assert turns.idle.changes == 0


def test_the_source_is_confirmed_again(turns: Turns) -> None:
    """Nothing need come from the source for that."""
    turns.connect()
    turns.turn(1)
    for _ in range(5):
        turns.turn(10)
        assert turns.direct.asked == ["keepalive"]
    turns.turn(10)
    assert turns.direct.asked == ["keepalive", "update_registry"]
    turns.turn(10)
    assert turns.direct.asked == ["keepalive"]


def test_what_was_not_confirmed_is_confirmed_with_the_next_keepalive(turns: Turns) -> None:
    (source, *_) = turns.placing.sources()
    turns.direct.is_away = True
    turns.placing.connected(source)
    turns.direct.is_away = False
    turns.turn(1)
    assert "update_registry" in turns.direct.asked
    assert [row.source for row in turns.direct.registry.topology()] == [None, ROOT]


def test_a_source_that_is_not_confirmed_is_left(turns: Turns) -> None:
    turns.connect()
    turns.turn(1)
    turns.direct.registry.set_tunable("physrep_fanout", "1")
    registry = turns.direct.registry
    registry.reset_nodes([HERE], State.INACTIVE)
    other = Site("shop", "other:1")
    registry.register_replicant(other, sources=[ROOT])
    registry.update_registry(other, ROOT)
    turns.turn(60)
    assert turns.idle.changes == 1


def test_nobody_has_what_is_needed(turns: Turns) -> None:
    """Then those at the top are looked at all the same: they are whose alarm it is."""
    turns.direct.registry.reset_nodes([ROOT], State.ACTIVE)
    turns.direct.registry.keepalive(ROOT, Report(generation=0, first_offset=100, received=200))
    assert [source.name for source in turns.placing.sources()] == ["root:1"]
    assert "no_overlap" in turns.said[0]


def test_it_asks_again_when_it_was_told_to(turns: Turns) -> None:
    turns.direct.registry.set_tunable("physrep_fanout", "1")
    other = Site("shop", "other:1")
    turns.direct.registry.register_replicant(other, Report(first_offset=100), sources=[ROOT])
    assert turns.placing.sources() == []
    turns.direct.asked.clear()
    assert turns.placing.sources() == []
    assert turns.direct.asked == [], "the registry said 1 s, since the other one is about to come"
    turns.direct.registry.update_registry(other, ROOT)
    turns.clock.now += 1.2
    assert turns.placing.sources() == []
    turns.direct.asked.clear()
    turns.clock.now += 4.9
    assert turns.placing.sources() == []
    assert turns.direct.asked == [], "the registry said 5 s"
    turns.direct.registry.set_tunable("physrep_fanout", "2")
    turns.clock.now += 1.2
    assert [source.name for source in turns.placing.sources()] == ["root:1"]


def test_without_a_registry_those_offered_last_are_tried_and_then_the_top(turns: Turns) -> None:
    turns.direct.registry.reset_nodes([ROOT], State.ACTIVE)
    other = Site("shop", "other:1")
    turns.direct.registry.register_replicant(other)
    turns.direct.registry.update_registry(other, ROOT)
    turns.direct.registry.set_tunable("physrep_fanout", "1")
    assert [source.name for source in turns.placing.sources()] == ["other:1"]
    turns.direct.is_away = True
    assert [source.name for source in turns.placing.sources()] == ["other:1", "root:1"]


def test_a_candidate_that_was_tried_in_vain_is_told_with_the_next(turns: Turns) -> None:
    """Or others would be asked to move there until its lease is over."""
    registry = turns.direct.registry
    registry.reset_nodes([ROOT], State.ACTIVE)
    registry.set_tunable("physrep_fanout", "2")
    for name in ("a:1", "b:1"):
        registry.register_replicant(Site("shop", name))
        registry.update_registry(Site("shop", name), ROOT)
    first, second, *_ = turns.placing.sources()
    turns.placing.failed(first)
    turns.placing.connected(second)
    offer = registry.register_replicant(Site("shop", "late:1"))
    assert isinstance(offer, Offer)
    assert offer.reserved.host == second.name, "the other one has as much room, and cannot be reached"


def test_a_move_that_failed_is_not_tried_again(turns: Turns) -> None:
    registry = turns.direct.registry
    registry.set_tunable("physrep_fanout", "1")
    registry.set_tunable("physrep_rebalance_interval", "1h")
    middle = Site("shop", "middle:1")
    registry.register_replicant(middle, sources=[ROOT])
    registry.update_registry(middle, ROOT)
    turns.connect()
    registry.set_tunable("physrep_fanout", "2")
    turns.turn(1)
    assert turns.idle.changes == 1, "it is to move up"
    (wanted,) = turns.placing.sources()
    assert wanted.name == "root:1"
    turns.placing.failed(wanted)
    turns.turn(1)
    assert turns.idle.changes == 1
    assert turns.placing.sources()[0].name == "middle:1"


def test_more_is_told_if_that_is_wanted(turns: Turns) -> None:
    turns.connect()
    turns.turn(1)
    assert turns.said == []
    turns.direct.registry.set_tunable("physrep_debug", "on")
    turns.turn(1)
    turns.turn(1)
    assert turns.said == ["physrep_debug: the registry was told that shop@here:1 is at offset 5"]


def test_the_tunables_are_heard_before_anything_else(turns: Turns) -> None:
    turns.direct.registry.set_tunable("physrep_exit_on_invalid_logstream", "on")
    turns.direct.is_away = True
    turns.placing.hear()
    assert not turns.knobs.is_on("physrep_exit_on_invalid_logstream")
    turns.direct.is_away = False
    turns.placing.hear()
    assert turns.knobs.is_on("physrep_exit_on_invalid_logstream")


def test_keepalives_come_as_often_as_the_registry_says(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    turns.connect()
    stopping, came = Passing(turns.clock), list[float]()
    turns.direct.registry.set_tunable("physrep_keepalive_freq_sec", "0.5")
    monkeypatch.setattr(turns.placing, "turn", lambda _: came.append(turns.clock.now))
    turns.placing.hear()
    stopping.then = lambda: stopping.set() if len(came) == 3 else None
    turns.placing.tend(turns.idle.replica, stopping)
    assert came == [1000.5, 1001, 1001.5]
