"""How often a source dials and asks whom to dial, and what it tells of that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.relay.applier import Source
from tailrace.topology.answers import Tuning
from tailrace.topology.dialling import Dialling
from tailrace.topology.door import Door
from tailrace.topology.knobs import Knobs
from tailrace.topology.site import Site
from tests.relay.nodes import wait_for
from tests.topology.logs import SMALL_SEGMENTS, Copying, Served, append
from tests.topology.test_handshake import SECRET, SOURCE

CONNECT, REFRESH = "revsql_connect_freq_sec", "revsql_host_refresh_freq_sec"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def log(stack: ExitStack, tmp_path: Path) -> CommitLog:
    made = stack.enter_context(CommitLog.open(tmp_path / "root", SMALL_SEGMENTS))
    append(made, 0, 20)
    return made


def test_whom_to_dial_is_asked_as_often_as_is_said_now(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root, asked, knobs = stack.enter_context(Served(tmp_path / "root")), list[int](), Knobs({}, {REFRESH: 3600.0})

    def hosts() -> list[Site]:
        asked.append(1)
        return []

    stack.enter_context(Dialling(SOURCE, SECRET, root.pulling, hosts, knobs, print))
    wait_for(lambda: len(asked) == 1)
    knobs.learn(Tuning("1", {REFRESH: "0.1"}))
    wait_for(lambda: len(asked) >= 4)


def test_a_replica_is_dialled_as_often_as_is_said_now(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    root, said = stack.enter_context(Served(tmp_path / "root")), list[str]()
    knobs = Knobs({"revsql_debug": True}, {CONNECT: 3600.0})
    door = stack.enter_context(Door("127.0.0.1:0", "shop", SECRET, print))
    stack.enter_context(Dialling(SOURCE, SECRET, root.pulling, lambda: [door.site], knobs, said.append))
    line = f"revsql_debug: dials {door.site.host}"
    wait_for(lambda: said.count(line) == 1)
    knobs.learn(Tuning("1", {CONNECT: "0.1"}))
    wait_for(lambda: said.count(line) >= 4)


@pytest.mark.parametrize("switch", ["revsql_debug", "revsql_cdb2_debug"])
def test_more_is_told_at_both_ends_if_that_is_wanted(
    log: CommitLog, stack: ExitStack, tmp_path: Path, switch: str
) -> None:
    root, above, below = stack.enter_context(Served(tmp_path / "root")), list[str](), list[str]()
    knobs = Knobs({switch: True, CONNECT: 0.1})
    door = Door("127.0.0.1:0", "shop", SECRET, print, knobs.tracing("revsql_debug", below.append))
    stack.enter_context(door)
    stack.enter_context(Dialling(SOURCE, SECRET, root.pulling, lambda: [door.site], knobs, above.append))

    def sources() -> list[Source]:
        found = door.dialled(1.0)
        return [] if found is None else [Source(found.source.host, f"grpc://{found.address}", SECRET)]

    copy = stack.enter_context(Copying(tmp_path / "copy", sources))
    copy.reaches(log)
    traced = [line for line in above if line.startswith("revsql_")]
    if switch == "revsql_debug":
        assert f"revsql_debug: {door.site.host} has answered" in traced
        assert f"revsql_debug: {SOURCE.host} has dialled" in below
    else:
        assert "revsql_cdb2_debug: reverse asks: extent {}" in traced
        assert any(line.startswith('revsql_cdb2_debug: asked for: pull {"name":"copy"') for line in traced)
        assert below == []
    assert all(line.startswith(switch) for line in traced)
    assert SECRET not in "".join(above + below)
