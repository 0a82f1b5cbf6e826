"""What a front remembers: numbers stay what they are, over restarts too."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tailrace.adaptor.tarantool.front.state import CATALOG, MASTER, load_state
from tailrace.adaptor.tarantool.front.template import system_rows
from tailrace.errors import TailraceError
from tailrace.message import Lsn, NodeId
from tailrace.relay.vclock import Vclock

OURS = NodeId(77)


def test_numbers_are_kept(tmp_path: Path) -> None:
    state = load_state(str(tmp_path), OURS)
    replica = state.enter(str(uuid.uuid4()))
    layout = state.layout("main.t", ["id", "word"], ["id"])
    assert state.layout("main.t", ["id"], ["id"]) is layout
    wider = state.layout("main.t", ["id", "more"], ["id"])
    assert (wider.space, wider.fields) == (layout.space, ("id", "word", "more"))
    assert state.layout("main.u", ["id"], ["id"]).space == layout.space + 1
    clock = Vclock({OURS: Lsn(5), NodeId(9): Lsn(3)})
    numbered = state.numbered(clock)
    assert numbered == {MASTER: 5, 3: 3, CATALOG: 5}
    again = load_state(str(tmp_path), OURS)
    assert again.instance == state.instance
    assert (again.layouts, again.catalog, again.ids) == (state.layouts, state.catalog, state.ids)
    assert again.clock({**numbered, 2: 8}, replica) == clock


def test_there_is_room_for_so_many(tmp_path: Path) -> None:
    state = load_state(str(tmp_path), OURS)
    for node in range(100, 129):
        state.id_of(NodeId(node))
    with pytest.raises(TailraceError, match="30 nodes"):
        state.id_of(NodeId(200))


def test_the_template_is_in_the_order_of_spaces() -> None:
    spaces = [space for space, _ in system_rows()]
    assert spaces == sorted(spaces)
    assert {272, 276, 280, 288, 296, 304, 312} == set(spaces)
