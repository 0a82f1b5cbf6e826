"""Nodes that follow each other: nothing twice, nothing left out, nothing sent back."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tailrace.log.batch import batches_of
from tailrace.log.session import ConsumerSession
from tailrace.message import Lsn, Message, Op, now
from tailrace.relay import flight
from tailrace.relay.applier import Applier, State
from tailrace.relay.flight import Call
from tailrace.relay.heartbeat import SILENCE
from tailrace.relay.outgoing import Frame
from tailrace.relay.request import Ack, Heartbeat, Subscribe, Subscribed
from tailrace.relay.subscription import consumer_name
from tailrace.relay.vclock import Vclock
from tests.relay.nodes import HEARTBEAT_S, TOKEN, TestNode, wait_for, wait_until

CLUSTER = str(uuid.UUID(int=7))
PATIENT_S = 10.0
Make = Callable[[str], TestNode]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(TestNode(tmp_path / name, CLUSTER))


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[TestNode]:
    """A node that bears a peer which is slow to answer."""
    with TestNode(tmp_path / "patient", CLUSTER, heartbeat_s=PATIENT_S) as node:
        yield node


def test_a_node_follows_another(make: Make) -> None:
    a, b = make("a"), make("b")
    a.write(1, 2)
    applier = b.follow(a)
    wait_until(applier, State.FOLLOW)
    a.write(3)
    wait_for(lambda: b.journal.vclock == a.journal.vclock)
    assert b.received(a.id) == [(1, 1), (2, 2), (3, 3)]


def test_three_nodes_that_all_write(make: Make) -> None:
    """Each follows both others, so everything comes on two ways."""
    nodes = [make(name) for name in "abc"]
    for node in nodes:
        for other in nodes:
            if other is not node:
                node.follow(other)
    for number in range(1, 60, 2):
        for node in nodes:
            node.write(number, number + 1)
    wait_for(lambda: len({node.journal.vclock for node in nodes}) == 1)
    for node in nodes:
        for origin in nodes:
            assert node.received(origin.id) == [(number, number) for number in range(1, 61)]


def test_what_was_acknowledged_need_not_be_kept(make: Make) -> None:
    a, b = make("a"), make("b")
    b.follow(a)
    for number in range(1, 20):
        a.write(number)
    wait_for(lambda: b.journal.vclock == a.journal.vclock)
    name = consumer_name(b.id)
    wait_for(lambda: a.service.consumers.position(a.service.consumers.get(name)) == a.journal.end - 1)


def test_a_source_that_comes_back(tmp_path: Path, make: Make) -> None:
    b = make("b")
    with TestNode(tmp_path / "a", CLUSTER) as a:
        port = a.server.port
        applier = b.follow(a)
        a.write(1)
        wait_for(lambda: b.journal.vclock == a.journal.vclock)
    wait_until(applier, State.DISCONNECTED)
    with TestNode(tmp_path / "a", CLUSTER, port=port) as a:
        a.write(2)
        wait_for(lambda: b.journal.vclock == a.journal.vclock)
        wait_until(applier, State.FOLLOW)
        assert b.received(a.id) == [(1, 1), (2, 2)]


def test_a_node_that_lost_its_own_messages_gets_them_back(tmp_path: Path, make: Make) -> None:
    a = make("a")
    with TestNode(tmp_path / "b", CLUSTER) as b:
        a.follow(b)
        b.write(1, 2)
        b.write(3)
        wait_for(lambda: a.journal.vclock == b.journal.vclock)
        known = b.journal.vclock
    shutil.rmtree(tmp_path / "b" / "log")
    with TestNode(tmp_path / "b", CLUSTER) as b:
        assert not b.journal.vclock
        b.follow(a)
        wait_for(lambda: b.journal.vclock == known)
        b.write(4)
        assert b.received(b.id) == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_a_node_of_the_cluster_registers_by_itself(make: Make) -> None:
    """The log is kept for it from what it does not have."""
    a, b = make("a"), make("b")
    for number in range(1, 9):
        a.write(number)
    applier = b.follow(a, register=False)
    wait_until(applier, State.FOLLOW)
    assert b.received(a.id) == [(number, number) for number in range(1, 9)]
    assert consumer_name(b.id) in a.service.consumers.names()


class TestWhatIsRefused:
    def check(self, applier: Applier, state: State, code: str) -> None:
        wait_for(lambda: applier.progress.error is not None)
        assert applier.progress.error is not None
        assert applier.progress.error.code == code
        wait_until(applier, state)

    def test_another_cluster(self, tmp_path: Path, make: Make) -> None:
        a = make("a")
        with TestNode(tmp_path / "other", str(uuid.uuid4())) as other:
            self.check(other.follow(a), State.STOPPED, "relay.wrong_cluster")

    def test_itself(self, make: Make) -> None:
        a = make("a")
        self.check(a.follow(a), State.OFF, "relay.self")

    @pytest.mark.parametrize("token", ["", "wrong"])
    def test_a_wrong_token(self, make: Make, token: str) -> None:
        a, b = make("a"), make("b")
        applier = b.follow(a, token=token)
        wait_for(lambda: applier.progress.error is not None)
        assert applier.progress.error is not None
        assert applier.progress.error.code == "relay.no_rights"
        assert TOKEN not in str(applier.progress.error)

    def test_a_node_that_is_loading(self, make: Make) -> None:
        a, b = make("a"), make("b")
        a.service.is_loading = True
        applier = b.follow(a)
        wait_for(lambda: applier.progress.error is not None)
        assert applier.progress.error is not None
        assert applier.progress.error.code == "relay.loading"
        a.service.is_loading = False
        wait_until(applier, State.FOLLOW)


class Peer:
    """A peer that does what it likes."""

    def __init__(self, node: TestNode, vclock: Vclock | None = None, id_: int = 99) -> None:
        node.service.keep_for(id_, Vclock())
        self.id = id_
        self.client = fl.connect(node.location)
        request = Subscribe(node=id_, cluster=CLUSTER, vclock=vclock or Vclock())
        self.reader = self.client.do_get(fl.Ticket(request.packed()), flight.options(TOKEN))
        self.answer = Subscribed.read(self.said())

    def said(self) -> bytes:
        found: Any = self.reader.read_chunk().app_metadata
        return bytes(found)

    def ack(self, vclock: Vclock) -> None:
        ack = Ack(node=self.id, session=self.answer.session, vclock=vclock)
        list(self.client.do_action(fl.Action(Call.ACK, ack.packed()), flight.options(TOKEN)))

    def end(self) -> str:
        """The code of the error that ends the connection."""
        try:
            while True:
                self.reader.read_chunk()
        except (fl.FlightError, pa.ArrowException) as error:
            return flight.ours(error).code
        except StopIteration:
            return ""


def write_bytes(node: TestNode, mib: int) -> None:
    """One transaction that cannot be made smaller."""
    rows = [Message(Op.INSERT, now(), "main.t", {"n": n, "b": os.urandom(1 << 20)}, lsn=Lsn(n)) for n in range(mib)]
    node.journal.append_local(batches_of(rows))


def code_of(work: Callable[[], object]) -> str:
    with pytest.raises((fl.FlightError, pa.ArrowException)) as caught:
        work()
    return flight.ours(caught.value).code


def test_a_heartbeat_comes_at_once(make: Make) -> None:
    a = make("a")
    a.write(1)
    peer = Peer(a)
    assert peer.answer.vclock == a.journal.vclock
    assert Heartbeat.read(peer.said()).vclock == a.journal.vclock
    rows: Any = peer.reader.read_chunk().data
    assert len(rows) == 1


def test_an_acknowledgement_of_what_was_not_sent(make: Make) -> None:
    a = make("a")
    peer = Peer(a)
    assert code_of(lambda: peer.ack(Vclock({a.id: Lsn(1000)}))) == "relay.bad_ack"
    assert peer.end() == "relay.bad_ack"


def test_an_acknowledgement_that_goes_back(make: Make) -> None:
    a = make("a")
    a.write(1)
    peer = Peer(a, a.journal.vclock)
    assert code_of(lambda: peer.ack(Vclock())) == "relay.bad_ack"
    assert peer.end() == "relay.bad_ack"


def test_a_peer_that_is_silent(make: Make) -> None:
    a = make("a")
    assert Peer(a).end() == "relay.unreachable"


def test_one_connection_for_each_peer(patient: TestNode) -> None:
    first = Peer(patient)
    assert code_of(lambda: Peer(patient)) == "relay.duplicate"
    assert patient.service.following[first.id].session == first.answer.session


def test_a_late_acknowledgement_does_not_end_the_next_connection(patient: TestNode) -> None:
    """It goes back only for who has come again with more."""
    first = Peer(patient)
    first.reader.cancel()
    wait_for(lambda: not patient.service.following)
    patient.write(1)
    second = Peer(patient, patient.journal.vclock)
    assert code_of(lambda: first.ack(Vclock())) == "relay.unknown_replica"
    second.ack(patient.journal.vclock)
    assert patient.service.following[second.id].session == second.answer.session


def test_a_peer_that_takes_nothing_any_more_can_come_again(patient: TestNode) -> None:
    """As when packets are lost: whoever serves the old connection is caught in it."""
    write_bytes(patient, 64)
    first = Peer(patient)
    try:
        served = patient.service.following[first.id]
        wait_for(lambda: served.sent == patient.journal.vclock)
        served.acknowledged_s -= 2 * SILENCE * PATIENT_S
        assert not patient.service.present()
        second = Peer(patient)
        assert patient.service.present()[second.id].session == second.answer.session
        second.ack(Vclock())
    finally:
        first.reader.cancel()
    second.ack(Vclock())


def test_a_node_that_is_busy_is_not_taken_for_gone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction can take longer to come and to be written than a silence lasts."""
    a, b = make("a"), make("b")
    heard = []
    acknowledge, append = a.service.acknowledge, b.journal.append_groups

    def hear(ack: Ack) -> None:
        heard.append(ack.session)
        acknowledge(ack)

    def write_slowly(groups: list[list[Frame]]) -> int:
        if groups:
            before = len(heard)
            wait_for(lambda: len(heard) >= before + 2 * SILENCE)
        return append(groups)

    monkeypatch.setattr(a.service, "acknowledge", hear)
    monkeypatch.setattr(b.journal, "append_groups", write_slowly)
    applier = b.follow(a)
    wait_until(applier, State.FOLLOW)
    a.write(1)
    wait_for(lambda: b.journal.vclock == a.journal.vclock)
    assert len(set(heard)) == 1
    assert applier.progress.state is State.FOLLOW


