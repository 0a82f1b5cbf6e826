"""A source keeps its log for the lowest replica below it, whoever is between them, with a registry or without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.retention import retain
from tailrace.topology.databasesql import DatabaseStorage
from tailrace.topology.registry import Registry
from tailrace.topology.registryguest import RegistryGuest
from tailrace.topology.replicanode import ReplicaNode
from tailrace.topology.serving import GuestServer
from tailrace.topology.site import Site
from tests.relay.nodes import wait_for
from tests.topology.logs import SMALL_SEGMENTS, TOKEN, Served, append, replica_node, segments, serve


class Tree(NamedTuple):
    """Root, middle, leaf, and the registry that may be there."""

    log: CommitLog
    root: Served
    middle: ReplicaNode
    leaf: ReplicaNode
    registry: Registry | None
    registry_server: GuestServer | None

    @property
    def first_kept(self) -> int:
        """Where the root's log begins, after everything was removed from it that may be."""
        retain(self.root.directory)
        return self.log_bases[0]

    @property
    def log_bases(self) -> list[int]:
        return [int(name.removesuffix(".log")) for name in segments(self.root.directory)]

    def stop_leaf(self) -> None:
        """It lives and stays where it is."""
        if self.registry is None:
            self.leaf.replica.pause(is_paused=True)
        else:
            self.registry.stop_replication([Site("shop", f"127.0.0.1:{self.leaf.port}")])
        wait_for(lambda: self.leaf.replica.progress.state == "stopped")

    def start_leaf(self) -> None:
        if self.registry is None:
            self.leaf.replica.pause(is_paused=False)
        else:
            self.registry.start_replication([Site("shop", f"127.0.0.1:{self.leaf.port}")])

    def write(self, first: int, count: int) -> None:
        """And wait until the middle has it, and has told the root afterwards what is needed."""
        append(self.log, first, count)
        reaches(self.middle, self.log)
        hears_of_it(self.root)


def reaches(node: ReplicaNode, log: CommitLog) -> None:
    wait_for(lambda: node.replica.progress.next_offset == log.next_offset, 60)


def hears_of_it(root: Served) -> None:
    told = len(root.pulling.kept)
    wait_for(lambda: len(root.pulling.kept) > told + 1, 60)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def tree_of(stack: ExitStack, directory: Path, where: str) -> Tree:
    """With the registry at the root, in a place of its own, or nowhere."""
    log = stack.enter_context(CommitLog.open(directory / "root", SMALL_SEGMENTS))
    append(log, 0, 50)
    registry, server = None, None
    if where != "none":
        registry = Registry(DatabaseStorage(str(directory / "registry.db")))
        stack.callback(registry.close)
        registry.set_tunable("physrep_fanout", "1")
    guests = [RegistryGuest(registry, lambda _: True)] if registry is not None else []
    root = stack.enter_context(Served(directory / "root", guests=guests if where == "local" else []))
    if where == "remote":
        server = serve(guests)
        stack.callback(server.stop)
    port = (server or root.server).port
    asked: dict[str, Any] = {}
    if registry is not None:
        asked["from_registry"] = {"address": f"127.0.0.1:{port}", "token": TOKEN, "database": "shop"}
    said: list[str] = []
    middle = stack.enter_context(
        replica_node(directory / "middle", [root.server.port], said, retention={"every": "100ms"}, **asked)
    )
    reaches(middle, log)
    above = root.server.port if registry is not None else middle.port
    leaf = stack.enter_context(replica_node(directory / "leaf", [above], said, **asked))
    reaches(leaf, log)
    if registry is not None:
        wait_for(lambda: sorted(row.tier or 0 for row in registry.topology()) == [0, 1, 2], 60)
    wait_for(lambda: middle.pulling.copies == ["leaf"])
    told = Consumers(directory / "middle" / "log")
    wait_for(lambda: told.known_position("replica-leaf") == log.next_offset - 2, 60)
    return Tree(log, root, middle, leaf, registry, server)


@pytest.mark.parametrize("where", ["none", "local", "remote", "dead"])
def test_the_log_is_kept_for_a_replica_two_tiers_below(stack: ExitStack, tmp_path: Path, where: str) -> None:
    tree = tree_of(stack, tmp_path, "remote" if where == "dead" else where)
    tree.stop_leaf()
    has = tree.leaf.replica.progress.next_offset
    if where == "dead":
        assert tree.registry_server is not None
        tree.registry_server.stop()
    tree.write(50, 100)
    assert 0 < tree.first_kept <= has, "what all have is gone, what the leaf lacks is not"
    assert tree.log_bases[1] > has - 50, "and no more than that"
    middle_bases = [int(name.removesuffix(".log")) for name in segments(tmp_path / "middle" / "log")]
    assert middle_bases[0] <= has, "nor from the middle's own log"
    if where == "dead":
        tree.leaf.replica.pause(is_paused=False)
    else:
        tree.start_leaf()
    reaches(tree.leaf, tree.log)
    wait_for(lambda: tree.first_kept > has, 60)
    held = segments(tmp_path / "leaf" / "log")
    assert all(held[name] == raw for name, raw in segments(tmp_path / "root").items())


def test_a_replica_that_comes_back_still_speaks_for_those_below_it(stack: ExitStack, tmp_path: Path) -> None:
    tree = tree_of(stack, tmp_path, "none")
    tree.stop_leaf()
    has = tree.leaf.replica.progress.next_offset
    tree.write(50, 100)
    port = tree.middle.port
    tree.middle.__exit__()
    told = len(tree.root.pulling.kept)
    again = replica_node(tmp_path / "middle", [tree.root.server.port], [], listen=f"127.0.0.1:{port}")
    stack.enter_context(again)
    wait_for(lambda: len(tree.root.pulling.kept) > told)
    assert all(kept.offset <= has for kept in tree.root.pulling.kept[told:])
    assert tree.first_kept <= has
    tree.start_leaf()
    reaches(tree.leaf, tree.log)
    wait_for(lambda: tree.first_kept > has, 60)


def test_a_replica_that_is_gone_is_let_go_of_after_a_while(stack: ExitStack, tmp_path: Path) -> None:
    """As long as `hold` says at the one that it copied from; the root hears of it from there."""
    log = stack.enter_context(CommitLog.open(tmp_path / "root", SMALL_SEGMENTS))
    append(log, 0, 50)
    root = stack.enter_context(Served(tmp_path / "root"))
    middle = stack.enter_context(replica_node(tmp_path / "middle", [root.server.port], [], hold="2s"))
    reaches(middle, log)
    with replica_node(tmp_path / "leaf", [middle.port], []) as leaf:
        reaches(leaf, log)
    has = log.next_offset
    append(log, 50, 100)
    reaches(middle, log)

    def first_kept() -> int:
        retain(root.directory)
        return int(next(iter(segments(root.directory))).removesuffix(".log"))

    wait_for(lambda: first_kept() > has, 60)
    assert middle.pulling.copies == []
