"""Three nodes that are all written and killed again and again: in the end they agree, and nothing came twice."""

from __future__ import annotations

import random
import signal
import sqlite3
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.reader import LogReader
from tailrace.relay.vclock import LOCAL
from tests.node.test_serve import NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for

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


def converge(directory: Path, seconds: float, seed: int) -> None:
    names = ("a", "b", "c")
    ports = dict(zip(names, free_ports(3), strict=True))
    with ExitStack() as stack:
        nodes = []
        for name in names:
            others = {other: port for other, port in ports.items() if other != name}
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
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            time.sleep(chosen.uniform(0.5, 3.0))
            victim = chosen.choice(nodes)
            victim.end(signal.SIGKILL)
            time.sleep(chosen.uniform(0.0, 1.5))
            victim.start()
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


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(2))
def test_a_minute_of_kills(tmp_path: Path, seed: int) -> None:
    converge(tmp_path, 60.0, seed)
