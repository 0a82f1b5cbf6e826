"""Nodes and replicas as the status model has them, by what they say of themselves."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.message import Message, Micros, Op, now
from tailrace.observe.logs import LogLook
from tailrace.observe.model import Health, Kind, Lag, Overview, Part, TreeNode, Wrong
from tailrace.observe.nodes import SILENT_S, overview_of_node, overview_of_replica
from tailrace.observe.trees import TreeLook, TreeTelling, tree_of
from tailrace.relay.subscription import consumer_name
from tailrace.topology.answers import Answer, Confirmed, Offer, Row
from tailrace.topology.member import Report
from tailrace.topology.registry import Registry
from tests.topology.clock import Clock
from tests.topology.places import ROOT, site
from tests.topology.test_registry import in_memory

ERROR = TailraceError("relay.unreachable", "no route", hint="look at the network").encode()
SOURCE = {
    "state": "follow",
    "error": None,
    "behind": 3,
    "behind_bytes": 300,
    "behind_s": 1.5,
    "lag_s": 0.2,
    "age_s": 0.1,
}
PEER = {
    "node": "77",
    "state": "follows",
    "is_following": True,
    "behind": 5,
    "behind_bytes": 500,
    "behind_s": 2.5,
    "age_s": 0.2,
    "lost": None,
    "is_anonymous": False,
}
SYNC_PEER = {
    "name": "hq",
    "url": "http://127.0.0.1:1",
    "state": "waiting",
    "node": "9",
    "rounds": 4,
    "fetched": 10,
    "sent": 20,
    "refused": 1,
    "older": 2,
    "warnings": [],
    "last_success_ms": 0,
    "last_error": None,
    "clock_ahead_ms": 1,
    "clock_warning": None,
}
SESSION = {
    "client": "shop",
    "sink": "office",
    "state": "follow",
    "position": 8,
    "remaining_entries": 2,
    "remaining_bytes": 20,
    "lag_s": 0.5,
    "snapshot": None,
    "is_forced": False,
    "following_entries": 0,
    "completed_us": None,
    "lost_before": None,
    "shed": 0,
    "failures": 0,
    "error": None,
}


TOLD: dict[str, Any] = {
    "is_running": True,
    "age_s": 0.5,
    "node": "1",
    "cluster": "c",
    "is_anonymous": False,
    "vclock": {"1": 12, "77": 4},
    "leader": None,
    "term": 0,
    "sources": {},
    "peers": [],
    "slow": {},
    "store_error": None,
    "read_only": None,
    "queues": None,
}


def node(directory: Path, tree: tuple[TreeNode, ...] = (), **said: Any) -> Overview:
    return overview_of_node("berlin", LogLook(str(directory / "log")), {**TOLD, **said}, tree)


def only(overview: Overview, kind: Kind) -> Part:
    (found,) = overview.of(kind)
    return found


def test_without_a_log(tmp_path: Path) -> None:
    found = node(tmp_path)
    assert (found.what, found.log, found.parts) == ("node", None, ())


@pytest.mark.parametrize(
    ("said", "health"),
    [
        ({}, Health.GOOD),
        ({"state": "stopped", "error": ERROR}, Health.BAD),
        ({"state": "connect", "error": ERROR}, Health.TROUBLED),
        ({"state": "connect"}, Health.WAITING),
    ],
)
def test_sources(tmp_path: Path, said: dict[str, Any], health: Health) -> None:
    found = only(node(tmp_path, sources={"paris": {**SOURCE, **said}}), Kind.SOURCE)
    assert (found.name, found.health) == ("paris", health)
    assert found.lag is not None
    assert (found.lag.messages, found.lag.bytes, found.lag.seconds) == (3, 300, 1.5)
    if "error" in said:
        assert found.wrong is not None
        assert found.wrong.cure == "look at the network"


def test_a_source_of_which_nothing_is_known(tmp_path: Path) -> None:
    said = {**SOURCE, "state": "connect", "behind": None, "behind_bytes": None, "behind_s": None, "age_s": None}
    found = only(node(tmp_path, sources={"paris": said}), Kind.SOURCE)
    assert (found.lag, found.seen_s_ago) == (None, None)


def test_peers(tmp_path: Path) -> None:
    lost = {**PEER, "node": "78", "state": "lost", "is_following": False, "lost": "past its cap"}
    away = {**PEER, "node": "79", "state": "away", "is_following": False}
    found = node(tmp_path, peers=[PEER, lost, away], slow={"copy": 12.0})
    assert [(each.state, each.health) for each in found.of(Kind.PEER)] == [
        ("follows", Health.GOOD),
        ("lost", Health.BAD),
        ("away", Health.WAITING),
    ]
    gone = found.of(Kind.PEER)[1].wrong
    assert gone is not None
    assert gone.code == "consumer.invalidated"
    slow = only(found, Kind.REPLICA)
    assert (slow.state, slow.seen_s_ago, slow.health) == ("slow", 12.5, Health.TROUBLED), (
        "it was told half a second ago"
    )


def test_the_consumers_of_peers_are_told_once(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path / "log") as log:
        log.append_messages([Message(Op.INSERT, now(), "t", {"id": number}) for number in range(5)])
    Consumers(tmp_path / "log").register(consumer_name(77), start=3)
    Consumers(tmp_path / "log").register("lake")
    found = node(tmp_path, peers=[PEER])
    assert [part.name for part in found.of(Kind.CONSUMER)] == ["lake"]
    assert only(found, Kind.PEER).position == 2, "so that it has a rate"


def test_queues(tmp_path: Path) -> None:
    failing = {**SESSION, "sink": "plant", "error": ERROR, "failures": 5}
    received = {"client": "shop", "source": "plant", "queue": "q", "position": 4, "staged": None, "is_consistent": True}
    staged = {**received, "source": "yard", "staged": {"request": 1, "messages": 12}, "is_consistent": False}
    asked = {"request": "7", "client": "shop", "sites": ["office", "plant"], "claimed_by": "till", "supplied": 3}
    asked |= {"total": 9, "is_done": False, "failures": 0, "error": ""}
    failed = {**asked, "claimed_by": None, "failures": 2, "error": "no such table"}
    queues = {"sessions": [SESSION, failing], "received": [received, staged], "outbox_errors": [ERROR]}
    queues["requests"] = [asked, failed]
    found = node(tmp_path, queues=queues)
    assert [(each.name, each.health) for each in found.of(Kind.QUEUE)] == [
        ("shop → office", Health.GOOD),
        ("shop → plant", Health.TROUBLED),
    ]
    assert found.of(Kind.QUEUE)[0].lag is not None
    assert [each.state for each in found.of(Kind.RECEIVED)] == ["consistent", "snapshot comes, 12 messages so far"]
    assert [(each.name, each.state, each.health) for each in found.of(Kind.SNAPSHOT)] == [
        ("shop for office, plant", "till supplies it, 3 of 9 so far", Health.GOOD),
        ("shop for office, plant", "nobody supplies it now", Health.TROUBLED),
    ]
    assert [wrong.code for wrong in found.wrong] == ["relay.unreachable"]
    assert found.health is Health.BAD


def test_sync(tmp_path: Path) -> None:
    heard = {**SYNC_PEER, "last_success_ms": int(time.time() * 1000) - 5000}
    offline = {**SYNC_PEER, "name": "depot", "state": "offline", "last_success_ms": None, "last_error": ERROR}
    skewed = {**heard, "name": "skewed", "clock_warning": "its clock is 5 s ahead"}
    lacking = {**heard, "name": "lacking", "warnings": ["table note (44) is not synced at the other node"]}
    peers = [heard, offline, skewed, lacking]
    now_ms = int(time.time() * 1000)
    known = [
        {"node": "9", "name": "hq", "calls_us": False, "seen_ms": now_ms, "waiting": 7, "oldest_ms": now_ms + 60_000},
        {"node": "12", "name": None, "calls_us": True, "seen_ms": now_ms - 3_600_000, "waiting": 3, "oldest_ms": None},
        {"node": "13", "name": None, "calls_us": True, "seen_ms": 0, "waiting": 0},
    ]
    found = node(tmp_path, sync={"node": "3", "url": None, "error": None, "peers": peers, "known": known})
    assert (found.of(Kind.SYNC)[0].lag, found.of(Kind.SYNC)[0].moved) == (Lag(7, None, 0.0), 30), "its clock is ahead"
    others = found.of(Kind.SYNC)[len(peers) :]
    assert [(each.name, each.state, each.lag) for each in others] == [
        ("node 12", "away", Lag(3, None, None)),
        ("node 13", "never here", Lag(0, None, 0.0)),
    ]
    assert [(each.name, each.state, each.health) for each in found.of(Kind.SYNC)[: len(peers)]] == [
        ("hq", "waiting", Health.GOOD),
        ("depot", "offline", Health.TROUBLED),
        ("skewed", "waiting", Health.TROUBLED),
        ("lacking", "waiting", Health.TROUBLED),
    ]
    seen_s = found.of(Kind.SYNC)[0].seen_s_ago
    assert seen_s is not None
    assert seen_s >= 5
    assert found.of(Kind.SYNC)[0].more["rows sent"] == 20
    away = node(tmp_path, sync={"node": "3", "url": None, "error": ERROR, "peers": [], "known": None})
    assert only(away, Kind.SYNC).health is Health.BAD


def test_one_that_does_not_run_any_more(tmp_path: Path) -> None:
    found = node(tmp_path, is_running=False, sources={"paris": SOURCE}, peers=[{**PEER, "lost": "past its cap"}])
    assert only(found, Kind.SOURCE).state == "not running, was follow"
    assert only(found, Kind.SOURCE).health is Health.WAITING
    assert only(found, Kind.PEER).health is Health.BAD, "what was wrong still is"
    caller = {"node": "12", "name": None, "calls_us": True, "seen_ms": int(time.time() * 1000), "waiting": 3}
    sync = {"node": "3", "url": None, "error": None, "peers": [], "known": [caller]}
    assert only(node(tmp_path, is_running=False, sync=sync), Kind.SYNC).state == "not running, was here lately"


def test_what_was_told_is_as_old_as_it_is(tmp_path: Path) -> None:
    """A node that died an hour ago did not hear of its source a moment ago."""
    found = node(tmp_path, is_running=False, age_s=3600.0, sources={"paris": SOURCE}, peers=[PEER])
    assert only(found, Kind.SOURCE).seen_s_ago == pytest.approx(3600.1)
    assert only(found, Kind.PEER).seen_s_ago == pytest.approx(3600.2)
    assert found.runs == "does not run, heard of 1.0 h ago"
    assert found.wrong == (), "it was ended, perhaps on purpose"


def test_a_node_that_hangs(tmp_path: Path) -> None:
    """It holds its lock, so it runs; but what it said is old, and nobody may take it for news."""
    assert node(tmp_path, age_s=SILENT_S - 1).wrong == ()
    found = node(tmp_path, age_s=SILENT_S + 1, sources={"paris": SOURCE})
    assert [wrong.code for wrong in found.wrong] == ["node.silent"]
    assert found.health is Health.BAD


def test_what_a_source_does_not_say_is_not_nothing(tmp_path: Path) -> None:
    said = {**SOURCE, "behind_bytes": None, "behind_s": None}
    assert only(node(tmp_path, sources={"paris": said}), Kind.SOURCE).lag == Lag(3, None, None)


def test_a_replica_that_is_cut_off_is_trouble(tmp_path: Path) -> None:
    cut = TreeNode("x", None, "shop", None, "Inactive", Health.BAD, "")
    assert node(tmp_path, (cut,)).health is Health.TROUBLED


def test_who_leads_and_how_far_the_clock_is(tmp_path: Path) -> None:
    assert node(tmp_path).extra == "clock {1: 12, 77: 4}"
    assert node(tmp_path, leader="1", term=3).extra == "leader itself, term 3, clock {1: 12, 77: 4}"
    assert node(tmp_path, leader="77", term=4).more["leader"] == "77"


class TestTelling:
    def test_it_is_not_asked_for_all_the_time(self, tmp_path: Path) -> None:
        asked: list[int] = []

        def ask() -> list[Row]:
            asked.append(1)
            return []

        telling = TreeTelling(ask, str(tmp_path))
        telling.tell()
        telling.tell()
        assert len(asked) == 1
        assert TreeLook(str(tmp_path)).read() == (), "and nothing is left where there is no topology"

    def test_what_is_told_is_read(self, tmp_path: Path) -> None:
        registry = placed(2)
        TreeTelling(registry.topology, str(tmp_path)).tell()
        look = TreeLook(str(tmp_path))
        found = look.read()
        assert [(each.name, each.below, each.health) for each in found] == [
            (each.name, each.below, each.health) for each in tree_of(registry.topology())
        ]
        assert look.read() is found, "until there is news"
        TreeTelling(list, str(tmp_path)).tell()
        assert look.read() == ()

    def test_a_registry_that_does_not_answer(self, tmp_path: Path) -> None:
        """What was told before stays, and the node goes on."""

        def ask() -> list[Row]:
            raise TailraceError("log.io", "no such disk")

        TreeTelling(placed(1).topology, str(tmp_path)).tell()
        TreeTelling(ask, str(tmp_path)).tell()
        assert len(TreeLook(str(tmp_path)).read()) == 2

    def test_what_is_not_told_any_more_grows_old_and_says_so(self, tmp_path: Path) -> None:
        def ask() -> list[Row]:
            raise TailraceError("log.io", "no such disk", hint="mend the disk")

        def ages() -> list[float]:
            return [each.seen_s_ago for each in look.read() if each.seen_s_ago is not None]

        registry, look = placed(2), TreeLook(str(tmp_path))
        TreeTelling(registry.topology, str(tmp_path)).tell()
        before = ages()
        assert before
        assert look.wrong() is None
        TreeTelling(ask, str(tmp_path)).tell()
        told_s = (tmp_path / "topology.json").stat().st_mtime - 3600
        os.utime(tmp_path / "topology.json", (told_s, told_s))
        assert min(ages()) >= 3600
        later = ages()
        assert min(after - before for before, after in zip(later, ages(), strict=True)) > 0, "with every look"
        wrong = look.wrong()
        assert wrong is not None
        assert (wrong.code, wrong.cure) == ("log.io", "mend the disk")
        assert re.fullmatch(
            r"the topology cannot be told of, what is shown of it is 1\.\d h old: no such disk", wrong.what
        )

        TreeTelling(registry.topology, str(tmp_path)).tell()
        assert max(ages()) < 3600
        assert look.wrong() is None

    def test_a_topology_that_cannot_be_told_of_needs_somebody(self, tmp_path: Path) -> None:
        log, wrong = LogLook(str(tmp_path / "log")), Wrong("log.io", "no such disk")
        found = overview_of_node("berlin", log, TOLD, (), wrong)
        assert found.wrong == (wrong,)
        assert found.health is Health.BAD


def test_a_store(tmp_path: Path) -> None:
    assert node(tmp_path).of(Kind.STORE) == []
    assert only(node(tmp_path, store_error=ERROR), Kind.STORE).health is Health.BAD
    assert only(node(tmp_path, read_only="not in sync"), Kind.STORE).state == "read-only: not in sync"


REPLICA: dict[str, Any] = {
    "is_running": True,
    "age_s": 0.2,
    "name": "copy",
    "generation": 2,
    "source": "root",
    "state": "copy",
    "error": None,
    "next_offset": 90,
    "source_offset": 100,
    "behind_bytes": 1000,
    "heard_s": 0.3,
    "top_s": 60.0,
    "copied_bytes": 5,
    "sent_bytes": 6,
    "thrown_bytes": 0,
    "copies": ["below", "beside"],
    "slow": {"below": 9.0},
    "alarms": ["it has another log"],
    "store": {"error": None, "allowed": 85, "wait_s": 60.0, "ignored": ["t"], "applied": 80, "backfilled": None},
}


def test_a_replica(tmp_path: Path) -> None:
    found = overview_of_replica("copy", LogLook(str(tmp_path / "log")), REPLICA)
    ours, slow = found.of(Kind.REPLICA)
    assert ours.lag is not None
    assert (ours.position, ours.lag.messages, ours.lag.bytes, ours.health) == (89, 10, 1000, Health.GOOD)
    assert ours.lag.seconds is None, "a replica does not know the age of what it has not got"
    assert (ours.more["copies"], ours.more["copied by"]) == (2, "below, beside")
    assert ours.more["top of all heard of"] == "1.0 m ago"
    assert (slow.name, slow.health) == ("below", Health.TROUBLED)
    store = only(found, Kind.STORE)
    assert (store.position, store.lag) == (79, Lag(10, None, None))
    assert store.extra == "late 60 s, may apply before 85, ignored t"
    assert found.extra == "generation 2"
    assert [wrong.what for wrong in found.wrong] == ["it has another log"]


def test_how_long_a_replica_and_its_store_are_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last message that the copy has is 100 s old, the first that the store has not is 600 s old."""
    with CommitLog.open(str(tmp_path / "log")) as log:
        for age_s in (900, 600, 100):
            stamp = Micros((5_000 - age_s) * 1_000_000)
            log.append_messages([Message(op=Op.INSERT, timestamp=stamp, namespace="n", data={"id": age_s})])

    monkeypatch.setattr("tailrace.observe.logs.time.time", lambda: 5_000.0)

    def lags(**said: Any) -> list[float | None]:
        store = {**REPLICA["store"], "applied": said.pop("applied"), "wait_s": said.pop("wait_s", 0.0)}
        told = {**REPLICA, "next_offset": 3, "slow": {}, "store": store, **said}
        found = overview_of_replica("copy", LogLook(str(tmp_path / "log")), told)
        known = (only(found, kind).lag for kind in (Kind.REPLICA, Kind.STORE))
        return [None if lag is None else lag.seconds for lag in known]

    assert lags(source_offset=5, applied=1) == [100.0, 600.0]
    assert lags(source_offset=5, applied=1, wait_s=400.0)[1] == 200.0, "it is meant to be late"
    assert lags(source_offset=3, applied=3) == [0.0, 0.0]
    assert lags(source_offset=5, applied=3, next_offset=0) == [None, 0.0], "it has nothing yet"


