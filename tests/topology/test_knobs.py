"""What holds for a node: what its file says, then what the registry says, then the defaults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from tailrace.topology.answers import Answer, Tuning
from tailrace.topology.knobs import Knobs, shown
from tailrace.topology.registry import Registry
from tailrace.topology.storage import NoStorage
from tailrace.topology.tunables import Value
from tests.topology.clock import Clock

KEEPALIVE = "physrep_keepalive_freq_sec"


class Passing(threading.Event):
    """Time passes while one waits for it."""

    def __init__(self, clock: Clock, then: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._clock = clock
        self.then = then

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.now += timeout or 0.0
        self.then()
        return self.is_set()


def test_the_file_wins_over_the_registry() -> None:
    knobs = Knobs({"physrep_fanout": 3}, {"physrep_check_minlog_freq_sec": 60.0})
    assert (knobs.number("physrep_fanout"), knobs.seconds("physrep_check_minlog_freq_sec")) == (3, 60)
    assert knobs.seconds(KEEPALIVE) == 10
    turned: list[Mapping[str, Value]] = []
    knobs.turned = turned.append
    registry = Registry(NoStorage())
    registry.set_tunable("physrep_fanout", "5")
    registry.set_tunable("blocking_physrep", "on")
    knobs.learn(registry.tuning())
    assert (knobs.number("physrep_fanout"), knobs.is_on("blocking_physrep")) == (3, True)
    assert knobs.seconds("physrep_check_minlog_freq_sec") == 10, "what the registry says, default or not"
    assert turned == [{"blocking_physrep": True, "physrep_check_minlog_freq_sec": 10.0}]
    assert shown(turned[0]) == "blocking_physrep=on, physrep_check_minlog_freq_sec=10"
    knobs.learn(registry.tuning())
    assert len(turned) == 1, "nothing has changed"


def test_values_are_asked_for_only_when_they_are_others() -> None:
    registry, knobs, asked = Registry(NoStorage()), Knobs(), list[str]()

    def ask() -> Tuning:
        asked.append("tuning")
        return registry.tuning()

    for _ in range(3):
        knobs.heed(Answer(is_known=True, tunables_version=registry.tuning().version), ask)
    assert len(asked) == 1
    registry.set_tunable("physrep_pollms", "70")
    knobs.heed(Answer(is_known=True, tunables_version=registry.tuning().version), ask)
    assert (len(asked), knobs.number("physrep_pollms")) == (2, 70)


def test_what_another_release_says_is_passed_over() -> None:
    knobs = Knobs()
    knobs.learn(Tuning("1", {"physrep_of_tomorrow": "7", "physrep_fanout": "many", "physrep_pollms": "9"}))
    assert (knobs.number("physrep_fanout"), knobs.number("physrep_pollms")) == (8, 9)


def test_a_change_shortens_a_wait() -> None:
    clock = Clock()
    knobs = Knobs({}, {KEEPALIVE: 3600.0}, clock)
    stopping = Passing(clock, lambda: knobs.learn(Tuning("2", {KEEPALIVE: "5s"})))
    assert not knobs.pause(KEEPALIVE, stopping)
    assert clock.now == 1005


def test_a_wait_ends_with_all() -> None:
    clock = Clock()
    stopping = Passing(clock)
    stopping.set()
    assert Knobs(clock=clock).pause(KEEPALIVE, stopping)


def test_a_switch_decides_what_is_told() -> None:
    knobs, said = Knobs(), list[str]()
    trace = knobs.tracing("revsql_debug", said.append)
    trace("unheard")
    knobs.learn(Tuning("1", {"revsql_debug": "on"}))
    trace("dials")
    assert said == ["revsql_debug: dials"]
