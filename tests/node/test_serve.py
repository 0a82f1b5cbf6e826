"""Nodes as their users run them: files, processes, signals, kills."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

import pytest

from tailrace.adaptor.relay.options import RelayReaderOptions
from tailrace.errors import TailraceError
from tests.cli.conftest import Tailrace, tailrace
from tests.relay.nodes import wait_for
from tests.servers import certificate as certificates
from tests.servers.certificate import certificate

__all__ = ["tailrace"]  # a fixture

SECRET = "canary-71c9"
ENVIRONMENT = {**os.environ, "TOKEN": SECRET}


class NodeProcess:
    """One node with a database `NAME.db`. `start` and `end` as often as one likes."""

    TERM = signal.SIGTERM

    def __init__(self, directory: Path, name: str, file: str) -> None:
        self.directory = directory
        self.name = name
        self.path = directory / f"{name}.db"
        self.file = directory / f"{name}.yml"
        self.file.write_text(file)
        self.run("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, word TEXT)")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)

    def start(self) -> None:
        command = [sys.executable, "-m", "tailrace", "serve", str(self.file)]
        with (self.directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.directory, stderr=log, stdout=log, env=ENVIRONMENT)

    def end(self, how: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        """Until it ends by itself."""
        assert self._process is not None
        status = self._process.wait(timeout=60)
        self._process = None
        return status

    def run(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self) -> list[tuple[Any, ...]]:
        return self.asked("SELECT * FROM t ORDER BY id")

    def asked(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            return connection.execute(query).fetchall()

    def said(self) -> str:
        return (self.directory / f"{self.name}.log").read_text()

    def state(self, source: str) -> str:
        """Of a source, as the running node tells it."""
        told = self.status()
        return str(told["sources"][source]["state"]) if told else ""

    def status(self) -> dict[str, Any]:
        """What the running node told last; nothing when it told nothing yet."""
        path = self.directory / self.name / "status.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def follows(self, source: str) -> None:
        wait_for(lambda: self.state(source) == "follow", 60)


def node_file(name: str, port: int, sources: dict[str, int], **more: str) -> str:
    lines = [f"node: {name}", f"data: ./{name}", f"listen: 127.0.0.1:{port}", "heartbeat: 300ms"]
    lines += ['tokens: {all: "${TOKEN}"}', f"store: {{sqlite: {{path: {name}.db}}}}"]
    lines += [f"{key}: {value}" for key, value in more.items()]
    if sources:
        lines += ["sources:"]
    for source, at in sources.items():
        lines += [f'  - {{name: {source}, address: "127.0.0.1:{at}", token: "${{TOKEN}}"}}']
    return "\n".join(lines)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def test_two_nodes_one_is_killed_and_comes_back(
    stack: ExitStack, tmp_path: Path, tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = free_ports(2)
    a = NodeProcess(tmp_path, "a", node_file("a", first, {"b": second}, founder="true"))
    a.run("INSERT INTO t VALUES (1, 'before all')")
    stack.enter_context(a)
    b = stack.enter_context(NodeProcess(tmp_path, "b", node_file("b", second, {"a": first})))
    b.follows("a")
    a.follows("b")
    a.run("INSERT INTO t VALUES (2, 'from a')")
    b.run("INSERT INTO t VALUES (3, 'from b')")
    wait_for(lambda: len(a.rows()) == len(b.rows()) == 3)

    b.end(signal.SIGKILL)
    a.run("INSERT INTO t VALUES (4, 'while b was away')", "DELETE FROM t WHERE id = 2")
    b.run("INSERT INTO t VALUES (5, 'while the node was away')")
    b.start()
    wait_for(lambda: a.rows() == b.rows() and len(a.rows()) == 4, 60)
    assert [word for _, word in a.rows()] == [
        *("before all", "from b", "while b was away", "while the node was away"),
    ]

    monkeypatch.setenv("TOKEN", SECRET)
    b.follows("a")
    shown = tailrace("node", "status", b.file)
    assert shown.status == 0
    assert re.search(r"source +│ a +│ good +│ follow .*│ 0 ", shown.out), shown.out
    assert b.end(signal.SIGTERM) == 0
    assert "has ended" in b.said()
    assert "does not run" in tailrace("node", "status", b.file).out
    assert tailrace("node", "status", b.file, "--json").json["is_running"] is False
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".yml"]
    assert not any(SECRET.encode() in content for content in files)


def test_a_node_without_a_store_passes_everything_on(stack: ExitStack, tmp_path: Path) -> None:
    """A hub: it joins, has the whole log, and others that joined elsewhere follow it."""
    first, middle, last = free_ports(3)
    a = NodeProcess(tmp_path, "a", node_file("a", first, {}, founder="true"))
    stack.enter_context(a)
    wait_for((tmp_path / "a" / "status.json").exists, 60)
    a.run("INSERT INTO t VALUES (1, 'before the hub')")
    file = node_file("hub", middle, {"a": first}).replace("store: {sqlite: {path: hub.db}}\n", "")
    hub = stack.enter_context(NodeProcess(tmp_path, "hub", file))
    hub.follows("a")
    b = stack.enter_context(NodeProcess(tmp_path, "b", node_file("b", last, {"a": first, "hub": middle}, quorum="0")))
    b.follows("a")
    b.follows("hub")
    a.run("INSERT INTO t VALUES (2, 'after')")
    wait_for(lambda: b.rows() == [(1, "before the hub"), (2, "after")])
    b.file.write_text(node_file("b", last, {"hub": middle}, quorum="0"))
    b.end(signal.SIGTERM)
    b.start()
    b.follows("hub")
    a.run("INSERT INTO t VALUES (3, 'through the hub')")
    wait_for(lambda: len(b.rows()) == 3)


@pytest.mark.parametrize("is_mutual", [False, True], ids=["one", "both"])
def test_encrypted(stack: ExitStack, tmp_path: Path, is_mutual: bool) -> None:
    """Also with a certificate of the newcomer's own."""
    if why := certificates.missing():
        pytest.skip(why)
    first, second = free_ports(2)
    server, client = stack.enter_context(certificate()), stack.enter_context(certificate())
    clients = f", clients: {client.path}" if is_mutual else ""
    tls = f"{{certificate: {server.path}, key: {server.key}{clients}}}"
    stack.enter_context(NodeProcess(tmp_path, "a", node_file("a", first, {}, founder="true", tls=tls)))
    shown = f", certificate: {client.path}, key: {client.key}" if is_mutual else ""
    head, _, sources = node_file("b", second, {"a": first}).partition("sources:")
    sources = sources.replace('"${TOKEN}"', f'"${{TOKEN}}", ca: {server.path}{shown}')
    b = stack.enter_context(NodeProcess(tmp_path, "b", f"{head}sources:{sources}"))
    b.follows("a")
    files = {"ca": server.path, **({"certificate": client.path, "key": client.key} if is_mutual else {})}
    asked = {"address": f"127.0.0.1:{first}", "token": SECRET, "consumer": "p"}
    options = RelayReaderOptions.model_validate({**asked, **{name: str(path) for name, path in files.items()}})
    with closing(options.open()) as reader:
        assert [table.namespace for table in reader.tables()] == ["main.t"], "a pipeline reads it, too"
    unknown = {"ca": str(client.path)} if not is_mutual else {"ca": str(server.path)}
    with closing(RelayReaderOptions.model_validate({**asked, **unknown}).open()) as reader:
        with pytest.raises(TailraceError) as caught:
            reader.tables()
        assert caught.value.code == "source.unreachable"
        said = f"{caught.value.what} {caught.value.hint}"
        assert "`ca`" in said
        assert is_mutual or "certificate verify failed" in said, "else the node closes without a word"
    with closing(RelayReaderOptions.model_validate(asked).open()) as reader:
        with pytest.raises(TailraceError, match="Socket closed") as caught:
            reader.tables()
        assert "if it has `tls`" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data: ./a", "dta: ./a"),
        ("heartbeat: 300ms", "heartbeat: 0"),
        ("listen: 127.0.0.1:1", "listen: 0.0.0.0:1"),
        ("listen: 127.0.0.1:1", "listen: 'http://x/y'"),
        ("founder: true", "founder: false"),
        ("{sqlite: {path: a.db}}", "{sqlite: {pth: a.db}}"),
        ("{sqlite: {path: a.db}}", "{lake: {path: a}}"),
        ("{sqlite: {path: a.db}}", "nothing"),
        ('tokens: {all: "${TOKEN}"}', "tokens: {all: ''}"),
        ('tokens: {all: "${TOKEN}"}', "tokens: {all: one, others: one}"),
        ("founder: true", "founder: true\nretention: {keep_bytes: 2MB, cap_bytes: 1MB}"),
        ("founder: true", "founder: true\nretention: {keep_age: 2h, cap_age: 1h}"),
    ],
)
def test_a_file_with_a_mistake(
    tmp_path: Path, tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, change: str, message: str
) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    good = node_file("a", 1, {}, founder="true")
    assert change in good
    file = tmp_path / "a.yml"
    file.write_text(good.replace(change, message))
    outcome = tailrace("serve", file)
    assert outcome.status == 2, outcome.err
    assert "a.yml:" in outcome.err
    assert SECRET not in outcome.err
    assert not (tmp_path / "a").exists()


