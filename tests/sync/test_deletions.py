"""Deletions of rows to which others refer: they take nothing with them that was moved away before."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.entity import Entity
from tailrace.sync.exchange import Key, Part, RowBatch
from tailrace.sync.round import sync_round
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tests.sync.conftest import Places
from tests.sync.direct import DirectPeer, meet, sync
from tests.sync.lists import LIST, PAIRS, TASK, by_caller, lists, settle, tasks, tree, trees
from tests.sync.places import Place
from tests.sync.served import Served, serve, served

__all__ = ["serve", "served"]  # fixtures

MOVES: Final = {
    "moved, cascade": ("ON DELETE CASCADE", ["UPDATE task SET list = 2", "DELETE FROM list WHERE id = 1"], 2),
    "moved, set null": ("ON DELETE SET NULL", ["UPDATE task SET list = 2", "DELETE FROM list WHERE id = 1"], 2),
    "another key": ("ON DELETE CASCADE ON UPDATE CASCADE", ["UPDATE list SET id = 5 WHERE id = 1"], 5),
}


@pytest.mark.parametrize("calls", ["sender", "receiver"])
@pytest.mark.parametrize("kinds", PAIRS)
@pytest.mark.parametrize("move", MOVES)
def test_rows_that_were_moved_away_stay(places: Places, kinds: tuple[str, str], move: str, calls: str) -> None:
    action, changes, at = MOVES[move]
    place, other = map(places, kinds)
    one, two = lists(place, action), lists(other, action)
    pair = by_caller(calls, one, two)
    place.run("INSERT INTO list(id) VALUES (1), (2)", "INSERT INTO task(id, list, what) VALUES (1, 1, 'precious')")
    settle(*pair)
    place.run(*changes)
    settle(*pair)
    assert tasks(place) == tasks(other) == [(1, at, "precious")]
    assert place.ask("SELECT id FROM list WHERE id = 1") == other.ask("SELECT id FROM list WHERE id = 1") == []
    assert one.quarantined() == two.quarantined() == []


@pytest.mark.parametrize("batches", [(1, 2), (2, 1)])
@pytest.mark.parametrize("calls", ["sender", "receiver"])
def test_deletions_wait_for_rows_of_a_higher_batch(
    place: Place, other: Place, calls: str, batches: tuple[int, int]
) -> None:
    one, two = (lists(each, batches=batches) for each in (place, other))
    pair = by_caller(calls, one, two)
    place.run("INSERT INTO list(id) VALUES (1), (2)")
    place.run("INSERT INTO task(id, list, what) VALUES (1, 1, 'a'), (2, 1, 'b')")
    settle(*pair)
    place.run("UPDATE task SET list = 2 WHERE id = 1", "DELETE FROM list WHERE id = 1")
    settle(*pair)
    assert tasks(place) == tasks(other) == [(1, 2, "a")]
    assert one.quarantined() == two.quarantined() == []


@pytest.mark.parametrize("calls", ["sender", "receiver"])
@pytest.mark.parametrize("kinds", PAIRS)
def test_rows_that_were_moved_within_their_table_stay(places: Places, kinds: tuple[str, str], calls: str) -> None:
    place, other = map(places, kinds)
    one, two = tree(place), tree(other)
    pair = by_caller(calls, one, two)
    place.run("INSERT INTO tree(id) VALUES (10)", "INSERT INTO tree(id, parent) VALUES (11, 10)")
    settle(*pair)
    place.run("INSERT INTO tree(id) VALUES (20)", "UPDATE tree SET parent = 20 WHERE id = 11")
    place.run("DELETE FROM tree WHERE id = 10")
    settle(*pair)
    assert trees(place) == trees(other) == [(11, 20), (20, None)]
    assert one.quarantined() == two.quarantined() == []


@pytest.mark.parametrize("calls", ["sender", "receiver"])
def test_rows_that_are_moved_while_deletions_are_on_their_way_stay(place: Place, other: Place, calls: str) -> None:
    one, two = lists(place), lists(other)
    place.run("INSERT INTO list(id) VALUES (1), (2)", "INSERT INTO task(id, list, what) VALUES (1, 1, 'precious')")
    settle(one, two)
    place.run("DELETE FROM list WHERE id = 2")
    changes = [
        "INSERT INTO list(id) VALUES (3)",
        "UPDATE task SET list = 3",
        "DELETE FROM list WHERE id = 1",
    ]
    ask = one.pending_rows

    def asked(table_id: int, node: int, after: Key | None, limit: int, part: Part = Part.ALL) -> RowBatch:
        if part is Part.DELETIONS and changes:
            place.run(*changes)
            changes.clear()
            one.process_changes()
        return ask(table_id, node, after, limit, part)

    one.pending_rows = asked  # type: ignore[method-assign]
    sync(*by_caller(calls, one, two))
    assert not changes
    assert tasks(other) == [(1, 3, "precious")]
    assert other.ask("SELECT id FROM list") == [(3,)]
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


@pytest.mark.parametrize("calls", ["sender", "receiver"])
def test_nobody_makes_changes_of_deletions_that_came(place: Place, other: Place, calls: str) -> None:
    one, two = lists(place), lists(other)
    pair = by_caller(calls, one, two)
    place.run("INSERT INTO list(id) VALUES (1)", "INSERT INTO task(id, list) VALUES (1, 1), (2, 1), (3, 1)")
    settle(*pair)
    place.run("DELETE FROM list")
    done = sync(*pair)
    assert (done.sent, done.fetched) == ((4, 0) if calls == "sender" else (0, 4))
    again = sync(*pair)
    assert (again.sent, again.fetched) == (0, 0)
    assert tasks(other) == []
    assert one.quarantined() == two.quarantined() == []


def test_a_node_that_does_not_know_parts_is_asked_for_everything(place: Place, other: Place) -> None:
    one, two = lists(place), lists(other)
    place.run("INSERT INTO list(id) VALUES (1), (2)", "INSERT INTO task(id, list) VALUES (1, 1)")
    settle(two, one)
    place.run("DELETE FROM list WHERE id = 2", "INSERT INTO list(id) VALUES (3)")
    asked: list[Part] = []

    class Older(DirectPeer):
        def pending_tables(self) -> Any:
            return super().pending_tables()._replace(gone=None)

        def pending_rows(self, table_id: int, after: Key | None, limit: int, part: Part = Part.ALL) -> RowBatch:
            asked.append(part)
            return super().pending_rows(table_id, after, limit, part)

    meet(two, one)
    sync_round(two, Older(two, one))
    assert {*asked} == {Part.ALL}
    assert other.ask("SELECT id FROM list ORDER BY id") == [(1,), (3,)]


def test_deletions_wait_while_nobody_knows_who_gets_what_refers_to_them(place: Place, other: Place) -> None:
    """The hook of the tasks fails, so that they are moved here and nobody is told."""
    fails = True

    def hook(connection: Any, changes: Any) -> list[tuple[Key, int]]:
        if fails:
            raise ValueError("not today")
        return [(key, two.node_id) for key in changes.upserted]

    for each in (place, other):
        each.run(LIST, TASK.format("ON DELETE CASCADE"))
    two = other.install(Entity("list", 1, "changed"), Entity("task", 2, "changed"))
    one = place.install(
        Entity("list", 1, "changed"), Entity("task", 2, "changed", on_change=hook, on_new_node=lambda *_: [(1,)])
    )
    place.run("INSERT INTO list(id) VALUES (1), (2)", "INSERT INTO task(id, list, what) VALUES (1, 1, 'precious')")
    fails = False
    sync(one, two)
    fails = True
    place.run("UPDATE task SET list = 2", "DELETE FROM list WHERE id = 1")
    sync(one, two)
    assert tasks(other) == [(1, 1, "precious")]
    fails = False
    one.failing.done({1, 2})
    sync(one, two)
    assert tasks(other) == [(1, 2, "precious")]
    assert other.ask("SELECT id FROM list") == [(2,)]


@pytest.mark.parametrize("kinds", PAIRS)
def test_they_are_asked_for_over_the_network(places: Places, kinds: tuple[str, str]) -> None:
    place, other = map(places, kinds)
    one, two = lists(place), lists(other)
    place.run("INSERT INTO list(id) VALUES (1), (2)", "INSERT INTO task(id, list, what) VALUES (1, 1, 'precious')")
    with SyncServer(one, options=ServerOptions(Accept.ANYONE)) as server:
        node = SyncNode.over(two)
        node.sync_with(server.url, name="one")
        place.run("UPDATE task SET list = 2", "DELETE FROM list WHERE id = 1")
        node.sync_with(server.url, name="one")
    assert tasks(other) == tasks(place) == [(1, 2, "precious")]
    assert other.ask("SELECT id FROM list") == [(2,)]


def test_a_server_tells_rows_and_deletions_apart(served: Served) -> None:
    client = served.client()
    served.run("INSERT INTO todo(id, what) VALUES (1, 'gone'), (2, 'here')")
    assert client.get("pending").json()["tables"] == [42]
    served.run("DELETE FROM todo WHERE id = 1")
    assert client.get("pending").json()["deletions"] == []

    def keys(part: str) -> list[int]:
        rows = client.get("pendingReplication", params={"tableId": 42, **({"only": part} if part else {})}).json()
        return [row["id"] for row in rows]

    assert (keys(""), keys("rows"), keys("deletions")) == ([1, 2], [2], [1])
    served.run("DELETE FROM todo")
    assert client.get("pending").json()["deletions"] == [42]
    answer = client.get("pendingReplication", params={"tableId": 42, "only": "others"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "sync.malformed")
