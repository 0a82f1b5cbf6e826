"""Three nodes, all written, killed and cut off again and again: in the end they agree, and nothing came twice."""

from __future__ import annotations

import random
import signal
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.reader import LogReader
from tailrace.relay.vclock import LOCAL
from tests.node.test_serve import NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for
from tests.servers.link import Link

ROWS = 40
VERSIONS = "SELECT namespace, key, at, origin, lsn FROM tailrace_version ORDER BY namespace, key"


def write_until(over: threading.Event, node: NodeProcess, seed: int) -> None:
    """A user of one database, who knows nothing of nodes."""
    chosen = random.Random(seed)
    number = 0
    while not over.wait(chosen.random() / 20):
        number += 1
        id_ = chosen.randrange(ROWS)
        word = f"{node.name} {number}"
        statement = chosen.choice(
            [
                f"INSERT OR REPLACE INTO t VALUES ({id_}, '{word}')",
                f"UPDATE t SET word = '{word}' WHERE id = {id_}",
                f"DELETE FROM t WHERE id = {id_}",
                f"UPDATE OR REPLACE t SET id = {chosen.randrange(ROWS)} WHERE id = {id_}",
            ]
        )
        node.run(statement)


def lsns(node: NodeProcess) -> dict[int, list[int]]:
    """By origin: the numbers of the messages in a node's log, in its order."""
    found: dict[int, list[int]] = defaultdict(list)
    for entry in LogReader(node.directory / node.name / "log").entries():
        if entry.message.origin != LOCAL:
            found[entry.message.origin].append(entry.message.lsn)
    return found


class Kills:
    """Of nodes, at any moment."""

    def __init__(self, nodes: Sequence[NodeProcess]) -> None:
        self._nodes = nodes

    def happen(self, chosen: random.Random) -> None:
        victim = chosen.choice(self._nodes)
        victim.end(signal.SIGKILL)
        time.sleep(chosen.uniform(0.0, 1.5))
        victim.start()


class Cuts:
    """Of links between nodes, each in one direction of connecting; some longer than a silence that nodes bear."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links

    def happen(self, chosen: random.Random) -> None:
        cut = chosen.sample(self._links, chosen.randint(1, len(self._links)))
        for link in cut:
            chosen.choice((link.break_off, link.fall_silent))()
        time.sleep(chosen.uniform(0.1, 3.0))
        for link in cut:
            link.mend()


def converge(directory: Path, seconds: float, seed: int, *, is_cut: bool = False) -> None:
    names = ("a", "b", "c")
    ports = dict(zip(names, free_ports(3), strict=True))
    with ExitStack() as stack:
        nodes = []
        links: list[Link] = []
        for name in names:
            others = {other: port for other, port in ports.items() if other != name}
            if is_cut:
                between = {other: stack.enter_context(Link(port)) for other, port in others.items()}
                links += between.values()
                others = {other: link.port for other, link in between.items()}
            more = {"quorum": "0", **({"founder": "true"} if name == "a" else {})}
            nodes.append(NodeProcess(directory, name, node_file(name, ports[name], others, **more)))
            stack.enter_context(nodes[-1])
        for node in nodes:
            for other in names:
                if other != node.name:
                    node.follows(other)
        over = threading.Event()
        writers = [threading.Thread(target=write_until, args=(over, node, seed + at)) for at, node in enumerate(nodes)]
        for writer in writers:
            writer.start()
        chosen = random.Random(seed)
        failures: list[Kills | Cuts] = [Kills(nodes), *([Cuts(links)] if is_cut else [])]
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(chosen.uniform(0.5, 3.0))
            chosen.choice(failures).happen(chosen)
        over.set()
        for writer in writers:
            writer.join()
        wait_for(lambda: nodes[0].rows() == nodes[1].rows() == nodes[2].rows() and _agree(nodes), 120)
        for node in nodes:
            assert node.end(signal.SIGTERM) == 0
        assert nodes[0].rows() == nodes[1].rows() == nodes[2].rows()
        told = [lsns(node) for node in nodes]
        assert {frozenset(each) for each in told} == {frozenset(told[0])}
        assert len(told[0]) == len(names)
        for each in told:
            for numbers in each.values():
                assert sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers)))


def _agree(nodes: list[NodeProcess]) -> bool:
    """Whether all have the same versions of all rows, so that nothing is on its way."""
    found = []
    for node in nodes:
        connection = sqlite3.connect(node.path, timeout=30)
        noted = connection.execute("SELECT count(*) FROM tailrace_changelog").fetchone()
        found.append(
            (
                noted,
                connection.execute(
                    "SELECT namespace, key, at, origin, lsn FROM tailrace_version ORDER BY 1, 2"
                ).fetchall(),
            )
        )
        connection.close()
    return all(each == ((0,), found[0][1]) for each in found)


@pytest.mark.crash
def test_a_few_kills(tmp_path: Path) -> None:
    converge(tmp_path, 6.0, seed=1)


@pytest.mark.crash
def test_a_few_cuts_and_kills(tmp_path: Path) -> None:
    converge(tmp_path, 8.0, seed=2, is_cut=True)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(2))
def test_a_minute_of_kills(tmp_path: Path, seed: int) -> None:
    converge(tmp_path, 60.0, seed)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(3))
def test_a_minute_of_cuts_and_kills(tmp_path: Path, seed: int) -> None:
    converge(tmp_path, 60.0, seed, is_cut=True)