def test_peers_are_heard_while_something_large_is_appended(patient: TestNode) -> None:
    peer = Peer(patient)
    with patient.journal._turn:
        acknowledging = threading.Thread(target=peer.ack, args=(Vclock(),))
        acknowledging.start()
        acknowledging.join(10)
        assert not acknowledging.is_alive()


def test_a_transaction_that_is_gathered_in_steps(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.relay.outgoing._STEP_BYTES", 1)
    a, b = make("a"), make("b")
    applier = b.follow(a)
    rows = [Message(Op.INSERT, now(), f"main.t{n % 5}", {"n": n}, lsn=Lsn(n)) for n in range(1, 51)]
    a.journal.append_local(batches_of(rows))
    a.write(51)
    wait_for(lambda: b.journal.vclock == a.journal.vclock)
    assert sorted(b.received(a.id)) == [(n, n) for n in range(1, 52)]
    wait_until(applier, State.FOLLOW)


def test_nodes_with_different_heartbeats(tmp_path: Path, make: Make) -> None:
    """Each bears the silence that the other has announced."""
    b = make("b")
    with TestNode(tmp_path / "a", CLUSTER, heartbeat_s=10 * HEARTBEAT_S) as a:
        applier = b.follow(a)
        wait_until(applier, State.FOLLOW)
        session = a.service.following[b.id].session
        seen_s = applier.progress.seen_s
        wait_for(lambda: applier.progress.seen_s > seen_s)  # its second heartbeat
        assert a.service.following[b.id].session == session


@pytest.mark.parametrize("command", [b"", b"{}", b"\xff" * 9, b'{"node": -1}', b"[" * 100_000])
def test_requests_that_are_none(make: Make, command: bytes) -> None:
    client = fl.connect(make("a").location)
    assert code_of(lambda: client.do_get(fl.Ticket(command), flight.options(TOKEN)).read_chunk()) == "relay.malformed"


def test_a_session_holds_the_consumer(make: Make) -> None:
    """While a peer follows nobody else moves its consumer."""
    a = make("a")
    peer = Peer(a)
    peer.said()
    with pytest.raises(Exception, match="in use"):
        ConsumerSession(a.service.consumers, consumer_name(99))


def test_a_consumer_that_somebody_looks_after(make: Make) -> None:
    """It is over in a moment, so the peer comes again."""
    a, b = make("a"), make("b")
    a.write(1)
    a.service.keep_for(b.id, Vclock())
    with ConsumerSession(a.service.consumers, consumer_name(b.id)):
        applier = b.follow(a, register=False)
        wait_until(applier, State.LOADING)
        assert applier.progress.error is not None
        assert applier.progress.error.code == "relay.duplicate"
    wait_until(applier, State.FOLLOW)


def test_a_failure_that_nobody_thought_of_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that ended without a word would be taken for one that works."""
    a, b = make("a"), make("b")
    a.write(1)

    def fail(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(b.journal, "append_groups", fail)
    applier = b.follow(a)
    wait_until(applier, State.STOPPED)
    assert applier.progress.error is not None
    assert applier.progress.error.code == "relay.failed"
