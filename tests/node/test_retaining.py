"""What a node removes from its log, and what it never does."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tailrace.log.batch import batches_of, encode_frame
from tailrace.log.frame import Codec
from tailrace.log.retention import retain
from tailrace.log.view import LogView
from tailrace.message import Lsn, Message, Micros, NodeId, Op, now
from tailrace.node.form import RetentionForm
from tailrace.node.retaining import CLOCK, Retaining
from tailrace.relay.journal import Journal
from tailrace.relay.subscription import consumer_name
from tailrace.topology.answers import Tuning
from tailrace.topology.knobs import Knobs
from tests.cli.conftest import Tailrace, tailrace
from tests.node.shops import Shop
from tests.node.test_serve import SECRET, NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for
from tests.topology.clock import Clock
from tests.topology.test_knobs import Passing

__all__ = ["tailrace"]  # a fixture

CLUSTER = "00000000-0000-0000-0000-000000000009"
WORD = "x" * 500


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def oldest(node: Shop) -> int:
    return LogView(node.log.directory).bases()[0]


def has_removed(retaining: Retaining, node: Shop) -> bool:
    retaining.turn()
    return oldest(node) > 0


def write(node: Shop, first: int, count: int = 100) -> None:
    for number in range(first, first + count):
        node.run(f"INSERT INTO t VALUES ({number}, '{WORD}')")
        node.turn()


def test_what_the_node_needs_outlives_its_messages(stack: ExitStack, tmp_path: Path) -> None:
    """Its clock, its bookmark, its time; though an operator removes messages by hand."""
    said = list[str]()
    with Shop(tmp_path / "a", CLUSTER) as a:
        retaining = Retaining(a.journal, RetentionForm(), said.append, has_store=True)
        ahead_us = now() + 30 * 86_400 * 1_000_000
        ahead = Message(Op.INSERT, Micros(ahead_us), "main.t", {"id": 7, "word": "?"}, lsn=Lsn(1), origin=NodeId(5))
        a.journal.append_group([encode_frame(batch, Codec.LZ4) for batch in batches_of([ahead])])
        a.turn()
        write(a, 100)
        assert not retain(a.log.directory).removed  # the clock was not kept yet
        retaining.turn()
        wait_for(lambda: has_removed(retaining, a))
        assert any("removed offsets 0 to" in text for text in said)
        known, position = a.journal.vclock, a.store._progress.position
        retaining.close()
    with Shop(tmp_path / "a", CLUSTER) as a:
        assert a.journal.vclock == known
        assert a.store._progress.position == position
        assert a.journal.oldest()[a.id] > 0
        assert a.journal.oldest()[NodeId(5)] == 1
        a.run("INSERT INTO t VALUES (9000, 'after')")
        assert a.store.capture() == 1
        (last,) = [m for m in a.messages() if (m.data or {}).get("id") == 9000]
        assert last.timestamp > ahead_us
        assert last.lsn == known[a.id] + 1


def test_a_crash_between_the_clock_and_the_removal(stack: ExitStack, tmp_path: Path) -> None:
    """The clock is durable before anything that only it tells may go: its consumer holds the rest."""
    a = stack.enter_context(Shop(tmp_path / "a", CLUSTER))
    retaining = Retaining(a.journal, None, print, has_store=True)
    stack.callback(retaining.close)
    write(a, 1, 50)
    retaining.turn()
    (clock,) = [each for each in a.service.consumers.all() if each.name == CLOCK]
    kept_to = a.service.consumers.position(clock)
    write(a, 100, 50)
    wait_for(lambda: bool(retain(a.log.directory).removed) or oldest(a) > 0)
    assert oldest(a) <= kept_to + 1
    assert Journal(a.log, a.id).vclock == a.journal.vclock


def test_the_cap_is_agreed_on_with_peers_that_were_there_before(stack: ExitStack, tmp_path: Path) -> None:
    a = stack.enter_context(Shop(tmp_path / "a", CLUSTER))
    a.service.keep_for(77)
    Retaining(a.journal, RetentionForm(cap_bytes=30_000), print, has_store=True).close()
    assert a.service.consumers.get(consumer_name(77)).agreement.hold.cap_bytes == 30_000
    said = list[str]()
    retaining = Retaining(a.journal, RetentionForm(cap_bytes=30_000), said.append, has_store=True)
    stack.callback(retaining.close)
    write(a, 1)
    wait_for(lambda: has_removed(retaining, a))
    assert [text for text in said if "ALARM" in text and "peer 77" in text and "its cap is 30000" in text]


@pytest.mark.long
def test_nodes_with_a_cap(
    stack: ExitStack, tmp_path: Path, tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that is away for too long is let go of, is told, and takes a new snapshot by itself."""
    monkeypatch.setenv("TOKEN", SECRET)
    first, second = free_ports(2)
    keep = {"segment_bytes": "20kB", "retention": "{every: 200ms, cap_bytes: 60kB}"}
    a = NodeProcess(tmp_path, "a", node_file("a", first, {"b": second}, founder="true", **keep))
    a.run("INSERT INTO t VALUES (1, 'before all')")
    stack.enter_context(a)
    b = NodeProcess(tmp_path, "b", node_file("b", second, {"a": first}, **keep))
    stack.enter_context(b)
    b.follows("a")
    a.follows("b")
    wait_for(lambda: b.status()["read_only"] is None)
    b.run("INSERT INTO t VALUES (2, 'of b')")
    wait_for(lambda: len(a.rows()) == 2)
    b.end(signal.SIGTERM)

    for number in range(100, 300):
        a.run(f"INSERT INTO t VALUES ({number}, hex(randomblob(400)))")  # which nobody makes smaller
    wait_for(lambda: "ALARM: the log is not kept any more for peer" in a.said(), 60)
    wait_for(lambda: not list((tmp_path / "a" / "log").glob("0000000000000000000[0-9].log")), 60)
    wait_for(lambda: part_of(tailrace, a, "peer")["state"] == "lost")
    peer = part_of(tailrace, a, "peer")
    assert peer["health"] == "bad"
    assert "its cap is 60000" in peer["wrong"]["what"]
    assert peer["lag"]["bytes"] > 0

    b.start()
    wait_for(lambda: b.state("a") == "loading", 60)
    error = source_of(b, "a")["error"]
    assert error["code"] == "relay.gap"
    assert "a no longer has messages" in error["what"]
    assert "no other source" in error["what"]
    assert len(b.rows()) == 2
    b.end(signal.SIGTERM)
    b.file.write_text(b.file.read_text() + "\nresnapshot: true\n")
    b.start()
    wait_for(lambda: a.rows() == b.rows(), 60)
    assert "a new snapshot of a is taken" in b.said()

    a.end(signal.SIGKILL)
    a.run("INSERT INTO t VALUES (3, 'while the node was away')")
    a.start()
    wait_for(lambda: b.status()["read_only"] is None)
    b.run("INSERT INTO t VALUES (4, 'of b, later')")
    wait_for(lambda: a.rows() == b.rows() and len(a.rows()) == 204, 60)
    b.follows("a")
    a.follows("b")
    wait_for(lambda: part_of(tailrace, a, "peer")["health"] == "good")
    wait_for(lambda: source_of(b, "a")["behind_bytes"] == 0)
    assert part_of(tailrace, b, "source")["lag"] == {"messages": 0, "bytes": 0, "seconds": 0.0}


def part_of(tailrace: Tailrace, node: NodeProcess, kind: str) -> Any:
    """The only part of a kind, as a node's status has it."""
    (found,) = (part for part in tailrace("node", "status", node.file, "--json").json["parts"] if part["kind"] == kind)
    return found


def source_of(node: NodeProcess, name: str) -> Any:
    return json.loads((node.directory / node.name / "status.json").read_text())["sources"][name]


def test_it_is_looked_at_as_often_as_the_registry_says(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, looks = Clock(), list[float]()
    stopping = Passing(clock)
    knobs = Knobs({}, {"physrep_check_minlog_freq_sec": 60.0}, clock)
    a = stack.enter_context(Shop(tmp_path / "a", CLUSTER))
    retaining = Retaining(a.journal, RetentionForm(), print, has_store=True, knobs=knobs)
    stack.callback(retaining.close)

    def turn() -> None:
        looks.append(clock.now)
        knobs.learn(Tuning("1", {"physrep_check_minlog_freq_sec": "10"}))
        if len(looks) == 3:
            stopping.set()

    monkeypatch.setattr(retaining, "turn", turn)
    retaining.run(stopping)
    assert looks == [1060, 1070, 1080]
