"""Sites as their users run them: nodes in processes of their own, with an application and the command line."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tailrace.queues import RoutingQueue, SnapshotContext
from tailrace.queues.entries import Kind
from tailrace.queues.site import LOG
from tests.cli.conftest import Tailrace, tailrace
from tests.node.test_serve import SECRET, NodeProcess, free_ports
from tests.queues.sites import received_in
from tests.relay.nodes import wait_for
from tests.servers import certificate as certificates
from tests.servers.certificate import certificate

__all__ = ["tailrace"]  # a fixture


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def source_file(name: str, port: int, sink_port: int, tls: str = "") -> str:
    """A site whose clients leave messages in `shop.db`."""
    where = f'{{address: "127.0.0.1:{sink_port}", token: "${{TOKEN}}"{tls}}}'
    clients = "{inventory: {outbox: {sqlite: shop.db}}, rules: {outbox: {sqlite: shop.db}, snapshots: false}}"
    lines = [f"node: {name}", f"data: ./{name}", f"listen: 127.0.0.1:{port}", "founder: true"]
    return "\n".join([*lines, f"queues: {{clients: {clients}, destinations: {{office: {where}}}}}"])


def sink_file(port: int, tls: str = "") -> str:
    lines = ["node: office", "data: ./office", f"listen: 127.0.0.1:{port}", "founder: true"]
    return "\n".join([*lines, 'tokens: {plant: "${TOKEN}"}', "queues: {}", tls])


def come(directory: Path, client: str = "inventory") -> list[str]:
    log = directory / "office" / LOG
    found = received_in(str(log), "plant", client) if (log / "head").exists() else []
    return ["END" if each.kind is Kind.SNAPSHOT_END else each.payload.decode() for each in found]


def send(directory: Path, text: str, client: str = "inventory") -> None:
    with closing(sqlite3.connect(directory / "shop.db", timeout=30)) as application, application:
        RoutingQueue(client).transmit(application, text.encode(), ["office"])


def can_send(directory: Path) -> bool:
    with closing(sqlite3.connect(directory / "shop.db", timeout=30)) as reading:
        try:
            found = reading.execute("SELECT count(*) FROM LRQ_Destinations").fetchone()
        except sqlite3.OperationalError:
            return False
    return bool(found == (2,))


@pytest.mark.long
def test_encrypted_with_certificates_on_both_sides(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    """Who trusts another certificate, or shows none, sends nothing, and is told; what was sent comes when that is
    mended."""
    if why := certificates.missing():
        pytest.skip(why)
    port, sink_port = free_ports(2)
    own, sender, another = (stack.enter_context(certificate()) for _ in range(3))
    office = sink_file(sink_port, f"tls: {{certificate: {own.path}, key: {own.key}, clients: {sender.path}}}")
    stack.enter_context(NodeProcess(tmp_path, "office", office))
    shows = f", certificate: {sender.path}, key: {sender.key}"
    plant = NodeProcess(tmp_path, "plant", source_file("plant", port, sink_port, f", ca: {another.path}{shows}"))
    with plant:
        wait_for(lambda: can_send(tmp_path), 60)
        send(tmp_path, "a rule", "rules")
        for tls in (f", ca: {own.path}", f", ca: {own.path}{shows}"):
            wait_for(lambda: "failures in a row" in tailrace("queue", "status", tmp_path / "plant").out, 60)
            plant.end(NodeProcess.TERM)
            assert come(tmp_path, "rules") == []
            (tmp_path / "plant" / "status.json").unlink()
            plant.file.write_text(source_file("plant", port, sink_port, tls))
            plant.start()
            wait_for(lambda: bool(plant.status()), 60)
        wait_for(lambda: come(tmp_path, "rules") == ["a rule"], 60)
    assert SECRET not in tailrace("queue", "status", tmp_path / "plant").out


def test_what_the_command_line_says(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    port, sink_port = free_ports(2)
    stack.enter_context(NodeProcess(tmp_path, "office", sink_file(sink_port)))
    stack.enter_context(NodeProcess(tmp_path, "plant", source_file("plant", port, sink_port)))
    data = tmp_path / "plant"

    def status() -> str:
        return tailrace("queue", "status", data).out if (data / "status.json").exists() else ""

    def provide(context: SnapshotContext) -> None:
        context.progress(0, 7)
        context.transmit(b"all")

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db", timeout=30)

    wait_for(lambda: can_send(tmp_path), 60)
    wait_for(lambda: bool(re.search(r"inventory for office +│ waiting +│ nobody supplies it now", status())), 60)
    send(tmp_path, "meanwhile")
    wait_for(lambda: "messages behind the snapshot 1" in status(), 60)
    assert re.search(r"inventory → office +│ good +│ snapshot ", status())
    refused = tailrace("queue", "resync", data, "--client", "rules", "--site", "office")
    assert (refused.status, "rules has no snapshots" in refused.err) == (2, True)
    refused = tailrace("queue", "resync", data, "--client", "inventory", "--site", "nowhere")
    assert (refused.status, "inventory to office" in refused.err) == (2, True)
    with RoutingQueue("inventory").provide_snapshots(connect, provide):
        wait_for(lambda: come(tmp_path) == ["all", "END", "meanwhile"], 60)
        wait_for(lambda: "snapshot in place since " in status(), 60)
        assert tailrace("queue", "resync", data, "--client", "inventory", "--site", "office").status == 0
        wait_for(lambda: come(tmp_path) == ["all", "END", "meanwhile", "all", "END"], 60)
    told = tailrace("queue", "status", data, "--json").json
    assert {(part["kind"], part["name"]) for part in told["parts"]} >= {
        ("queue", "inventory → office"),
        ("queue", "rules → office"),
    }


@pytest.mark.long
def test_two_sites_on_one_outbox(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    """The second one is refused, says so, and takes nothing from the first."""
    port, second_port, sink_port = free_ports(3)
    stack.enter_context(NodeProcess(tmp_path, "office", sink_file(sink_port)))
    stack.enter_context(NodeProcess(tmp_path, "plant", source_file("plant", port, sink_port)))
    wait_for(lambda: can_send(tmp_path), 60)
    second = stack.enter_context(NodeProcess(tmp_path, "second", source_file("second", second_port, sink_port)))
    wait_for(lambda: "queue.outbox_taken" in second.said(), 60)
    assert "is that of site plant" in second.said()
    for number in range(20):
        send(tmp_path, str(number), "rules")
    wait_for(lambda: len(come(tmp_path, "rules")) == 20, 60)
    assert come(tmp_path, "rules") == [str(number) for number in range(20)]
    assert "queue.outbox_taken" in tailrace("queue", "status", tmp_path / "second").out
