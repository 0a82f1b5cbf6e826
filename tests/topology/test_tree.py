"""A tree of real processes: a node, replicas of its log, replicas of these."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from tailrace.log.view import LogView
from tests.cli.conftest import Tailrace, tailrace
from tests.node.test_serve import SECRET, NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for
from tests.topology.logs import segments

__all__ = ["tailrace"]  # a fixture


class ReplicaProcess:
    """`tailrace replica` at a port. `start` and `end` as often as one likes."""

    def __init__(self, directory: Path, name: str, port: int, sources: Sequence[int], *options: str) -> None:
        self.data = directory / name
        self.log = self.data / "log"
        self.port = port
        addresses = ",".join(f"127.0.0.1:{source}" for source in sources)
        listen = f"127.0.0.1:{port}"
        given = ["--from", addresses, "--data", str(self.data), "--listen", listen, *options]
        self._command = [sys.executable, "-m", "tailrace", "replica", *given]
        self._said = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)

    def start(self) -> None:
        with self._said.open("ab") as said:
            environment = {**os.environ, "TAILRACE_TOKEN": SECRET}
            self._process = subprocess.Popen(self._command, stdout=said, stderr=said, env=environment)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        status = self._process.wait(timeout=60)
        self._process = None
        return status

    def said(self) -> str:
        return self._said.read_text()

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.data / "status.json").read_text())
        except FileNotFoundError:
            return {}
        return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def root_of(stack: ExitStack, directory: Path, port: int, **more: str) -> NodeProcess:
    file = node_file("root", port, {}, founder="true", segment_bytes="20kB", **more)
    root = stack.enter_context(NodeProcess(directory, "root", file))
    wait_for((directory / "root" / "status.json").exists, 60)
    return root


def write(root: NodeProcess, first: int, count: int) -> None:
    root.run(*(f"INSERT INTO t VALUES ({number}, '{'word' * 20}')" for number in range(first, first + count)))


class Writing(threading.Thread):
    """Writes until it is told to end; `count` rows by then."""

    def __init__(self, root: NodeProcess) -> None:
        super().__init__()
        self._root = root
        self._is_over = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._is_over.is_set():
            write(self._root, self.count + 1, 5)
            self.count += 5

    def end(self) -> int:
        self._is_over.set()
        self.join()
        return self.count


def captured(directory: Path) -> int:
    """How many messages of the table are in the root's log."""
    view = LogView(str(directory / "root" / "log"))
    return sum(head.messages for head in view.heads(view.bases()[0]) if head.namespace == "main.t")


def is_equal(directory: Path, replica: ReplicaProcess) -> bool:
    root = directory / "root" / "log"
    try:
        return segments(replica.log) == segments(root) and replica.status()["behind_bytes"] == 0
    except (FileNotFoundError, KeyError):
        return False


def test_tiers(stack: ExitStack, tmp_path: Path, tailrace: Tailrace) -> None:
    ports = free_ports(3)
    root = root_of(stack, tmp_path, ports[0])
    write(root, 1, 200)
    first = stack.enter_context(ReplicaProcess(tmp_path, "first", ports[1], [ports[0]]))
    wait_for(lambda: is_equal(tmp_path, first), 60)
    second = stack.enter_context(ReplicaProcess(tmp_path, "second", ports[2], [ports[1]]))
    write(root, 201, 100)
    wait_for(lambda: captured(tmp_path) == 300, 60)
    wait_for(lambda: is_equal(tmp_path, first) and is_equal(tmp_path, second), 60)
    told = tailrace("replica", "status", first.data)
    assert told.status == 0
    assert re.search(r"replica +│ first +│ good +│ follow", told.out), told.out
    assert "copied by second" in told.out
    assert SECRET not in first.said() + second.said() + told.out
    refused = tailrace("replica", "promote", first.data)
    assert (refused.status, "log.locked" in refused.err) == (1, True), refused.err
    assert second.end() == 0
    promoted = tailrace("replica", "promote", second.data)
    assert "generation 1" in promoted.out
    assert first.end() == 0


def test_children_of_a_dead_replica_go_on_elsewhere(stack: ExitStack, tmp_path: Path) -> None:
    """From their own position, without copying a byte twice."""
    ports = free_ports(3)
    root = root_of(stack, tmp_path, ports[0])
    write(root, 1, 100)
    middle = stack.enter_context(ReplicaProcess(tmp_path, "middle", ports[1], [ports[0]]))
    wait_for(lambda: is_equal(tmp_path, middle), 60)
    leaf = stack.enter_context(ReplicaProcess(tmp_path, "leaf", ports[2], [ports[1], ports[0]]))
    wait_for(lambda: is_equal(tmp_path, leaf), 60)
    assert leaf.status()["source"] == "source0"
    middle.end(signal.SIGKILL)
    write(root, 101, 100)
    wait_for(lambda: captured(tmp_path) == 200, 60)
    wait_for(lambda: is_equal(tmp_path, leaf) and leaf.status()["source"] == "source1", 60)
    size = sum(map(len, segments(leaf.log).values()))
    wait_for(lambda: leaf.status()["copied_bytes"] >= size, 30)
    assert leaf.status()["copied_bytes"] == size


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--from and --data are needed"),
        (["--from", "http://127.0.0.1/x", "--data", "x"], "address"),
        (["--from", "127.0.0.1:1", "--data", "x", "--listen", "0.0.0.0:7000"], "tls"),
    ],
)
def test_mistakes(
    tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], said: str
) -> None:
    monkeypatch.setenv("TAILRACE_TOKEN", SECRET)
    monkeypatch.chdir(tmp_path)
    refused = tailrace("replica", *options)
    assert (refused.status, said in refused.err) == (2, True), refused.err
    assert SECRET not in refused.err


def test_what_is_no_copy_cannot_be_promoted(tailrace: Tailrace, tmp_path: Path) -> None:
    refused = tailrace("replica", "promote", tmp_path / "nowhere")
    assert (refused.status, "there is no copy" in refused.err) == (2, True), refused.err
