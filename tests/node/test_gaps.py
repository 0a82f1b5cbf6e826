"""A source no longer has what a node needs: who has it is told, and a new snapshot is taken where that is allowed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.retention import retain
from tailrace.message import Lsn
from tailrace.node.form import RetentionForm
from tailrace.node.gaps import Gaps
from tailrace.node.retaining import Retaining
from tailrace.relay.applier import Applier, Source, State
from tailrace.relay.subscription import consumer_name
from tailrace.relay.vclock import Vclock
from tests.node.shops import Shop, settle
from tests.relay.nodes import HEARTBEAT_S, TOKEN, TestNode, wait_for, wait_until

CLUSTER = str(uuid.UUID(int=11))
WORD = "x" * 700


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def joined(stack: ExitStack, tmp_path: Path) -> tuple[Shop, Shop]:
    """A node and one that has joined it, has followed it for a while, and is away."""
    a = stack.enter_context(Shop(tmp_path / "a", CLUSTER))
    b = stack.enter_context(Shop(tmp_path / "b", None))
    applier = b.join(a)
    wait_until(applier, State.FOLLOW)
    a.run("INSERT INTO t VALUES (1, 'first')")
    settle([a, b])
    applier.stop()
    b.appliers.remove(applier)
    return a, b


def let_go(node: Shop, peer: TestNode) -> None:
    """The node writes so much that it no longer keeps its log for a peer, and removes it."""
    said = list[str]()
    node.service._hold = RetentionForm(cap_bytes=10_000).hold()
    retaining = Retaining(node.journal, RetentionForm(cap_bytes=10_000), said.append, has_store=True)
    for number in range(100, 160):
        node.run(f"INSERT INTO t VALUES ({number}, '{WORD}')")
        node.turn()

    def is_gone() -> bool:
        retaining.turn()
        return node.journal.oldest()[node.id] > peer.journal.vclock[node.id]

    wait_for(is_gone)
    retaining.close()


def follow(stack: ExitStack, node: Shop, sources: dict[str, TestNode], *, resnapshot: bool) -> dict[str, Applier]:
    named = [Source(name, other.location, TOKEN) for name, other in sources.items()]
    gaps = Gaps(node.service, named, node.store, str(node.directory), print, may_resnapshot=resnapshot)
    made = {}
    for source in named:
        made[source.name] = Applier(source, node.identity, node.journal, heartbeat_s=HEARTBEAT_S, close_gap=gaps.close)
        made[source.name].start()
        stack.callback(made[source.name].stop)
    return made


def said(applier: Applier) -> str:
    wait_for(lambda: applier.progress.state is State.LOADING and applier.progress.error is not None)
    return str(applier.progress.error)


def test_nobody_has_it(stack: ExitStack, tmp_path: Path) -> None:
    """The error says which messages; nothing is replaced that was not allowed to be."""
    a, b = joined(stack, tmp_path)
    let_go(a, b)
    before, clock = b.rows(), b.journal.vclock
    applier = follow(stack, b, {"alpha": a}, resnapshot=False)["alpha"]
    error = said(applier)
    assert "relay.gap" in error
    assert f"alpha no longer has messages {clock[a.id] + 1} to {a.journal.oldest()[a.id]} of node {a.id}" in error
    assert "resnapshot: true" in error
    assert (b.rows(), b.journal.vclock) == (before, clock)


def test_a_new_snapshot(stack: ExitStack, tmp_path: Path) -> None:
    """Also of tables that are new, and with what was deleted; then both follow each other as before."""
    a, b = joined(stack, tmp_path)
    a.run("CREATE TABLE u(id INTEGER PRIMARY KEY, n INT)", "INSERT INTO u VALUES (1, 2)", "DELETE FROM t WHERE id = 1")
    a.store.settle()
    let_go(a, b)
    clock = b.journal.vclock
    applier = follow(stack, b, {"a": a}, resnapshot=True)["a"]
    wait_until(applier, State.FOLLOW)
    settle([a, b])
    assert b.rows() == a.rows()
    assert b.rows("SELECT * FROM u") == [(1, 2)]
    assert b.journal.oldest()[a.id] > clock[a.id]  # what came by a snapshot it cannot serve
    a.follow(b)
    b.run("UPDATE t SET word = 'of b' WHERE id = 100", "DELETE FROM t WHERE id = 101")
    a.run("UPDATE t SET word = 'of a' WHERE id = 102")
    settle([a, b])
    assert a.rows() == b.rows()
    assert {(100, "of b"), (102, "of a")} <= set(a.rows())
    assert consumer_name(b.id) in a.service.consumers.names()


def test_the_snapshot_outlives_a_restart(stack: ExitStack, tmp_path: Path) -> None:
    a, b = joined(stack, tmp_path)
    let_go(a, b)
    with ExitStack() as first:
        wait_until(follow(first, b, {"a": a}, resnapshot=True)["a"], State.FOLLOW)
    clock = b.journal.vclock
    b.__exit__()
    again = stack.enter_context(Shop(tmp_path / "b", CLUSTER))
    assert again.journal.vclock == clock
    assert again.journal.oldest()[a.id] == clock[a.id] - 1  # that it is registered came behind the snapshot
    a.run("INSERT INTO t VALUES (9, 'later')")
    wait_until(follow(stack, again, {"a": a}, resnapshot=False)["a"], State.FOLLOW)
    settle([a, again])
    assert again.rows() == a.rows()


def test_messages_of_its_own_are_not_lost(stack: ExitStack, tmp_path: Path) -> None:
    """Not those in its log, and not those that only its database has. When the source has them, it goes on."""
    a, b = joined(stack, tmp_path)
    let_go(a, b)
    b.run("INSERT INTO t VALUES (7, 'of b')")
    applier = follow(stack, b, {"a": a}, resnapshot=True)["a"]
    error = said(applier)
    assert "relay.unsent" in error
    assert f"messages 1 to 1 of node {b.id}" in error
    assert (7, "of b") in b.rows()
    a.follow(b)
    wait_until(applier, State.FOLLOW)
    settle([a, b])
    assert a.rows() == b.rows()
    assert (7, "of b") in b.rows()


def test_another_source_has_it(stack: ExitStack, tmp_path: Path) -> None:
    """It is named, what is missing comes from there, and then the first one is followed again."""
    a, b = joined(stack, tmp_path)
    c = stack.enter_context(TestNode(tmp_path / "c", CLUSTER))
    c.follow(a)
    wait_for(lambda: c.journal.vclock == a.journal.vclock)
    let_go(a, b)
    wait_for(lambda: c.journal.vclock == a.journal.vclock)
    c.service.is_loading = True
    appliers = follow(stack, b, {"a": a, "charlie": c}, resnapshot=True)
    error = said(appliers["a"])
    assert "charlie still has them" in error
    c.service.is_loading = False
    wait_until(appliers["charlie"], State.FOLLOW)
    wait_until(appliers["a"], State.FOLLOW)
    settle([a, b])
    assert b.rows() == a.rows()
    assert not (tmp_path / "b" / "rejoining").exists()


def test_one_that_was_let_go_of_while_all_is_still_there(stack: ExitStack, tmp_path: Path) -> None:
    """It is let in again, and needs no snapshot."""
    a, b = joined(stack, tmp_path)
    a.service.consumers.invalidate(consumer_name(b.id), "it was away")
    a.run("INSERT INTO t VALUES (2, 'since')")
    a.turn()
    wait_until(follow(stack, b, {"a": a}, resnapshot=False)["a"], State.FOLLOW)
    settle([a, b])
    assert b.rows() == a.rows()


def test_a_peer_that_lost_what_it_had(stack: ExitStack, tmp_path: Path) -> None:
    """As after a restore: the log is kept for it from there again, though it had acknowledged more."""
    a = stack.enter_context(TestNode(tmp_path / "a", CLUSTER))
    for number in range(1, 6):
        a.write(number)
    a.service.keep_for(77)
    position = a.service.consumers.position(a.service.consumers.get(consumer_name(77)))
    assert position == a.journal.end - 1
    a.service.keep_for(77, Vclock({a.id: Lsn(2)}))
    assert a.service.consumers.position(a.service.consumers.get(consumer_name(77))) < position
    assert not retain(a.log.directory).removed
