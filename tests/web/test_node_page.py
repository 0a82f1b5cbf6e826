"""The pages of nodes and replicas that are really served."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.errors import TailraceError
from tailrace.topology.load import load_any
from tests.node.test_serve import ENVIRONMENT, NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for
from tests.servers import certificate as certificates
from tests.servers.certificate import certificate

TOKEN = "a-token-that-nobody-guesses"
WEB = f'{{listen: "127.0.0.1:0", token: "{TOKEN}"}}'


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def page_of(node: NodeProcess) -> str:
    def url() -> str | None:
        found = re.search(r"the status page is at (https?://\S+);", node.said())
        return None if found is None else found[1]

    wait_for(lambda: url() is not None, 60)
    return url() or ""


def asked(url: str, path: str, **options: Any) -> httpx.Response:
    return httpx.get(url + path, headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False, **options)


def parts(url: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["name"]): each for each in asked(url, "/api/overview").json()["parts"]}


def test_a_node_with_all_it_can_have(stack: ExitStack, tmp_path: Path) -> None:
    """One that is followed, sends to queues and serves a registry; another one that follows; a replica of the first."""
    first, second, third = free_ports(3)
    office = f'{{office: {{address: "127.0.0.1:{second}", token: "${{TOKEN}}"}}}}'
    a = NodeProcess(
        tmp_path,
        "a",
        node_file(
            *("a", first, {}),
            founder="true",
            registry="{path: registry.db}",
            operator='"operator-secret-0123"',
            queues=f"{{clients: {{shop: {{snapshots: false}}}}, destinations: {office}}}",
            web=WEB,
        ),
    )
    stack.enter_context(a)
    url = page_of(a)
    b = stack.enter_context(NodeProcess(tmp_path, "b", node_file("b", second, {"a": first}, web=WEB)))
    b.follows("a")
    copy = NodeProcess(
        tmp_path,
        "copy",
        f"""node: copy
data: ./copy
listen: 127.0.0.1:{third}
tokens: {{all: "${{TOKEN}}"}}
heartbeat: 300ms
web: {WEB}
replicate_from:
  sources: [{{name: a, address: "127.0.0.1:{first}", token: "${{TOKEN}}"}}]
  keepalive: 300ms
  registry: {{address: "127.0.0.1:{first}", token: "${{TOKEN}}", database: shop}}
