"""Who may write a node's store: nobody before it is in sync, only the leader where that is wished."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import Tailrace, tailrace
from tests.node.test_serve import SECRET, NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for
from tests.servers import certificate as certificates

__all__ = ["tailrace"]  # a fixture

OPERATOR = '"${TOKEN}-operator"'


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setenv("TOKEN", SECRET)
    with ExitStack() as opened:
        yield opened


def pair(stack: ExitStack, tmp_path: Path, **more: str) -> tuple[NodeProcess, NodeProcess]:
    """Two nodes that follow each other; the first is the founder."""
    first, second = free_ports(2)
    a = NodeProcess(tmp_path, "a", node_file("a", first, {"b": second}, founder="true", **more))
    b = NodeProcess(tmp_path, "b", node_file("b", second, {"a": first}, **more))
    for node in (a, b):
        stack.enter_context(node)
    return a, b


def is_writable(node: NodeProcess) -> bool:
    try:
        node.run("BEGIN IMMEDIATE", "INSERT INTO t VALUES (-1, 'probe')", "ROLLBACK")
    except sqlite3.IntegrityError as error:
        assert "this node is read-only now" in str(error)
        return False
    return True


def test_nobody_writes_before_a_node_is_in_sync(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    a, b = pair(stack, tmp_path)
    assert is_writable(a), "nobody has joined it yet"
    wait_for(lambda: is_writable(b), 60)
    a.follows("b")
    a.run("INSERT INTO t VALUES (1, 'one')")
    wait_for(lambda: b.rows() == [(1, "one")])

    for node in (a, b):
        node.end(signal.SIGTERM)
    a.start()
    wait_for(lambda: "read-only: 0 of 1 sources are in sync" in a.said())
    assert not is_writable(a)
    why = "read-only: 0 of 1 sources are in sync (quorum)"
    wait_for(lambda: why in tailrace("node", "status", a.file).out)
    with pytest.raises(sqlite3.IntegrityError):
        a.run("DELETE FROM t")
    with pytest.raises(sqlite3.IntegrityError):
        a.run("UPDATE t SET word = ''")
    b.start()
    wait_for(lambda: is_writable(a) and is_writable(b), 60)
    b.run("INSERT INTO t VALUES (2, 'two')")
    wait_for(lambda: a.rows() == [(1, "one"), (2, "two")])


def test_a_store_is_released(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    a, b = pair(stack, tmp_path)
    wait_for(lambda: is_writable(b), 60)
    a.end(signal.SIGKILL)
    b.end(signal.SIGKILL)
    b.start()
    wait_for(lambda: not is_writable(b))
    assert tailrace("node", "release", b.file).status == 2, "it runs"
    b.end(signal.SIGKILL)
    assert not is_writable(b)
    assert tailrace("node", "release", b.file).status == 0
    assert is_writable(b)


def test_only_the_leader_is_written_and_another_takes_over(
    stack: ExitStack, tmp_path: Path, tailrace: Tailrace
) -> None:
    a, b = pair(stack, tmp_path, writes="leader", operator=OPERATOR, synchronous="{timeout: 20s}", quorum="0")
    a.follows("b")
    b.follows("a")
    assert not is_writable(a)
    assert "leads since term 1" in tailrace("node", "promote", a.file).out
    wait_for(lambda: is_writable(a))
    assert not is_writable(b)
    changes = tmp_path / "changes.jsonl"
    lines = [
        {"op": "insert", "namespace": "main.t", "data": {"id": 1, "word": "one"}},
        {"op": "insert", "namespace": "main.t", "data": {"id": 2, "word": "two"}},
    ]
    changes.write_text("\n".join(map(json.dumps, lines)))
    committed = tailrace("node", "commit", a.file, changes)
    assert committed.status == 0, committed.err
    wait_for(lambda: a.rows() == b.rows() == [(1, "one"), (2, "two")])

    assert "leads since term 2" in tailrace("node", "promote", b.file).out
    wait_for(lambda: is_writable(b) and not is_writable(a))
    wait_for(lambda: "only the leader is written" in tailrace("node", "status", a.file).out)
    refused = tailrace("node", "commit", a.file, changes)
    assert (refused.status, "leads, since term 2" in refused.err) == (2, True)


MISTAKES = [
    ('{"op": "insert", "namespace": "main.t", "data": {"word": "x"}}', "without id"),
    ('{"op": "insert", "namespace": "main.none", "data": {"id": 1}}', "there is no table main.none"),
    ('{"op": "insert", "namespace": "main.t", "data": {"id": 1, "wrod": "x"}}', "main.t has no column wrod"),
    ('{"op": "insert", "namespace": "main.t", "data": {"id": "one", "word": "x"}}', "key column 'id'"),
    ('{"op": "upsert", "namespace": "main.t", "data": {"id": 1}}', "line 1: op"),
    ('{"op": "insert"', "line 1"),
    ("", "has no changes"),
]


def test_changes_that_make_no_sense(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    (port,) = free_ports(1)
    alone = {"founder": "true", "operator": OPERATOR, "synchronous": "{acks: 0}"}
    a = stack.enter_context(NodeProcess(tmp_path, "a", node_file("a", port, {}, **alone)))
    wait_for((tmp_path / "a" / "status.json").exists, 60)
    assert tailrace("node", "promote", a.file).status == 0
    changes = tmp_path / "changes.jsonl"
    for line, said in MISTAKES:
        changes.write_text(line)
        outcome = tailrace("node", "commit", a.file, changes)
        assert (outcome.status, said in outcome.err) == (2, True), outcome.err
        assert SECRET not in outcome.err
    changes.write_text('{"op": "insert", "namespace": "main.t", "data": {"id": 1}}')
    for option in (("--timeout", "0s"), ("--timeout", "2h"), ("--timeout", "soon"), ("--acks", "20000")):
        outcome = tailrace("node", "commit", a.file, changes, *option)
        assert (outcome.status, "input.invalid" in outcome.err) == (2, True), outcome.err
    assert a.rows() == []
    assert SECRET not in a.said()


def test_who_is_no_operator(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    (port,) = free_ports(1)
    a = stack.enter_context(NodeProcess(tmp_path, "a", node_file("a", port, {}, founder="true", operator=OPERATOR)))
    wait_for((tmp_path / "a" / "status.json").exists, 60)
    other = tmp_path / "other.yml"
    said = a.file.read_text().replace('tokens: {all: "${TOKEN}"}', "tokens: {all: another}")
    other.write_text(said.replace(OPERATOR, '"${TOKEN}"'))  # a peer's token is none of an operator's
    refused = tailrace("node", "promote", other)
    assert (refused.status, "only operators may ask this" in refused.err) == (2, True)


def test_only_the_node_itself_hears_the_operator(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    """The certificate is for the name under which others reach the node, and the operator calls it on this machine."""
    if why := certificates.missing():
        pytest.skip(why)
    (port,) = free_ports(1)
    own, another = (stack.enter_context(certificates.certificate("192.0.2.7")) for _ in range(2))
    more = {"founder": "true", "operator": OPERATOR, "synchronous": "{acks: 0}"}
    tls = f"{{certificate: {own.path}, key: {own.key}, clients: {own.path}}}"
    a = stack.enter_context(NodeProcess(tmp_path, "a", node_file("a", port, {}, **more, tls=tls)))
    wait_for((tmp_path / "a" / "status.json").exists, 60)
    assert "leads since term 1" in tailrace("node", "promote", a.file).out
    other = tmp_path / "other.yml"
    tls = f"{{certificate: {another.path}, key: {another.key}}}"
    other.write_text(node_file("a", port, {}, **more, tls=tls))
    refused = tailrace("node", "promote", other)
    assert (refused.status, "the certificate does not fit" in refused.err) == (3, True), refused.err
    assert "with the certificate that its file names now" in refused.err
    other.write_text(other.read_text().replace(str(another.key), str(own.key)))
    assert "cannot be used with its key" in tailrace("node", "promote", other).err
