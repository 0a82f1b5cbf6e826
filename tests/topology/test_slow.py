"""Copies that are not heard of."""

from __future__ import annotations

from pathlib import Path

from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.message import Offset
from tailrace.node.status import write_status
from tailrace.relay.holds import Holds
from tailrace.topology.answers import Tuning
from tailrace.topology.knobs import Knobs
from tailrace.topology.pulling import Pulling
from tailrace.topology.request import Keep, Leave
from tailrace.topology.slow import Slow
from tests.cli.conftest import Tailrace, tailrace
from tests.relay.nodes import wait_for
from tests.topology.clock import Clock
from tests.topology.logs import SMALL_SEGMENTS, Copying, Served, append
from tests.topology.test_knobs import Passing

__all__ = ["tailrace"]  # a fixture


def test_each_change_is_told_once() -> None:
    ages, said, knobs = {"c1": 61.0, "c2": 5.0}, list[str](), Knobs()
    slow = Slow(lambda: ages, knobs, said.append)
    slow.look()
    ages["c1"] = 71.0
    slow.look()
    assert said == ["ALARM: slow or hung, not heard of: c1 for 61 s"]
    assert slow.copies == {"c1": 71.0}
    knobs.learn(Tuning("1", {"physrep_hung_replicant_threshold": "4"}))
    slow.look()
    assert said[1:] == ["ALARM: slow or hung, not heard of: c1 for 71 s, c2 for 5 s"]
    ages["c1"] = 0.0
    del ages["c2"]
    slow.look()
    assert said[2:] == ["c1 is heard of again", "c2 is not served any more"]
    assert slow.copies == {}


def test_it_is_looked_at_as_often_as_the_registry_says() -> None:
    clock, looks = Clock(), list[float]()

    def heard() -> dict[str, float]:
        looks.append(clock.now)
        if len(looks) == 3:
            stopping.set()
        return {}

    stopping = Passing(clock)
    knobs = Knobs({"physrep_hung_replicant_check_freq_sec": 4.0}, clock=clock)
    Slow(heard, knobs, print).run(stopping)
    assert looks == [1004, 1008, 1012]


def test_a_source_knows_when_it_heard_of_its_copies(tmp_path: Path) -> None:
    clock = Clock()
    with CommitLog.open(tmp_path / "log") as log:
        append(log, 0, 3)
        holds = Holds(Consumers(log.directory))
        pulling = Pulling(log.directory, holds, fanout=lambda: 8, beat_s=1.0, clock=clock)
        for name in ("c1", "c2", "c3"):
            pulling.keep(Keep(name=name, offset=Offset(0)))
        clock.now += 70
        pulling.keep(Keep(name="c2", offset=Offset(3)))
        assert pulling.heard() == {"c1": 70, "c2": 0, "c3": 70}
        pulling.leave(Leave(name="c1"))
        holds.release("replica-c3", "test")
        assert pulling.heard() == {"c2": 0}, "who said goodbye, or is not kept for, is not waited for"
        assert "replica-c1" in Consumers(log.directory).names(), "it may come back"


def test_a_copy_says_goodbye(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path / "root", SMALL_SEGMENTS) as log, Served(tmp_path / "root") as root:
        append(log, 0, 10)
        with Copying(tmp_path / "copy", [root.source]) as copy:
            copy.reaches(log)
            assert list(root.pulling.heard()) == ["copy"]
            copy.replica.change_source()
            wait_for(lambda: root.pulling.heard() == {})
            wait_for(lambda: list(root.pulling.heard()) == ["copy"])
        assert root.pulling.heard() == {}


def test_slow_copies_of_a_copy_are_shown(tmp_path: Path, tailrace: Tailrace) -> None:
    status = {
        "kind": "replica",
        "name": "r1",
        "state": "follow",
        "generation": 0,
        "next_offset": 5,
        "source_offset": None,
        "behind_bytes": 0,
        "heard_s": None,
        "top_s": None,
        "source": None,
        "error": None,
        "copied_bytes": 5,
        "thrown_bytes": 0,
        "sent_bytes": 0,
        "copies": ["c1"],
        "slow": {"c1": 71.4},
        "alarms": [],
        "store": None,
        "at_us": 1,
    }
    write_status(status, str(tmp_path))
    assert (
        "replica c1: the copy was not heard of for 1.2 m (topology.slow)" in tailrace("replica", "status", tmp_path).out
    )
