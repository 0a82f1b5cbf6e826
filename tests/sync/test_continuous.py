"""Sync that goes on: changes of either side at once, a node that is away, the end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tailrace.limits import SYNC_EVENT_BYTES_MAX
from tailrace.sync import peerloop, subscription
from tailrace.sync.address import PeerAddress
from tailrace.sync.auth import Accept
from tailrace.sync.backoff import MAX_S, Backoff
from tailrace.sync.client import SyncNode
from tailrace.sync.continuous import Continuous
from tailrace.sync.entity import Changes, Entity
from tailrace.sync.exchange import Key
from tailrace.sync.httplink import HttpLink
from tailrace.sync.httppeer import HttpPeer
from tailrace.sync.peerloop import PeerStatus, State
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import SyncStore
from tests.relay.nodes import wait_for
from tests.servers.link import Link
from tests.sync.conftest import Places
from tests.sync.hostile import HostileServer, Said
from tests.sync.places import Place
from tests.sync.todo import CREATE, TABLE_ID, node, put, remove, todo, whats

ANYONE = ServerOptions(Accept.ANYONE)


@contextmanager
def served(store: SyncStore) -> Iterator[str]:
    with SyncServer(store, options=ANYONE) as server:
        yield server.url


@contextmanager
def running(store: SyncStore, *urls: str, **more: Any) -> Iterator[Continuous]:
    peers = [PeerAddress(f"peer{number}", url) for number, url in enumerate(urls)]
    with Continuous(SyncNode.over(store), peers, **more) as continuous:
        yield continuous


def states(continuous: Continuous) -> list[State]:
    return [status.state for status in continuous.status()]


def are_waiting(continuous: Continuous) -> Callable[[], bool]:
    return lambda: set(states(continuous)) == {State.WAITING}


def are_equal(*places: Place) -> Callable[[], bool]:
    return lambda: all(whats(place) == whats(places[0]) for place in places)


@pytest.mark.parametrize("called", ["sqlite", "postgres"])
def test_changes_of_either_side_come_at_once(places: Places, called: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peerloop, "ROUND_EVERY_S", 3600.0)  # so it must be told, and by either
    laptop, central = places("sqlite"), places(called)
    one, other = node(laptop), node(central)
    with served(other) as url, running(one, url) as continuous:
        wait_for(are_waiting(continuous))
        put(laptop, 1, "from the laptop")
        wait_for(lambda: whats(central) == {1: "from the laptop"})
        put(central, 2, "from central")
        wait_for(lambda: 2 in whats(laptop))
        remove(central, 1)
        wait_for(are_equal(laptop, central))
        (status,) = continuous.status()
        assert status.node_id == other.node_id and status.last_error is None and status.last_success_ms
    assert states(continuous) == [State.STOPPED]
    assert whats(laptop) == {2: "from central"}


def test_trackers_by_hand_are_noticed(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peerloop, "ROUND_EVERY_S", 3600.0)
    laptop, central = places("sqlite"), places("sqlite")
    one, other = node(laptop, by_hand=True), node(central, by_hand=True)
    put(laptop, 1, "for nobody")
    put(laptop, 2, "for central")
    with served(other) as url, running(one, url) as continuous:
        wait_for(are_waiting(continuous))
        into = "INSERT INTO todoReplicate(trkrEntityPrimaryKey, trkrDestinationNode)"
        laptop.run(f"{into} VALUES (2, {other.node_id})")
        wait_for(lambda: whats(central) == {2: "for central"})


@pytest.mark.parametrize("where", ["client", "server"])
def test_a_function_that_fails_once_ends_nothing(places: Places, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peerloop, "ROUND_EVERY_S", 3600.0)
    laptop, central = places("sqlite"), places("sqlite")
    failures = iter([KeyError("a bad moment")])

    def tell_all(connection: Any, changes: Changes) -> list[tuple[Key, int]]:
        for error in failures:
            raise error
        nodes = connection.execute("SELECT nodeId FROM DoorNode").fetchall()
        return [(key, each) for key in changes.upserted for (each,) in nodes]

    hooks = {"on_change": tell_all, "on_new_node": lambda _connection, _node: []}
    one = node(laptop, **(hooks if where == "client" else {}))
    other = node(central, **(hooks if where == "server" else {}))
    with served(other) as url, running(one, url) as continuous:
        wait_for(are_waiting(continuous))
        put(laptop if where == "client" else central, 1, "waits for a moment")
        if where == "client":
            wait_for(lambda: continuous.error is not None and "tell_all" in continuous.error.what)
        wait_for(lambda: whats(laptop) == whats(central) == {1: "waits for a moment"})
        wait_for(lambda: continuous.error is None)


def test_whatever_happens_when_changes_are_looked_at_is_told_and_tried_again(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop, central = places("sqlite"), places("sqlite")
    one, other = node(laptop), node(central)
    is_broken = threading.Event()
    is_broken.set()
    usual = SyncStore.process_changes

    def process_changes(store: SyncStore) -> bool:
        if is_broken.is_set():
            raise MemoryError("there is none left")
        return usual(store)

    with served(other) as url, running(one, url) as continuous:
        wait_for(are_waiting(continuous))
        monkeypatch.setattr(SyncStore, "process_changes", process_changes)
        wait_for(lambda: continuous.error is not None and "MemoryError" in continuous.error.what)
        put(laptop, 1, "x")
        is_broken.clear()
        wait_for(lambda: whats(central) == {1: "x"} and continuous.error is None)


def test_rows_go_on_from_one_peer_to_another(places: Places) -> None:
    """Each of three has a server and calls the next, in a ring, and a fourth calls two of them."""
    mine = [places(kind) for kind in ("sqlite", "postgres", "sqlite", "sqlite")]
    stores = [node(place) for place in mine]
    with (
        served(stores[0]) as first,
        served(stores[1]) as second,
        served(stores[2]) as third,
        running(stores[0], second),
        running(stores[1], third),
        running(stores[2], first),
        running(stores[3], first, second),
    ):
        for number, place in enumerate(mine):
            put(place, number, f"of node {number}")
        wait_for(lambda: all(len(whats(place)) == 4 for place in mine))
        put(mine[3], 0, "changed")
        wait_for(lambda: all(whats(place)[0] == "changed" for place in mine))
    assert all(whats(place) == whats(mine[0]) for place in mine)


def test_a_node_that_goes_away_is_found_again(places: Places) -> None:
    laptop, central = places("sqlite"), places("sqlite")
    one, other = node(laptop), node(central)

    def soon(event: threading.Event, seconds: float) -> bool:
        return event.wait(min(seconds, 0.05))

    with (
        served(other) as url,
        Link(int(url.rpartition(":")[2])) as link,
        running(one, f"http://127.0.0.1:{link.port}", wait=soon) as continuous,
    ):
        wait_for(are_waiting(continuous))
        link.break_off()
        wait_for(lambda: states(continuous) == [State.OFFLINE])
        (status,) = continuous.status()
        assert status.last_error is not None and status.last_error.code == "sync.unreachable"
        put(laptop, 1, "offline")
        put(central, 2, "meanwhile")
        link.mend()
        wait_for(lambda: len(whats(laptop)) == 2)
        wait_for(are_equal(laptop, central))
        wait_for(are_waiting(continuous))
        assert continuous.status()[0].last_error is None


def test_it_ends_at_once_whatever_a_peer_does(places: Places) -> None:
    """One waits in a subscription, one is away, one says nothing in the midst of a round, one not even who it is."""
    laptop = places("sqlite")
    one, other, third = node(laptop), node(places("sqlite")), node(places("sqlite"))
    with (
        served(other) as url,
        served(third) as third_url,
        Link(int(third_url.rpartition(":")[2])) as link,
        socket.create_server(("127.0.0.1", 0)) as mute,
    ):
        peers = [
            url,
            "http://127.0.0.1:1",
            f"http://127.0.0.1:{link.port}",
            f"http://127.0.0.1:{mute.getsockname()[1]}",
        ]
        with running(one, *peers) as continuous:
            usual = [State.WAITING, State.OFFLINE, State.WAITING, State.CONNECTING]
            wait_for(lambda: states(continuous) == usual)
            link.fall_silent()
            put(laptop, 1, "begins a round")
            wait_for(lambda: states(continuous)[2] is State.SYNCING and states(continuous)[0] is State.WAITING)
    assert set(states(continuous)) == {State.STOPPED}
    assert [thread.name for thread in threading.enumerate() if "tailrace-sync" in thread.name] == []


class Waits:
    """Time that passes as fast as one likes: says how long would have been waited."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.asked_s: list[float] = []
        self.done = threading.Event()

    def __call__(self, event: threading.Event, seconds: float) -> bool:
        self.asked_s.append(seconds)
        if len(self.asked_s) >= self._count:
            self.done.set()
            return event.wait()
        return event.is_set()


