"""Anonymous replicas: they only read, nobody knows them, and the log is kept for them for a while."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.limits import JOINS_PER_TOKEN_MAX
from tailrace.log.consumers import PREFIX
from tailrace.log.retention import SegmentFate, retain
from tailrace.log.segment import segment_name
from tailrace.message import Offset
from tailrace.node.identity import enter, identity_of
from tailrace.node.load import load_node
from tailrace.node.node import Node
from tailrace.relay.applier import State
from tailrace.relay.holds import anonymous_name
from tailrace.relay.join import Joins
from tailrace.relay.names import CLUSTER as MEMBERS
from tailrace.relay.subscription import consumer_name
from tests.node.shops import Shop, settle
from tests.node.test_serve import SECRET, NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for, wait_until

CLUSTER = str(uuid.UUID(int=9))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def a(stack: ExitStack, tmp_path: Path) -> Shop:
    shop = stack.enter_context(Shop(tmp_path / "a", CLUSTER, piece_rows=3))
    shop.run(*(f"INSERT INTO t VALUES ({number}, 'old')" for number in range(1, 11)))
    shop.turn()
    return shop


def reader_of(stack: ExitStack, a: Shop, directory: Path, name: str = "b") -> Shop:
    b = stack.enter_context(Shop(directory / name, None, is_anonymous=True))
    wait_until(b.join(a), State.FOLLOW)
    settle([a, b])
    return b


def members(node: Shop) -> list[str]:
    return [str((m.data or {})["json"]) for m in node.messages() if m.namespace == MEMBERS]


def silence(node: Shop, peer: Shop, seconds: float = 4000) -> None:
    """As if a peer had not been heard of for so long."""
    directory = os.path.join(node.log.directory, PREFIX + anonymous_name(peer.id))
    for name in (segment_name(Offset(0)), "consumer.json"):
        os.utime(os.path.join(directory, name), (time.time() - seconds, time.time() - seconds))


def test_any_number_of_them(stack: ExitStack, a: Shop, tmp_path: Path) -> None:
    """One that has fetched everything takes no room from the next."""
    readers = [reader_of(stack, a, tmp_path, f"b{number}") for number in range(JOINS_PER_TOKEN_MAX + 1)]
    assert all(reader.rows() == a.rows() for reader in readers)


def removed(node: Shop) -> list[SegmentFate]:
    """What nobody holds goes."""
    node.turn()
    node.store._session.flush()
    return retain(node.log.directory).removed


def test_it_gets_all_and_nobody_knows_it(stack: ExitStack, a: Shop, tmp_path: Path) -> None:
    b = reader_of(stack, a, tmp_path)
    assert b.rows() == a.rows()
    assert len(b.rows()) == 10
    a.run("DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (11, 'later')")
    settle([a, b])
    assert b.rows() == a.rows()
    assert members(a) == members(b) == []
    assert consumer_name(b.id) not in a.service.consumers.names()
    assert identity_of(str(b.directory)).is_anonymous
    assert list((a.directory / "joins").iterdir()) == [], "the view is not needed any more"


def test_what_is_written_between_start_and_stop(
    stack: ExitStack, a: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no final stage: it follows from the clock of the view on."""
    register = Joins.register

    def busy(joins: Joins, name: str) -> object:
        a.run("INSERT INTO t VALUES (100, 'meanwhile')", "DELETE FROM t WHERE id = 1")
        a.turn()
        return register(joins, name)

    monkeypatch.setattr(Joins, "register", busy)
    b = reader_of(stack, a, tmp_path)
    assert b.rows() == a.rows()
    assert (100, "meanwhile") in b.rows()


def test_any_number(stack: ExitStack, a: Shop, tmp_path: Path) -> None:
    readers = [reader_of(stack, a, tmp_path, f"b{number}") for number in range(4)]
    a.run("INSERT INTO t VALUES (12, 'for all')")
    settle([a, *readers])
    assert all(reader.rows() == a.rows() for reader in readers)


def test_the_log_is_kept_until_it_was_silent_for_long(stack: ExitStack, a: Shop, tmp_path: Path) -> None:
    with ExitStack() as first:
        b = reader_of(first, a, tmp_path)
    name = anonymous_name(b.id)
    wait_for(lambda: not a.service.consumers.is_in_use(name))
    for number in range(100, 1100):
        a.write(number, namespace="main.other")
    assert not removed(a)
    with Shop(b.directory, None, is_anonymous=True) as again:
        applier = again.join(a)
        wait_until(applier, State.FOLLOW)
        wait_for(lambda: again.journal.vclock == a.journal.vclock)
    wait_for(lambda: not a.service.consumers.is_in_use(name))
    for number in range(2000, 3000):
        a.write(number, namespace="main.other")
    silence(a, b)
    a.service.keep_for(1)
    assert removed(a), "it held the log though it was silent"
    assert a.service.holds.sweep() == [name]
    with Shop(b.directory, None, is_anonymous=True) as again:
        applier = again.join(a)
        wait_for(lambda: applier.progress.error is not None)
        assert applier.progress.error is not None
        assert applier.progress.error.code == "relay.gap"
        assert "snapshot" in applier.progress.error.hint
    assert name not in a.service.consumers.names()


