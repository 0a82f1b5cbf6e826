"""Sites: what one sends comes to the others, in order, exactly once."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers
from tailrace.queues import wire, wishes
from tailrace.queues.entries import Kind, Outgoing
from tailrace.queues.form import QueuesForm
from tailrace.queues.providing import SnapshotContext
from tailrace.queues.receiving import Receiver
from tailrace.queues.sending import RoutingQueue
from tailrace.queues.session import State
from tailrace.queues.sink import Sink
from tailrace.queues.site import STATE
from tailrace.queues.supply import Supply
from tailrace.queues.wire import Phase, Shipment, Standing
from tests.queues.sites import TestSite
from tests.relay.nodes import wait_for

PLAIN: dict[str, dict[str, Any]] = {"inventory": {"snapshots": False}, "policy": {"snapshots": False}}
WITH_SNAPSHOTS: dict[str, dict[str, Any]] = {"inventory": {}}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def office(stack: ExitStack, tmp_path: Path) -> TestSite:
    return stack.enter_context(TestSite(tmp_path, "office"))


@pytest.fixture
def plant(stack: ExitStack, tmp_path: Path, office: TestSite) -> TestSite:
    return stack.enter_context(TestSite(tmp_path, "plant").sends(PLAIN, office=office.port))


def test_messages_come_in_order(plant: TestSite, office: TestSite) -> None:
    for number in range(20):
        plant.transmit(f"a{number}", f"b{number}", to=["office"])
    office.gets([f"{letter}{number}" for number in range(20) for letter in "ab"])
    assert all(message.kind is Kind.LOG_ENTRY for message in office.messages())
    first, second = office.messages()[:2]
    assert first.transaction == second.transaction != office.messages()[2].transaction
    session = plant.site.sessions["inventory", "office"]
    assert session.progress.state is State.ENTRIES


def test_a_transaction_keeps_its_order_whoever_gets_what(plant: TestSite, stack: ExitStack, tmp_path: Path) -> None:
    """Rows with other destinations are frames of their own."""
    plant.__exit__()
    depot = stack.enter_context(TestSite(tmp_path, "depot"))
    office = stack.enter_context(TestSite(tmp_path, "second"))
    sender = TestSite(tmp_path, "plant").sends(PLAIN, depot=depot.port, second=office.port)
    with sender:
        entries = [
            Outgoing("inventory", f"{number}".encode(), ("depot", "second") if number % 3 else ("second",))
            for number in range(12)
        ]
        sender.site.transmit(entries)
        office.gets([str(number) for number in range(12)])
        depot.gets([str(number) for number in range(12) if number % 3])


def test_two_clients_in_one_transaction_do_not_leak(plant: TestSite, office: TestSite) -> None:
    """Acceptance test 17."""
    plant.site.transmit(
        [
            Outgoing("inventory", b"stock", ("office",)),
            Outgoing("policy", b"rule", ("office",)),
            Outgoing("inventory", b"more", ("office",)),
        ]
    )
    office.gets(["stock", "more"])
    office.gets(["rule"], client="policy")


def test_many_sources_are_kept_apart(stack: ExitStack, tmp_path: Path) -> None:
    office = stack.enter_context(TestSite(tmp_path, "office", sources=("plant", "site_2")))
    for name in ("plant", "site_2"):
        source = stack.enter_context(TestSite(tmp_path, name).sends(PLAIN, office=office.port))
        source.transmit(f"of {name}", to=["office"])
    office.gets(["of plant"])
    office.gets(["of site_2"], source="site_2")


def test_both_ways(stack: ExitStack, tmp_path: Path) -> None:
    """Nothing that came is sent back."""
    office = stack.enter_context(TestSite(tmp_path, "office"))
    plant = stack.enter_context(TestSite(tmp_path, "plant", sources=["office"]).sends(PLAIN, office=office.port))
    office.__exit__()
    office = stack.enter_context(TestSite(tmp_path, "office", office.port).sends(PLAIN, plant=plant.port))
    plant.transmit("down", to=["office"])
    office.transmit("up", to=["plant"])
    office.gets(["down"])
    plant.gets(["up"], source="office")
    plant.transmit("end", to=["office"])
    office.gets(["down", "end"])
    assert plant.payloads(source="office") == ["up"]


def test_a_sink_that_is_away_gets_everything_when_it_is_back(plant: TestSite, office: TestSite) -> None:
    plant.transmit("before", to=["office"])
    office.gets(["before"])
    office.__exit__()
    for number in range(5):
        plant.transmit(f"while {number}", to=["office"])
    assert plant.site.sessions["inventory", "office"].remaining_entries().entries == 5
    office.__enter__()
    office.gets(["before", *(f"while {number}" for number in range(5))])
    wait_for(lambda: plant.site.sessions["inventory", "office"].remaining().entries == 0, 30)


def test_failures_are_forgotten_when_there_is_nothing_to_send(
    stack: ExitStack, tmp_path: Path, office: TestSite
) -> None:
    """Or the next cut would be waited out for a minute."""
    office.__exit__()
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(PLAIN, office=office.port))
    session = plant.site.sessions["inventory", "office"]
    wait_for(lambda: session.progress.failures >= 2, 30)
    office.__enter__()
    wait_for(lambda: session.progress.state is State.ENTRIES and session.progress.failures == 0, 30)


def test_restarts_of_either_side(plant: TestSite, office: TestSite) -> None:
    for number in range(4):
        plant.transmit(str(number), to=["office"])
        ended = plant if number % 2 else office
        ended.__exit__()
        ended.__enter__()
    office.gets(["0", "1", "2", "3"])


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (Outgoing("inventory", b"x", ("nowhere",)), "queue.unknown_destination"),
        (Outgoing("stranger", b"x", ("office",)), "queue.unknown_destination"),
        (Outgoing("inventory", b"x", ()), "queue.no_destination"),
        (Outgoing("inventory", "text", ("office",)), "queue.payload"),  # type: ignore[arg-type]
        (Outgoing("inventory", bytes(33 << 20), ("office",)), "queue.payload"),
    ],
)
def test_what_cannot_be_sent(plant: TestSite, entry: Outgoing, code: str) -> None:
    before = plant.site.log.next_offset
    with pytest.raises(TailraceError) as caught:
        plant.site.transmit([Outgoing("inventory", b"good", ("office",)), entry])
    assert caught.value.code == code
    assert plant.site.log.next_offset == before, "nothing of the transaction is sent"


def test_a_destination_that_is_removed_holds_nothing(plant: TestSite, office: TestSite) -> None:
    office.__exit__()
    plant.transmit("never", to=["office"])
    plant.__exit__()
    plant.sends(PLAIN)
    plant.__enter__()
    assert not [name for name in Consumers(plant.site.directory).names() if name.startswith("queue-")]
    office.__enter__()


def test_a_site_cannot_speak_for_another(stack: ExitStack, tmp_path: Path) -> None:
    office = stack.enter_context(TestSite(tmp_path, "office", sources=("plant", "other")))
    liar = TestSite(tmp_path, "other").sends(PLAIN, office=office.port)
    liar.form = liar.form.model_copy(update={"site": "plant"})
    stack.enter_context(liar)
    liar.transmit("as plant", to=["office"])
    wait_for(lambda: liar.site.sessions["inventory", "office"].progress.error is not None, 30)
    error = liar.site.sessions["inventory", "office"].progress.error
    assert error is not None
    assert error.code == "relay.no_rights"
    assert office.payloads() == []


@pytest.mark.parametrize(("policy", "sent"), [("reject", ["0", "1", "2"]), ("shed", ["0", "1", "2"])])
def test_a_full_queue(stack: ExitStack, tmp_path: Path, policy: str, sent: list[str]) -> None:
    office = TestSite(tmp_path, "office")
    with office:
        pass
    limits = {"inventory": {"snapshots": False, "limit_entries": 3, "when_full": policy}}
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(limits, office=office.port))
    for number in range(3):
        plant.transmit(str(number), to=["office"])
    if policy == "reject":
        with pytest.raises(TailraceError) as caught:
            plant.transmit("3", to=["office"])
        assert caught.value.code == "queue.full"
    else:
        sent_nowhere = RoutingQueue("inventory", site=plant.site).transmit(None, b"3", ["office"])
        assert (sent_nowhere.left_out, sent_nowhere.offsets) == (("office",), None)
        assert plant.site.status()["sessions"][0]["shed"] == 1
    office = stack.enter_context(TestSite(tmp_path, "office", office.port))
    office.gets(sent)
    wait_for(lambda: not plant.site.is_full("inventory", "office"), 30)
    plant.transmit("4", to=["office"])
    office.gets([*sent, "4"])


def test_whoever_sends_to_a_full_queue_waits(stack: ExitStack, tmp_path: Path) -> None:
    office = TestSite(tmp_path, "office")
    with office:
        pass
    limits = {"inventory": {"snapshots": False, "limit_entries": 1}}
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(limits, office=office.port))
    plant.transmit("0", to=["office"])
    with pytest.raises(TailraceError) as caught:
        plant.site.transmit([Outgoing("inventory", b"1", ("office",))], timeout_s=0.2)
    assert caught.value.code == "queue.full"
    office = stack.enter_context(TestSite(tmp_path, "office", office.port))
    plant.transmit("2", to=["office"])
    office.gets(["0", "2"])


def supplies(*payloads: str) -> Any:
    def provider(supply: Supply) -> None:
        for payload in payloads:
            supply.transmit(payload.encode())

    return provider


def test_a_new_destination_gets_a_snapshot_first(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """All of it at once, then one end, then what was sent meanwhile, and nothing of that before."""
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    plant.transmit("too early", to=["office"])
    wait_for(lambda: bool(plant.site.requests.open()), 30)
    plant.transmit("meanwhile", to=["office"])
    assert office.payloads() == []
    plant.site.provide("inventory", supplies("s1", "s2"))
    office.gets(["s1", "s2", "END", "meanwhile"])
    kinds = [message.kind for message in office.messages()]
    assert kinds == [Kind.SNAPSHOT, Kind.SNAPSHOT, Kind.SNAPSHOT_END, Kind.LOG_ENTRY]
    assert len({message.request for message in office.messages()[:3]}) == 1
    status = plant.site.status()["sessions"][0]
    assert (status["state"], status["completed_us"] is not None) == ("log entries", True)
    assert office.site.status()["received"][0]["is_consistent"]


def test_an_empty_snapshot(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """Acceptance test 22."""
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    plant.site.provide("inventory", supplies())
    office.gets(["END"])
    plant.transmit("after", to=["office"])
    office.gets(["END", "after"])


def test_one_read_for_many_sinks(stack: ExitStack, tmp_path: Path) -> None:
    sinks = [stack.enter_context(TestSite(tmp_path, f"sink{number}")) for number in range(4)]
    ports = {sink.name: sink.port for sink in sinks}
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, **ports))
    reads: list[tuple[str, ...]] = []

    def provider(supply: Supply) -> None:
        reads.append(supply.sites)
        supply.transmit(b"all")

    plant.site.provide("inventory", provider)
    for sink in sinks:
        sink.gets(["all", "END"])
    assert reads == [("sink0", "sink1", "sink2", "sink3")]


def test_a_provider_that_fails_half_way_leaves_nothing(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """Acceptance test 20."""
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    tries: list[int] = []

    def provider(supply: Supply) -> None:
        tries.append(1)
        supply.transmit(b"half")
        supply.flush()
        if len(tries) == 1:
            wait_for(lambda: office.site.status()["received"][:1] != [], 30)
            raise ValueError("the database went away")
        supply.transmit(b"whole")

    plant.site.provide("inventory", provider)
    office.gets(["half", "whole", "END"])
    assert len(tries) == 2


def test_a_snapshot_goes_on_after_restarts(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """Nothing is seen of it before it is whole, and what has come is not sent again."""
    plant = TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port)
    with plant:
        wait_for(lambda: bool(plant.site.requests.open()), 30)
        (request,) = plant.site.requests.open()
        attempt = f"{request.id}.1"
        plant.site.supply("inventory", attempt, [b"first"], ["office"])

        def staged() -> int:
            told = office.site.status()["received"]
            return told[0]["staged"]["messages"] if told and told[0]["staged"] else 0

        wait_for(lambda: staged() == 1, 30)
        assert not office.site.status()["received"][0]["is_consistent"]
    office.__exit__()
    office.__enter__()
    with plant:
        assert [each.id for each in plant.site.requests.open()] == [request.id], "the request is not forgotten"
        plant.site.supply("inventory", attempt, [b"second"], ["office"])
        wait_for(lambda: staged() == 2, 30)
        assert office.payloads() == []
        plant.site.supply("inventory", attempt, [b""], ["office"], Kind.SNAPSHOT_END)
        office.gets(["first", "second", "END"])
        wait_for(lambda: plant.site.status()["sessions"][0]["state"] == "log entries", 30)
        assert plant.site.sessions["inventory", "office"].progress.shipped_entries == 1


def test_a_forced_snapshot_is_not_forgotten(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """Acceptance test 28."""
    plant = TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port)
    with plant:
        plant.site.provide("inventory", supplies("one"))
        office.gets(["one", "END"])
        office.__exit__()
        plant.site.resync("inventory", "office")
        with pytest.raises(TailraceError, match="unknown_destination"):
            plant.site.resync("inventory", "nowhere")
    with plant:
        plant.site.provide("inventory", supplies("two"))
        office.__enter__()
        office.gets(["one", "END", "two", "END"])
        wait_for(lambda: plant.site.status()["sessions"][0]["state"] == "log entries", 30)
        plant.transmit("after", to=["office"])
        office.gets(["one", "END", "two", "END", "after"])


@pytest.mark.parametrize("is_forced", [False, True])
def test_the_answer_that_a_snapshot_is_in_place_is_lost(
    stack: ExitStack, tmp_path: Path, office: TestSite, monkeypatch: pytest.MonkeyPatch, is_forced: bool
) -> None:
    """It is neither sent nor wanted again."""
    taken: list[Phase] = []
    receive = Sink.receive

    def lose_an_answer(sink: Sink, shipment: Shipment, rows: Any) -> Standing:
        taken.append(shipment.phase)
        standing = receive(sink, shipment, rows)
        if taken.count(Phase.SNAPSHOT_END) == 1 + is_forced and shipment.phase is Phase.SNAPSHOT_END:
            raise TailraceError("relay.busy", "the answer is lost")
        return standing

    monkeypatch.setattr(Sink, "receive", lose_an_answer)
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    plant.site.provide("inventory", supplies("all"))
    wait_for(lambda: has_everything(plant, "office"), 30)
    if is_forced:
        plant.site.resync("inventory", "office")
        wait_for(lambda: taken.count(Phase.SNAPSHOT_END) == 2, 30)
    wait_for(lambda: has_everything(plant, "office") and not plant.site.requests.open(), 30)
    assert not plant.site.requests.is_forced("inventory", "office")
    plant.transmit("after", to=["office"])
    office.gets(["all", "END", *(["all", "END"] if is_forced else []), "after"])
    assert taken.count(Phase.SNAPSHOT_END) == 1 + is_forced
    assert office.site.status()["received"][0]["is_consistent"]


def test_answers_are_lost_while_more_is_sent(
    plant: TestSite, office: TestSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance test 18: what is sent again has grown meanwhile, and what had come does not come twice."""
    lost: list[int] = []
    receive = Sink.receive

    def lose_answers(sink: Sink, shipment: Shipment, rows: Any) -> Standing:
        standing = receive(sink, shipment, rows)
        if len(lost) < 2:
            lost.append(rows.num_rows)
            plant.transmit(f"more {len(lost)}", to=["office"])
            raise TailraceError("relay.busy", "the answer is lost")
        return standing

    monkeypatch.setattr(Sink, "receive", lose_answers)
    plant.transmit("first", to=["office"])
    office.gets(["first", "more 1", "more 2"])
    assert len(lost) == 2
    wait_for(lambda: has_everything(plant, "office"), 30)
    ids = [message.source_id for message in office.messages()]
    assert ids == sorted(set(ids))


