"""Replicas that wait to be dialled: by whom they are not, and what they do while somebody is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.relay.applier import Source
from tailrace.topology.dialling import Dialling
from tailrace.topology.knobs import Knobs
from tailrace.topology.member import State
from tailrace.topology.registry import Registry
from tailrace.topology.registryclient import RegistryClient
from tailrace.topology.registryguest import RegistryGuest
from tailrace.topology.replicanode import ReplicaNode
from tailrace.topology.serving import GuestServer
from tailrace.topology.site import Site
from tailrace.topology.storage import open_storage
from tests.node.test_serve import free_ports
from tests.relay.nodes import wait_for
from tests.topology.logs import SMALL_SEGMENTS, TOKEN, Served, append, replica_node, segments, serve

SECRET = "both-know-this"
SOURCE = Site("shop", "10.0.0.1:4700")


class Below:
    """A replica that waits to be dialled, with nobody at the address of its source."""

    def __init__(self, stack: ExitStack, directory: Path, *, registry: int | None = None) -> None:
        self.said: list[str] = []
        self.directory = directory / "copy" / "log"
        (nobody,) = free_ports(1)
        more = {}
        if registry is not None:
            more["from_registry"] = {"address": f"127.0.0.1:{registry}", "token": TOKEN, "database": "shop"}
        node = replica_node(
            directory / "copy", [nobody], self.said, from_reverse={"secret": SECRET, "database": "shop"}, **more
        )
        self.node: ReplicaNode = stack.enter_context(node)
        self.site = Site("shop", f"127.0.0.1:{self.node.port}")

    def reaches(self, log: CommitLog) -> None:
        wait_for(lambda: self.node.replica.progress.next_offset == log.next_offset, 60)
        assert segments(self.directory) == segments(Path(log.directory))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


OFTEN = Knobs({"revsql_host_refresh_freq_sec": 0.1, "revsql_connect_freq_sec": 0.1})


@pytest.fixture
def log(stack: ExitStack, tmp_path: Path) -> CommitLog:
    made = stack.enter_context(CommitLog.open(tmp_path / "root", SMALL_SEGMENTS))
    append(made, 0, 30)
    return made


@pytest.fixture
def root(stack: ExitStack, log: CommitLog) -> Served:
    return stack.enter_context(Served(Path(log.directory)))


def dials(root: Served, below: Below, said: list[str], secret: str = SECRET, site: Site = SOURCE) -> Dialling:
    return Dialling(site, secret, root.pulling, lambda: [below.site], OFTEN, said.append)


@pytest.mark.parametrize(
    ("secret", "site", "why"),
    [
        ("another-secret", SOURCE, "does not know the secret"),
        (SECRET, Site("other", SOURCE.host), "this is a replica of shop"),
    ],
)
def test_a_source_that_is_another_gets_nothing(
    log: CommitLog, root: Served, stack: ExitStack, tmp_path: Path, secret: str, site: Site, why: str
) -> None:
    below, said = Below(stack, tmp_path), list[str]()
    with dials(root, below, said, secret, site):
        wait_for(lambda: any(why in line for line in said))
    assert root.pulling.sent_bytes == 0
    assert not below.directory.exists()
    stack.enter_context(dials(root, below, said))
    below.reaches(log)
    assert SECRET not in "".join(said + below.said)


def test_a_source_that_is_down_is_waited_for(log: CommitLog, root: Served, stack: ExitStack, tmp_path: Path) -> None:
    below, said = Below(stack, tmp_path), list[str]()
    with dials(root, below, said):
        below.reaches(log)
    append(log, 30, 30)
    wait_for(lambda: below.node.replica.progress.error is not None)
    assert segments(below.directory) != segments(root.directory)
    stack.enter_context(dials(root, below, said))
    below.reaches(log)
    size = sum(map(len, segments(root.directory).values()))
    assert root.pulling.sent_bytes == size, "it goes on from where it was"


def test_a_rule_that_is_removed_ends_the_connection(
    log: CommitLog, root: Served, stack: ExitStack, tmp_path: Path
) -> None:
    below, said = Below(stack, tmp_path), list[str]()
    hosts = [below.site]
    stack.enter_context(Dialling(SOURCE, SECRET, root.pulling, lambda: hosts, OFTEN, said.append))
    below.reaches(log)
    hosts.clear()
    wait_for(lambda: below.node.replica.progress.error is not None)
    append(log, 30, 10)
    hosts.append(below.site)
    below.reaches(log)


def test_a_replica_that_does_not_wait_is_dialled_in_vain(
    log: CommitLog, root: Served, stack: ExitStack, tmp_path: Path
) -> None:
    """It is served through one connection, and does not take another one until it needs it."""
    below, first, second = Below(stack, tmp_path), list[str](), list[str]()
    with dials(root, below, first):
        below.reaches(log)
        stack.enter_context(dials(root, below, second, site=Site("shop", "10.0.0.9:4700")))
        wait_for(lambda: any("nobody waits" in line for line in second))
        append(log, 30, 10)
        below.reaches(log)
        assert below.node.replica.progress.source == "10.0.0.1:4700 (dialled)"
    append(log, 40, 10)
    below.reaches(log)
    assert below.node.replica.progress.source == "10.0.0.9:4700 (dialled)"


class Above:
    """A registry that can be away, and a source that asks it whom to dial."""

    def __init__(self, stack: ExitStack, directory: Path, root: Served) -> None:
        self.registry = Registry(open_storage(str(directory / "registry.db")))
        stack.callback(self.registry.close)
        self.server: GuestServer = serve([RegistryGuest(self.registry, lambda _: True)])
        stack.callback(self.server.stop)
        client = RegistryClient(Source("registry", f"grpc://127.0.0.1:{self.server.port}", TOKEN))
        self.said: list[str] = []
        dialling = Dialling(
            Site("shop", f"127.0.0.1:{root.server.port}"),
            SECRET,
            root.pulling,
            lambda: client.get_reverse_hosts(Site("shop", f"127.0.0.1:{root.server.port}")),
            OFTEN,
            self.said.append,
        )
        stack.enter_context(dialling)


def test_without_the_registry_a_replica_that_waited_goes_on_waiting(
    log: CommitLog, root: Served, stack: ExitStack, tmp_path: Path
) -> None:
    """And its source goes on dialling it."""
    above = Above(stack, tmp_path, root)
    below = Below(stack, tmp_path, registry=above.server.port)
    top = Site("shop", f"127.0.0.1:{root.server.port}")
    above.registry.reset_nodes([top], State.ACTIVE)
    above.registry.add_rule(below.site, top)
    below.reaches(log)
    dialled = f"127.0.0.1:{root.server.port} (dialled)"
    below.node.replica.change_source()  # it may have found its source before the rule was there
    wait_for(lambda: below.node.replica.progress.source == dialled, 30)
    above.server.stop()
    below.node.replica.change_source()
    append(log, 30, 20)
    below.reaches(log)
    assert below.node.replica.progress.source == dialled


def test_without_the_registry_a_replica_that_connected_goes_on_connecting(
    log: CommitLog, root: Served, stack: ExitStack, tmp_path: Path
) -> None:
    registry = Registry(open_storage(str(tmp_path / "registry.db")))
    stack.callback(registry.close)
    server = serve([RegistryGuest(registry, lambda _: True)])
    stack.callback(server.stop)
    node = replica_node(
        tmp_path / "copy",
        [root.server.port],
        [],
        from_reverse={"secret": SECRET, "database": "shop"},
        from_registry={"address": f"127.0.0.1:{server.port}", "token": TOKEN, "database": "shop"},
    )
    stack.enter_context(node)
    wait_for(lambda: node.replica.progress.next_offset == log.next_offset, 60)
    server.stop()
    node.replica.change_source()
    append(log, 30, 20)
    wait_for(lambda: node.replica.progress.next_offset == log.next_offset, 60)
    assert node.replica.progress.source == "top0"