def test_a_node_that_is_away_is_asked_less_and_less_often(places: Places) -> None:
    waits = Waits(10)
    with running(node(places("sqlite")), "http://127.0.0.1:1", wait=waits):
        assert waits.done.wait(60)
    full_s = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
    assert all(full / 2 <= asked <= full for asked, full in zip(waits.asked_s, full_s, strict=True))


def test_backing_off_begins_anew_after_success() -> None:
    chances = iter([1.0, 0.0, 1.0, 0.5])
    backoff = Backoff(lambda: next(chances))
    assert [backoff.next_s(), backoff.next_s()] == [1.0, 1.0]
    backoff.reset()
    assert backoff.next_s() == 1.0
    assert backoff.next_s() == 1.5
    assert MAX_S == 60.0


def test_what_a_peer_never_takes_does_not_keep_it_busy(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the table; what it knows is exchanged, and it is not asked in circles."""
    monkeypatch.setattr(peerloop, "ROUND_EVERY_S", 3600.0)
    laptop, central = places("sqlite"), places("sqlite")
    something = Entity("something", 1, "changed")
    for place in (laptop, central):
        place.run("CREATE TABLE something(id bigint PRIMARY KEY, changed bigint)")
    laptop.run(CREATE)
    one, other = laptop.install(todo(), something), central.install(something)
    put(laptop, 1, "unknown there")
    with served(other) as url, running(one, url) as continuous:
        wait_for(are_waiting(continuous))
        central.run("INSERT INTO something(id) VALUES (7)")
        laptop.run("INSERT INTO something(id) VALUES (8)")
        query = "SELECT id FROM something"
        wait_for(lambda: len(laptop.ask(query)) == len(central.ask(query)) == 2)
        (status,) = continuous.status()
        assert status.last_error is None
        (warning,) = status.told()["warnings"]
        assert f"table todo ({TABLE_ID}) is not synced at the other node" in warning
    assert continuous.status()[0].rounds < 20
    assert one.status().entities[0].pending or one.status().entities[1].pending, "it waits"


@pytest.mark.parametrize("where", ["round", "subscription"])
def test_whatever_a_peer_brings_about_is_its_own_error_and_others_go_on(
    places: Places, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    laptop, central, broken = (places("sqlite") for _ in range(3))
    one, other, third = (node(place) for place in (laptop, central, broken))
    is_broken = threading.Event()
    is_broken.set()
    usual_round, usual_events = SyncNode.round, subscription.events

    def round_with(self: SyncNode, peer: HttpPeer, *more: Any) -> Any:
        if is_broken.is_set() and peer.node_id == third.node_id:
            raise RecursionError("too deep")
        return usual_round(self, peer, *more)

    def events(parts: Any, link: HttpLink) -> Any:
        if is_broken.is_set() and link.address.name == "peer1":
            raise OverflowError("too large")
        return usual_events(parts, link)

    if where == "round":
        monkeypatch.setattr(SyncNode, "round", round_with)
    else:
        monkeypatch.setattr(subscription, "events", events)
    with served(other) as url, served(third) as bad, running(one, url, bad) as continuous:
        wait_for(lambda: continuous.status()[1].last_error is not None)
        error = continuous.status()[1].last_error
        code, why = ("sync.failed", "RecursionError") if where == "round" else ("sync.bad_answer", "OverflowError")
        assert error is not None and error.code == code and why in error.what
        assert any(record.exc_info is not None for record in caplog.records)
        put(laptop, 1, "x")
        wait_for(lambda: whats(central) == {1: "x"})
        assert continuous.status()[0].last_error is None
        is_broken.clear()
        wait_for(lambda: whats(broken) == {1: "x"} and continuous.status()[1].last_error is None)


def test_who_is_told_of_a_status_and_fails_ends_nothing(places: Places) -> None:
    laptop, central = places("sqlite"), places("sqlite")
    one, other = node(laptop), node(central)

    def changed(_status: PeerStatus) -> None:
        raise ValueError("nobody wants to know")

    with served(other) as url, running(one, url, changed=changed) as continuous:
        put(laptop, 1, "x")
        wait_for(lambda: whats(central) == {1: "x"})
        wait_for(are_waiting(continuous))
    assert states(continuous) == [State.STOPPED]


def test_what_a_server_never_ends_to_say_is_an_error_of_that_peer(places: Places) -> None:
    store = node(places("sqlite"))
    with HostileServer() as server:
        server.answers["subscribe"] = Said(b"x" * (2 * SYNC_EVENT_BYTES_MAX), "text/event-stream")
        with running(store, server.url) as continuous:
            wait_for(lambda: continuous.status()[0].last_error is not None)
            error = continuous.status()[0].last_error
            assert error is not None and error.code == "sync.bad_answer" and "event of more than" in error.what