def test_a_transaction_that_is_too_large_is_made_up_for(
    stack: ExitStack, tmp_path: Path, office: TestSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    plant.site.provide("inventory", supplies("all"))
    office.gets(["all", "END"])
    wait_for(lambda: has_everything(plant, "office"), 30)
    monkeypatch.setattr(wire, "SHIP_BYTES_MAX", 20_000)
    plant.site.transmit([Outgoing("inventory", random.Random(1).randbytes(30_000), ("office",))])
    office.gets(["all", "END", "all", "END"])
    plant.transmit("next", to=["office"])
    office.gets(["all", "END", "all", "END", "next"])


def test_a_source_that_is_an_older_copy_sends_a_snapshot(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """What it sends then has numbers that the destination has seen already."""
    plant = TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port)
    with plant:
        plant.site.provide("inventory", supplies("first"))
        plant.transmit("0", to=["office"])
        wait_for(lambda: has_everything(plant, "office"), 30)
    shutil.copytree(plant.directory, tmp_path / "backup")
    with plant:
        for number in range(10):
            plant.transmit(str(number), to=["office"])
        wait_for(lambda: has_everything(plant, "office"), 30)
    before = office.payloads()
    shutil.rmtree(plant.directory)
    shutil.copytree(tmp_path / "backup", plant.directory)
    with plant:
        plant.site.provide("inventory", supplies("second"))
        wait_for(lambda: "second" in office.payloads(), 30)
        plant.transmit("new", to=["office"])
        office.gets([*before, "second", "END", "new"])


def test_a_source_that_is_set_up_anew_goes_on_without_snapshots(
    stack: ExitStack, tmp_path: Path, office: TestSite
) -> None:
    plant = TestSite(tmp_path, "plant").sends(PLAIN, office=office.port)
    with plant:
        plant.transmit("old", "older", to=["office"])
        office.gets(["old", "older"])
    shutil.rmtree(plant.directory)
    with plant:
        plant.transmit("new", to=["office"])
        office.gets(["old", "older", "new"])
    with plant:
        plant.transmit("newer", to=["office"])
        office.gets(["old", "older", "new", "newer"])


def test_who_supplies_is_asked_once_for_each_request(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """Also if a provider comes in the moment in which a request is made: two at once would spoil each other's rows."""
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    wait_for(lambda: bool(plant.site.requests.open()), 30)
    calls: list[str] = []
    is_called, may_end = threading.Event(), threading.Event()

    def provider(supply: Supply) -> None:
        calls.append(supply.request)
        supply.transmit(b"first")
        supply.flush()
        is_called.set()
        assert may_end.wait(30)
        supply.transmit(b"second")

    plant.site.provide("inventory", provider)
    assert is_called.wait(30)
    plant.site.provide("inventory", provider)
    plant.site.requests.ask_again()
    may_end.set()
    office.gets(["first", "second", "END"])
    assert len(calls) == 1


SMALL: dict[str, Any] = {"segment_bytes": 2000}
CAPPED: dict[str, Any] = {**SMALL, "cap_bytes": 5000}


def has_everything(plant: TestSite, site: str) -> bool:
    session = plant.site.sessions["inventory", site]
    return session.progress.state is State.ENTRIES and session.remaining_entries().entries == 0


def trim(plant: TestSite) -> None:
    """Write for another destination until what was there before is removed."""
    first = plant.site.log.next_offset
    for number in range(100):
        plant.transmit(f"{number} {'x' * 200}", to=["busy"])
    wait_for(lambda: has_everything(plant, "busy"), 30)

    def is_trimmed() -> bool:
        plant.site.retain()
        return plant.site._tags.first > first

    wait_for(is_trimmed, 30)


def test_an_idle_destination_is_not_synced_again_after_a_trim(stack: ExitStack, tmp_path: Path) -> None:
    """Acceptance test 19."""
    busy, idle = (stack.enter_context(TestSite(tmp_path, name)) for name in ("busy", "idle"))
    plant = TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, queues=CAPPED, busy=busy.port, idle=idle.port)
    with plant:
        plant.site.provide("inventory", supplies("all"))
        plant.transmit("once", to=["idle"])
        busy.gets(["all", "END"])
        wait_for(lambda: has_everything(plant, "idle"), 30)
    before = idle.payloads()
    idle.__exit__()
    with plant:
        trim(plant)
        idle.__enter__()
        wait_for(lambda: plant.site.sessions["inventory", "idle"].progress.state is State.ENTRIES, 30)
        plant.transmit("next", to=["idle"])
        idle.gets([*before, "next"])


def test_a_destination_that_was_away_for_too_long_gets_a_snapshot(
    stack: ExitStack, tmp_path: Path, office: TestSite
) -> None:
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, queues=CAPPED, office=office.port))
    plant.site.provide("inventory", supplies("first"))
    office.gets(["first", "END"])
    office.__exit__()
    for number in range(100):
        plant.transmit(f"{number} {'x' * 200}", to=["office"])
    plant.site.retain()
    assert plant.site._tags.first > 0
    plant.site.provide("inventory", supplies("second"))
    office.__enter__()
    wait_for(lambda: office.payloads()[2:4] == ["second", "END"], 60)
    plant.transmit("after", to=["office"])
    wait_for(lambda: office.payloads()[-1] == "after", 30)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_removed_unsent_is_made_up_for(stack: ExitStack, tmp_path: Path, restarts: bool) -> None:
    """Also if the log has nothing for the destination any more when that comes back."""
    busy, away = (stack.enter_context(TestSite(tmp_path, name)) for name in ("busy", "away"))
    plant = TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, queues=CAPPED, busy=busy.port, away=away.port)
    with ExitStack() as running:
        running.enter_context(plant)
        plant.site.provide("inventory", supplies("all"))
        wait_for(lambda: has_everything(plant, "away") and has_everything(plant, "busy"), 30)
        away.__exit__()
        plant.transmit("needed", to=["away"])
        trim(plant)
        if restarts:
            running.close()
            running.enter_context(plant)
            plant.site.provide("inventory", supplies("all"))
        away.__enter__()
        wait_for(lambda: has_everything(plant, "away"), 60)
        plant.transmit("next", to=["away"])
        away.gets(["all", "END", "all", "END", "next"])