def test_a_gap_is_told_before_anything_comes(stack: ExitStack, a: Shop, tmp_path: Path) -> None:
    """Also when the log has nothing behind what is gone."""
    (tmp_path / "b").mkdir()
    enter(str(tmp_path / "b"), CLUSTER, is_anonymous=True)
    b = stack.enter_context(Shop(tmp_path / "b", None, is_anonymous=True))
    for number in range(200):
        a.write(number, namespace="main.other")
    a.service.keep_for(1)
    assert removed(a)
    applier = b.join(a)
    wait_for(lambda: applier.progress.error is not None)
    assert applier.progress.error is not None
    assert applier.progress.error.code == "relay.gap"


def test_it_becomes_a_registered_one_without_a_hole(stack: ExitStack, a: Shop, tmp_path: Path) -> None:
    """From its own clock on, which is behind what was written since."""
    with ExitStack() as first:
        b = reader_of(first, a, tmp_path)
    a.run("UPDATE t SET word = 'while it was away' WHERE id < 5")
    a.turn()
    with Shop(b.directory, None) as now:
        wait_until(now.join(a), State.FOLLOW)
        settle([a, now])
        assert now.rows() == a.rows()
        assert [str(b.id) in each for each in members(a)] == [True]
        assert members(now) == members(a)
        assert not identity_of(str(b.directory)).is_anonymous
        assert consumer_name(b.id) in a.service.consumers.names()
        wait_for(lambda: anonymous_name(b.id) not in a.service.consumers.names())
        a.follow(now)
        now.run("INSERT INTO t VALUES (50, 'of its own')")
        settle([a, now])
        assert (50, "of its own") in a.rows()


def test_changes_of_its_own_are_refused(stack: ExitStack, a: Shop, tmp_path: Path) -> None:
    b = reader_of(stack, a, tmp_path)
    b.run("INSERT INTO t VALUES (70, 'for nobody')")
    for work in (b.store.capture, b.store.apply):
        with pytest.raises(TailraceError) as caught:
            a.run("UPDATE t SET word = 'news' WHERE id = 1")
            a.turn()
            wait_for(lambda: b.journal.vclock == a.journal.vclock)
            work()
        assert caught.value.code == "relay.read_only"
    assert (70, "for nobody") in b.rows()
    assert not b.journal.vclock[b.id]


class TestChains:
    def test_an_anonymous_one_follows_another(self, stack: ExitStack, a: Shop, tmp_path: Path) -> None:
        b = reader_of(stack, a, tmp_path)
        c = reader_of(stack, b, tmp_path, "c")
        a.run("INSERT INTO t VALUES (99, 'through b')")
        settle([a, b, c])
        assert c.rows() == a.rows()

    @pytest.mark.parametrize("cluster", [None, CLUSTER], ids=["joins", "follows"])
    def test_a_registered_one_does_not(self, stack: ExitStack, a: Shop, tmp_path: Path, cluster: str | None) -> None:
        b = reader_of(stack, a, tmp_path)
        c = stack.enter_context(Shop(tmp_path / "c", cluster))
        applier = c.join(b)
        wait_for(lambda: applier.progress.error is not None)
        assert applier.progress.error is not None
        assert applier.progress.error.code == "relay.anonymous"


@pytest.mark.long
def test_as_a_process(stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file says so; the source lists it; a time to live that is over ends the hold; later it is registered."""
    monkeypatch.setenv("TOKEN", SECRET)
    first, second = free_ports(2)
    a = NodeProcess(tmp_path, "a", node_file("a", first, {"b": second}, founder="true", anonymous_ttl="2s"))
    a.run("INSERT INTO t VALUES (1, 'old')")
    stack.enter_context(a)
    b = stack.enter_context(NodeProcess(tmp_path, "b", node_file("b", second, {"a": first}, anonymous="true")))
    b.follows("a")
    wait_for(lambda: a.rows() == b.rows())
    wait_for(lambda: any(peer["is_anonymous"] for peer in a.status()["peers"]))
    b.end(b.TERM)
    (name,) = a.status()["held"]
    wait_for(lambda: name not in a.status()["held"], 60)
    assert "the log is not kept any more" in a.said()
    b.file.write_text(node_file("b", second, {"a": first}))
    b.start()
    b.follows("a")
    a.follows("b")
    b.run("INSERT INTO t VALUES (2, 'of b')")
    wait_for(lambda: len(a.rows()) == 2)
    b.end(b.TERM)
    b.file.write_text(node_file("b", second, {"a": first}, anonymous="true"))
    with pytest.raises(TailraceError, match="stays so"), Node(load_node(str(b.file)), print):
        pass