""",
    )
    stack.enter_context(copy)
    a.run("INSERT INTO t VALUES (1, 'x')")

    wait_for(lambda: any(kind == "peer" and part["state"] == "follows" for (kind, _), part in parts(url).items()), 60)
    assert ("queue", "shop → office") in parts(url)
    followed = page_of(b)
    wait_for(lambda: parts(followed)["source", "a"]["lag"] == {"messages": 0, "bytes": 0, "seconds": 0.0}, 60)
    copied = page_of(copy)
    wait_for(lambda: parts(copied)["replica", "copy"]["lag"] is not None, 60)
    wait_for(lambda: len(asked(url, "/api/overview").json()["tree"]) == 2, 60)
    root, below = asked(url, "/api/overview").json()["tree"]
    assert (root["tier"], below["tier"], below["below"]) == (0, 1, root["name"])
    shown = asked(url, "/").text
    for title in ("Nodes that follow", "Queues: what is sent", "Topology", "Namespaces"):
        assert f"<h2>{title}</h2>" in shown
    assert below["name"] in shown
    assert 'tailrace_topology_nodes{health="good"} 2.0' in asked(url, "/metrics").text
    wait_for(lambda: asked(url, "/api/log", params={"namespace": "main.t"}).json()["messages"], 60)

    for each in (url, followed, copied):
        assert httpx.get(f"{each}/api/overview", trust_env=False).status_code == 401
        assert httpx.get(f"{each}/healthz", trust_env=False).status_code == 200
    said = "".join(each.said() for each in (a, b, copy))
    assert TOKEN not in said + shown
    assert ENVIRONMENT["TOKEN"] not in said + shown


@pytest.mark.long
def test_a_node_that_syncs(stack: ExitStack, tmp_path: Path) -> None:
    """A central node and a laptop, both with pages: rows go, then the centre is gone."""
    first, second, sync = free_ports(3)
    for name in ("centre", "laptop"):
        with closing(sqlite3.connect(tmp_path / f"{name}-todo.db")) as database:
            database.execute("CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER, what TEXT)")

    def said(name: str, more: str) -> str:
        entities = "entities: [{table: todo, table_id: 42, version: changed}]"
        return f"{{database: {{sqlite: {{path: {name}-todo.db}}}}, {more}, {entities}}}"

    word = '"a-word-for-newcomers"'
    listens = said("centre", f'listen: "127.0.0.1:{sync}", enrol: {word}')
    calls = said("laptop", f'peers: [{{name: centre, url: "http://127.0.0.1:{sync}", enrol: {word}}}]')
    nodes = [
        NodeProcess(tmp_path, name, node_file(name, port, {}, founder="true", web=WEB, sync=file))
        for name, port, file in (("centre", first, listens), ("laptop", second, calls))
    ]
    for node in nodes:
        installed = [sys.executable, "-m", "tailrace", "sync", "install", str(node.file)]
        subprocess.run(installed, cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True)
        stack.enter_context(node)
    url = page_of(nodes[1])
    with closing(sqlite3.connect(tmp_path / "laptop-todo.db", timeout=30)) as database, database:
        database.execute("INSERT INTO todo(id, what) VALUES (1, 'write it down')")

    def centre() -> dict[str, Any]:
        return parts(url)["sync", "centre"]

    wait_for(lambda: centre()["more"]["rows sent"] == 1, 60)
    wait_for(lambda: centre()["health"] == "good", 60)
    assert centre()["seen_s_ago"] < 60
    shown = asked(url, "/").text
    assert "<h2>Sync</h2>" in shown
    assert "a-word-for-newcomers" not in shown + nodes[0].said() + nodes[1].said()
    nodes[0].end(signal.SIGKILL)
    wait_for(lambda: centre()["health"] == "troubled", 60)
    assert centre()["wrong"]["code"].startswith("sync.")
    assert "What needs you" in asked(url, "/").text


def test_encrypted(stack: ExitStack, tmp_path: Path) -> None:
    if why := certificates.missing():
        pytest.skip(why)
    (port,) = free_ports(1)
    made = stack.enter_context(certificate())
    tls = f"{{certificate: {made.path}, key: {made.key}}}"
    node = NodeProcess(tmp_path, "a", node_file("a", port, {}, founder="true", tls=tls, web=WEB))
    stack.enter_context(node)
    url = page_of(node)
    assert url.startswith("https://")
    trusted = ssl.create_default_context(cafile=str(made.path))
    assert asked(url, "/api/overview", verify=trusted).json()["what"] == "node"
    entered = httpx.post(f"{url}/enter", data={"token": TOKEN}, verify=trusted, trust_env=False)
    assert "Secure" in entered.headers["set-cookie"]
    with pytest.raises(httpx.ConnectError):
        asked(url, "/healthz")  # nobody vouches for it


@pytest.mark.parametrize(
    ("web", "told"),
    [
        ('{listen: "0.0.0.0:8480", token: "' + TOKEN + '"}', "can be reached by others"),
        ('{listen: "127.0.0.1:8480", token: "short"}', "at least"),
        ('{listen: "127.0.0.1:8480"}', "token"),
    ],
)
def test_what_is_not_safe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: str, told: str) -> None:
    monkeypatch.setenv("TOKEN", os.urandom(8).hex())
    file = tmp_path / "a.yml"
    file.write_text(node_file("a", 4700, {}, founder="true", web=web))
    with pytest.raises(TailraceError, match=told):
        load_any(str(file))