def test_a_destination_that_was_removed_and_is_back(stack: ExitStack, tmp_path: Path) -> None:
    """What it has missed meanwhile is gone."""
    busy, away = (stack.enter_context(TestSite(tmp_path, name)) for name in ("busy", "away"))
    plant = TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, queues=SMALL, busy=busy.port, away=away.port)
    with plant:
        plant.site.provide("inventory", supplies("all"))
        wait_for(lambda: has_everything(plant, "away") and has_everything(plant, "busy"), 30)
        away.__exit__()
        plant.transmit("needed", to=["away"])
    with TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, queues=SMALL, busy=busy.port) as without:
        trim(without)
    away.__enter__()
    with plant:
        plant.site.provide("inventory", supplies("all"))
        wait_for(lambda: has_everything(plant, "away"), 60)
        plant.transmit("next", to=["away"])
        away.gets(["all", "END", "all", "END", "next"])


def test_a_snapshot_of_which_something_was_removed_is_not_sent(
    stack: ExitStack, tmp_path: Path, office: TestSite
) -> None:
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, queues=CAPPED, office=office.port))
    session = plant.site.sessions["inventory", "office"]
    wait_for(lambda: session.progress.request is not None, 30)
    (request,) = plant.site.requests.open()
    office.__exit__()
    for number in range(30):
        plant.site.supply("inventory", f"{request.id}.1", [b"%d" % number + b"x" * 400], ["office"])
    plant.site.supply("inventory", f"{request.id}.1", [b""], ["office"], Kind.SNAPSHOT_END)
    plant.site.retain()
    assert plant.site._tags.first > request.base
    plant.site.provide("inventory", supplies("all"))
    office.__enter__()
    office.gets(["all", "END"])