def test_a_founder_has_a_database_and_a_newcomer_gets_one(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    first, second = free_ports(2)
    a = NodeProcess(tmp_path, "a", node_file("a", first, {}, founder="true"))
    a.path.unlink()
    a.start()
    assert a.wait() == 3
    assert "a.db does not exist" in a.said()
    a.run("CREATE TABLE t(id INTEGER PRIMARY KEY, word TEXT)", "INSERT INTO t VALUES (1, 'one')")
    stack.enter_context(a)
    b = NodeProcess(tmp_path, "b", node_file("b", second, {"a": first}))
    b.path.unlink()
    stack.enter_context(b)
    b.follows("a")
    wait_for(lambda: b.rows() == [(1, "one")])


def test_a_policy_for_no_table_is_told(stack: ExitStack, tmp_path: Path) -> None:
    store = "store: {sqlite: {path: a.db}, conflicts: {main.t: skip, main.tt: stop}}"
    file = node_file("a", free_ports(1)[0], {}, founder="true")
    plain = "store: {sqlite: {path: a.db}}"
    assert plain in file
    a = NodeProcess(tmp_path, "a", file.replace(plain, store))
    stack.enter_context(a)
    wait_for(lambda: "there is no table main.tt yet" in a.said())
    assert "no table main.t yet" not in a.said()


def test_no_file_and_no_node(tmp_path: Path, tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    assert tailrace("serve", tmp_path / "none.yml").status == 2
    file = tmp_path / "a.yml"
    file.write_text(node_file("a", 1, {}, founder="true"))
    outcome = tailrace("node", "status", file)
    assert outcome.status == 2
    assert "no node has ever run" in outcome.err
