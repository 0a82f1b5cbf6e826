"""`tailrace conflict`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.adaptor.sqlite.conflicts import note
from tailrace.node.conflict import Conflict, Keep, Policy
from tests.cli.conftest import Tailrace


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a node that left out what another one wrote."""
    monkeypatch.chdir(tmp_path)
    Path("node.yml").write_text("node: n\ndata: ./n\nfounder: true\nstore: {sqlite: {path: n.db}}\n")
    ours, theirs = '{"id": 1, "word": "ours"}', '{"id": 1, "word": "theirs"}'
    with closing(sqlite3.connect("n.db")) as connection, connection:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, word TEXT)")
        connection.execute("INSERT INTO t VALUES (1, 'ours')")
        for lsn, keep in enumerate((Keep.OURS, None), 1):
            said = Conflict("main.t", '{"id": 1}', None, "77", lsn, 0, Policy.SKIP, ours, theirs, keep)
            note(connection, [said])
    return "node.yml"


def word() -> str:
    with closing(sqlite3.connect("n.db")) as connection:
        (found,) = connection.execute("SELECT word FROM t").fetchone()
    return str(found)


def test_conflicts_that_are_open_are_listed(tailrace: Tailrace, node: str) -> None:
    said = tailrace("conflict", "list", node).out
    assert said.splitlines() == [
        '2  main.t {"id": 1}  policy skip, open',
        '    ours    {"id": 1, "word": "ours"}',
        '    theirs  {"id": 1, "word": "theirs"}  (message 2 of node 77)',
    ]
    assert len(json.loads(tailrace("conflict", "list", node, "--all", "--json").out)["conflicts"]) == 2


def test_one_is_decided(tailrace: Tailrace, node: str) -> None:
    assert "theirs stays" in tailrace("conflict", "resolve", node, "2", "--keep", "theirs").out
    assert word() == "theirs"
    assert tailrace("conflict", "list", node).out == "no conflicts to decide about\n"


def test_one_that_is_decided(tailrace: Tailrace, node: str) -> None:
    found = tailrace("conflict", "resolve", node, 1, "--keep", "theirs")
    assert (found.status, "conflict 1 is decided: ours stayed" in found.err) == (2, True)
    assert word() == "ours"
    assert tailrace("conflict", "resolve", node, 1, "--keep", "theirs", "--again").status == 0
    assert word() == "theirs"


@pytest.mark.parametrize(
    "command", [("conflict", "list"), ("conflict", "resolve", "1", "--keep", "ours"), ("node", "release")]
)
def test_a_store_that_is_not_there_is_not_made(tailrace: Tailrace, node: str, command: tuple[str, ...]) -> None:
    Path("n.db").unlink()
    found = tailrace(*command[:2], node, *command[2:])
    assert (found.status, "n.db does not exist" in found.err) == (3, True)
    assert found.out == ""
    assert not Path("n.db").exists()


def test_one_that_is_not_there(tailrace: Tailrace, node: str) -> None:
    found = tailrace("conflict", "resolve", node, 9, "--keep", "ours")
    assert (found.status, "there is no conflict 9" in found.err) == (2, True)
    assert word() == "ours"