def test_who_gets_no_snapshots_is_told_what_is_lost(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(PLAIN, queues=CAPPED, office=office.port))
    plant.transmit("before", to=["office"])
    office.gets(["before"])
    office.__exit__()
    for number in range(100):
        plant.transmit(f"{number} {'x' * 200}", to=["office"])
    assert plant.site.status()["sessions"][0]["lost_before"] is None
    plant.site.retain()
    first = plant.site._tags.first
    assert first > 1
    office.__enter__()
    wait_for(lambda: has_everything(plant, "office"), 60)
    assert plant.site.status()["sessions"][0]["lost_before"] == first
    assert len(office.payloads()) == 1 + 101 - first


def test_the_last_snapshot_is_told_of_after_a_restart(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    plant = TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port)
    told = []
    for _ in range(2):
        with plant:
            plant.site.provide("inventory", supplies("all"))
            wait_for(lambda: plant.site.status()["sessions"][0]["completed_us"] is not None, 30)
            status = plant.site.status()["sessions"][0]
            told.append((status["snapshot"], status["completed_us"]))
    assert told[0] == told[1]
    assert office.payloads() == ["all", "END"]


def test_counts_are_true_in_both_phases(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """Acceptance test 27."""
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    wait_for(lambda: bool(plant.site.requests.open()), 30)
    (request,) = plant.site.requests.open()
    session = plant.site.sessions["inventory", "office"]
    office.__exit__()
    wait_for(lambda: session.progress.error is not None or session.progress.state is State.SNAPSHOT, 30)
    plant.site.supply("inventory", f"{request.id}.1", [b"a", b"b", b"c"], ["office"])
    plant.transmit("d", "e", to=["office"])
    assert session.remaining_entries().entries == 2
    office.__enter__()
    wait_for(lambda: session.progress.state is State.SNAPSHOT and session.remaining().entries == 0, 30)
    plant.site.supply("inventory", f"{request.id}.1", [b""], ["office"], Kind.SNAPSHOT_END)
    office.gets(["a", "b", "c", "END", "d", "e"])
    wait_for(lambda: session.remaining().entries == 0, 30)
    told = plant.site.status()["sessions"][0]
    assert (told["remaining_entries"], told["remaining_bytes"], told["lag_s"]) == (0, 0, 0.0)


def test_counts_of_a_snapshot_are_true_while_its_sink_is_away(
    stack: ExitStack, tmp_path: Path, office: TestSite
) -> None:
    """What has come of it is not counted again after a restart, either."""
    plant = TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port)
    with plant:
        session = plant.site.sessions["inventory", "office"]
        wait_for(lambda: session.progress.request is not None, 30)
        (request,) = plant.site.requests.open()
        attempt = f"{request.id}.1"
        plant.site.supply("inventory", attempt, [b"a", b"b"], ["office"])
        wait_for(lambda: session.progress.shipped_entries == 2, 30)
        wait_for(lambda: session.remaining().entries == 0, 30)
        office.__exit__()
        plant.site.supply("inventory", attempt, [b"c", b"d", b"e"], ["office"])
        wait_for(lambda: session.progress.error is not None, 30)
        plant.transmit("meanwhile", to=["office"])
        assert (session.remaining().entries, session.remaining_entries().entries) == (3, 1)
        office.__enter__()
        wait_for(lambda: session.remaining().entries == 0, 30)
    with plant:
        session = plant.site.sessions["inventory", "office"]
        wait_for(lambda: session.progress.request is not None and session.progress.state is State.SNAPSHOT, 30)
        assert session.remaining().entries == 0
        plant.site.supply("inventory", attempt, [b""], ["office"], Kind.SNAPSHOT_END)
        office.gets(["a", "b", "c", "d", "e", "END", "meanwhile"])