def placed(replicas: int, clock: Clock | None = None) -> Registry:
    """One below the other."""
    registry = in_memory(clock or Clock())
    registry.set_tunable("physrep_fanout", "1")
    for number in range(1, replicas + 1):
        offer = registry.register_replicant(site(number), Report())
        assert isinstance(offer, Offer)
        assert isinstance(registry.update_registry(site(number), offer.reserved), Confirmed)
    return registry


def test_the_tree_of_a_registry() -> None:
    nodes = list(tree_of(placed(2).topology()))
    assert [(each.name, each.below, each.tier) for each in nodes] == [
        (str(ROOT), None, 0),
        (str(site(1)), str(ROOT), 1),
        (str(site(2)), str(site(1)), 2),
    ]
    assert all(each.health is Health.GOOD for each in nodes)


def test_a_replica_that_died_is_bad(tmp_path: Path) -> None:
    """Its lease is over; one that was only offered a place waits, and so does one that an operator has stopped."""
    clock = Clock()
    registry = placed(3, clock)
    registry.stop_replication([site(2)])
    clock.now += 600
    assert isinstance(registry.keepalive(site(3), Report()), Answer)
    registry.update_registry(site(3), ROOT)
    assert isinstance(registry.register_replicant(site(4), Report()), Offer)
    found = {each.name: each.health for each in tree_of(registry.topology())}
    assert found == {
        str(ROOT): Health.GOOD,
        str(site(1)): Health.BAD,
        str(site(2)): Health.WAITING,
        str(site(3)): Health.GOOD,
        str(site(4)): Health.WAITING,
    }
    assert node(tmp_path, tuple(tree_of(registry.topology()))).health is Health.TROUBLED