def test_failures_are_counted_until_a_snapshot_is_in_place(
    stack: ExitStack, tmp_path: Path, office: TestSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance test 23. That the sink answers, and takes parts, is not enough; nor is anything read or sent anew."""
    taken: list[Phase] = []
    told: list[int] = []
    receive = Sink.receive

    def fail_at_the_end(sink: Sink, shipment: Shipment, rows: Any) -> Standing:
        taken.append(shipment.phase)
        if shipment.phase is Phase.SNAPSHOT_END:
            told.append(session.progress.failures)
            if len(told) < 4:
                raise TailraceError("relay.busy", "not now")
        return receive(sink, shipment, rows)

    monkeypatch.setattr(Sink, "receive", fail_at_the_end)
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    session = plant.site.sessions["inventory", "office"]
    reads: list[str] = []

    def provider(supply: Supply) -> None:
        reads.append(supply.request)
        supply.transmit(b"all")

    plant.site.provide("inventory", provider)
    office.gets(["all", "END"])
    assert told == [0, 1, 2, 3]
    assert taken == [Phase.SNAPSHOT, *[Phase.SNAPSHOT_END] * 4]
    assert len(reads) == 1
    wait_for(lambda: session.progress.failures == 0, 30)


def test_a_snapshot_that_is_wished_for_in_the_middle_of_one(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """Acceptance test 20. Also while the site does not run. Nothing of the first is ever seen."""
    plant = TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port)
    with plant:
        session = plant.site.sessions["inventory", "office"]
        wait_for(lambda: session.progress.request is not None, 30)
        (request,) = plant.site.requests.open()
        plant.site.supply("inventory", f"{request.id}.1", [b"half"], ["office"])
        wait_for(lambda: session.progress.shipped_entries == 1, 30)
    wishes.leave(str(plant.directory / STATE), "inventory", "office")
    with plant:
        wait_for(lambda: [each.id for each in plant.site.requests.open()] not in ([], [request.id]), 30)
        plant.site.supply("inventory", f"{request.id}.1", [b""], ["office"], Kind.SNAPSHOT_END)
        plant.site.provide("inventory", supplies("whole"))
        office.gets(["whole", "END"])
        plant.transmit("after", to=["office"])
        office.gets(["whole", "END", "after"])


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=30)


def test_an_application_sends_and_supplies_through_its_own_database(
    stack: ExitStack, tmp_path: Path, office: TestSite
) -> None:
    """What is rolled back is never sent; two clients share a database, and a restart loses nothing."""
    path = tmp_path / "app.db"
    with closing(connect(path)) as application:
        application.execute("CREATE TABLE stock(item TEXT, amount INTEGER)")
    outbox = {"outbox": {"sqlite": str(path)}}
    clients: dict[str, dict[str, Any]] = {"inventory": outbox, "policy": {**outbox, "snapshots": False}}
    plant = TestSite(tmp_path, "plant").sends(clients, office=office.port)
    queue, other = RoutingQueue("inventory"), RoutingQueue("policy")

    def provider(context: SnapshotContext) -> None:
        with closing(connect(path)) as reading:
            for (item,) in reading.execute("SELECT item FROM stock ORDER BY item"):
                context.transmit(item.encode())

    with plant:
        wait_for(lambda: is_ready(path), 30)
        with closing(connect(path)) as application, application:
            application.execute("INSERT INTO stock VALUES ('bolts', 5)")
            queue.transmit(application, b"bolts +5", ["office"])
            other.transmit(application, b"a rule", ["office"])
        with closing(connect(path)) as application:
            queue.transmit(application, b"never", ["office"])
            application.rollback()
        office.gets(["a rule"], client="policy")
    with plant, queue.provide_snapshots(lambda: connect(path), provider):
        wait_for(lambda: "END" in office.payloads(), 60)
        with closing(connect(path)) as application, application:
            queue.transmit_all(application, [(b"nuts +1", ["office"]), (b"nuts +2", ["office"])])
        wait_for(lambda: office.payloads()[-2:] == ["nuts +1", "nuts +2"], 30)
        found = office.payloads()
        assert found[:2] == ["bolts", "END"]
        assert "never" not in found
        assert len(found) == len(set(found))
        with closing(connect(path)) as application, pytest.raises(TailraceError) as caught:
            queue.transmit(application, b"x", ["nowhere"])
        assert caught.value.code == "queue.unknown_destination"


def is_ready(path: Path) -> bool:
    """Whether the site has said where messages can be sent."""
    with closing(connect(path)) as reading:
        try:
            found = reading.execute("SELECT count(*) FROM LRQ_Destinations").fetchone()
        except sqlite3.OperationalError:
            return False
    return bool(found == (2,))


def test_a_client_that_was_removed_cannot_send_into_nothing(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    """Nor are snapshots asked of it for ever."""
    path = tmp_path / "app.db"
    outbox: dict[str, dict[str, Any]] = {"outbox": {"sqlite": str(path)}}
    with TestSite(tmp_path, "plant").sends({"inventory": outbox, "policy": outbox}, office=office.port):
        wait_for(lambda: is_ready(path), 30)
        wait_for(lambda: asked_of(path) == {"inventory", "policy"}, 30)
    with TestSite(tmp_path, "plant").sends({"inventory": outbox}, office=office.port):
        wait_for(lambda: asked_of(path) == {"inventory"}, 30)
        with closing(connect(path)) as application, pytest.raises(TailraceError) as caught:
            RoutingQueue("policy").transmit(application, b"x", ["office"])
        assert caught.value.code == "queue.unknown_destination"


def asked_of(path: Path) -> set[str]:
    """The clients of whom snapshots are wanted."""
    with closing(connect(path)) as reading:
        return {client for (client,) in reading.execute("SELECT client FROM LRQ_Requests")}


def test_an_operator_wishes_for_a_snapshot(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    plant.site.provide("inventory", supplies("all"))
    office.gets(["all", "END"])
    wishes.leave(str(plant.directory / STATE), "inventory", "nowhere")
    wishes.leave(str(plant.directory / STATE), "inventory", "office")
    office.gets(["all", "END", "all", "END"])
    assert any("sends nothing to nowhere" in line for line in plant.said)


def test_a_wish_that_makes_no_sense_stops_nobody(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(WITH_SNAPSHOTS, office=office.port))
    plant.site.provide("inventory", supplies("all"))
    office.gets(["all", "END"])
    directory = plant.directory / STATE / "wishes"
    directory.mkdir()
    (directory / "0.json").write_text("{")
    wait_for(lambda: any("JSONDecodeError" in line for line in plant.said), 30)
    (directory / "0.json").unlink()
    wishes.leave(str(plant.directory / STATE), "inventory", "office")
    office.gets(["all", "END", "all", "END"])


def test_what_comes_before_anybody_listens_is_kept(stack: ExitStack, tmp_path: Path, office: TestSite) -> None:
    office.__exit__()
    office.form = QueuesForm(**SMALL)
    office.__enter__()
    plant = stack.enter_context(TestSite(tmp_path, "plant").sends(PLAIN, office=office.port))
    sent = [f"{number} {'x' * 200}" for number in range(50)]
    for payload in sent:
        plant.transmit(payload, to=["office"])
    office.gets(sent)
    office.site.retain()
    receiver = Receiver(office.site.directory, "inventory")
    found = []
    for message in receiver.messages(timeout_s=1.0):
        found.append(message.payload.decode())
        message.ack()
    assert found == sent

    def is_trimmed() -> bool:
        office.site.retain()
        return office.site._tags.first > 0

    wait_for(is_trimmed, 30)
