"""Nodes that are set back to an older copy of their database get again what they lack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.counts import Counts
from tailrace.sync.entity import Changes, Entity, Sql
from tailrace.sync.round import Progress
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.places import Place

TABLES = ("todo", "todoStamp", "todoReplicate", "ChangeLog", "DoorSelf", "DoorNode", "DoorQuarantine")


def copied(place: Place) -> dict[str, list[tuple[Any, ...]]]:
    """All that is in a database."""
    return {table: place.ask(f"SELECT * FROM {table}") for table in TABLES}


def set_back(place: Place, copy: dict[str, list[tuple[Any, ...]]]) -> None:
    """The copy stands where the database was; no trigger sees it."""
    quiet = "SET session_replication_role = replica" if place.is_postgres else "DELETE FROM DoorReceiving"
    triggers = []
    if not place.is_postgres:
        triggers = place.ask("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'todo'")
    place.run(quiet, *(f'DROP TRIGGER "{name}"' for name, _ in triggers))
    for table, rows in copy.items():
        place.run(f"DELETE FROM {table}")
        for row in rows:
            own = "OVERRIDING SYSTEM VALUE" if place.is_postgres else ""
            place.ask(f"INSERT INTO {table} {own} VALUES ({', '.join('?' * len(row))})", row)
    place.run(*(sql for _, sql in triggers))
    if place.is_postgres:
        place.run("SET session_replication_role = origin")


class Pair:
    """A laptop that calls a central node over HTTP."""

    def __init__(self, laptop: Place, central: Place, opened: ExitStack, entity: Callable[[], Entity]) -> None:
        for place in (laptop, central):
            place.run(todo.CREATE)
        self.laptop, self.central = laptop, central
        self.told: list[str] = []
        self.caller, self.called = laptop.install(todo.todo()), central.install(entity())
        self._node = SyncNode.over(self.caller, warn=self.told.append)
        server = SyncServer(self.called, options=ServerOptions(Accept.ANYONE))
        self.url = opened.enter_context(server).url

    def sync(self) -> Progress:
        return self._node.sync_with(self.url, name="central")


Pairs = Callable[..., Pair]


@pytest.fixture
def pairs(places: Places, dialect: str) -> Iterator[Pairs]:
    with ExitStack() as opened:
        yield lambda entity=todo.todo: Pair(places(dialect), places(dialect), opened, entity)


@pytest.fixture
def pair(pairs: Pairs) -> Pair:
    return pairs()


def test_a_caller_that_was_set_back_gets_again_what_it_lacks(pair: Pair) -> None:
    for key in range(1, 21):
        todo.put(pair.central, key, "old")
    pair.sync()
    backup = copied(pair.laptop)
    todo.put(pair.central, 1, "new at central")
    todo.put(pair.laptop, 2, "new at the laptop")
    todo.put(pair.laptop, 30, "made at the laptop")
    todo.remove(pair.central, 3)
    todo.remove(pair.laptop, 4)
    pair.sync()
    everything = todo.whats(pair.central)
    set_back(pair.laptop, backup)
    todo.put(pair.laptop, 31, "made since")
    done = pair.sync()
    assert todo.whats(pair.laptop) == todo.whats(pair.central) == {**everything, 31: "made since"}
    assert done.fetched == 5, "only what was missing has travelled"
    assert pair.told == ["this database was set back to an older copy; what it lacks comes again from central"]
    assert pair.sync() == Progress()
    assert pair.called.nodes_with_pending() == pair.caller.nodes_with_pending() == {}
    assert len(pair.told) == 1


def test_a_node_that_is_called_and_was_set_back_gets_again_what_it_lacks(pair: Pair) -> None:
    for key in range(1, 21):
        todo.put(pair.laptop, key, "old")
    pair.sync()
    backup = copied(pair.central)
    todo.put(pair.laptop, 1, "new at the laptop")
    todo.remove(pair.laptop, 3)
    pair.sync()
    everything = todo.whats(pair.laptop)
    set_back(pair.central, backup)
    done = pair.sync()
    assert todo.whats(pair.laptop) == todo.whats(pair.central) == everything
    assert done.sent == 2, "only what was missing has travelled"
    assert pair.told == ["central was set back to an older copy of its database; all is compared with it again"]
    assert pair.sync() == Progress()
    assert pair.called.nodes_with_pending() == pair.caller.nodes_with_pending() == {}


def test_a_node_that_exchanges_with_others_after_it_was_set_back_is_noticed(places: Places, dialect: str) -> None:
    """What is counted with one node says nothing about another."""
    with ExitStack() as opened:
        pair = Pair(places(dialect), places(dialect), opened, todo.todo)
        other = Pair(places("sqlite"), places("sqlite"), opened, todo.todo)
        todo.put(pair.central, 1, "old")
        pair.sync()
        backup = copied(pair.laptop)
        todo.put(pair.central, 1, "new")
        pair.sync()
        set_back(pair.laptop, backup)
        node = SyncNode.over(pair.caller)
        for count in range(5):
            todo.put(other.central, 100 + count, "x")
            node.sync_with(other.url, name="other")
        pair.sync()
        assert todo.whats(pair.laptop)[1] == todo.whats(pair.central)[1] == "new"


def test_edits_that_a_node_makes_after_it_was_set_back_do_not_silently_beat_what_it_had(pair: Pair) -> None:
    todo.put(pair.central, 1, "old")
    pair.sync()
    backup = copied(pair.laptop)
    todo.put(pair.central, 1, "new at central")
    pair.sync()
    set_back(pair.laptop, backup)
    todo.put(pair.laptop, 1, "made on top of the old one")
    pair.sync()
    assert todo.whats(pair.laptop) == todo.whats(pair.central) == {1: "made on top of the old one"}
    kept = [*pair.called.quarantined(), *pair.caller.quarantined()]
    assert ("lost", "new at central") in [(each.why, (each.row or {})["what"]) for each in kept]


def test_nobody_is_thought_to_be_set_back_whose_rounds_were_idle_or_cut(pair: Pair) -> None:
    for count in range(3):
        todo.put(pair.central, 1, f"{count} at central")
        pair.sync()
        todo.put(pair.laptop, 2, f"{count} at the laptop")
        pair.sync()
        before = pair.caller.counts(pair.called.node_id), pair.called.counts(pair.caller.node_id)
        pair.sync()
        assert before == (pair.caller.counts(pair.called.node_id), pair.called.counts(pair.caller.node_id))
    (own, heard), (own_there, heard_there) = before
    assert 0 < heard <= own_there and 0 < heard_there <= own
    assert pair.told == []


def only_first(_link: Any, changed: Changes) -> list[tuple[Any, int]]:
    return [(key, node) for key in changed.upserted if key == (1,) for node in NODES]


NODES: list[int] = []


@pytest.mark.parametrize(
    "entity",
    [
        lambda: todo.todo(audience=Sql("todo.what <> 'secret'")),
        lambda: todo.todo(on_change=only_first, on_new_node=lambda _link, _node: [(1,)]),
    ],
    ids=["audience", "hook"],
)
def test_who_says_that_it_was_set_back_gets_no_more_than_before(pairs: Pairs, entity: Callable[[], Entity]) -> None:
    pair = pairs(entity)
    NODES[:] = [pair.caller.node_id]
    todo.put(pair.central, 1, "for all")
    todo.put(pair.central, 2, "secret")
    todo.put(pair.laptop, 2, "guessed", changed=5)
    pair.sync()
    assert pair.called.counts(pair.caller.node_id).heard > 0
    pair.caller.resync()
    pair.sync()
    pair.sync()
    assert todo.whats(pair.laptop) == {1: "for all", 2: "guessed"}


def test_resync_brings_back_what_was_lost_past_the_triggers(pair: Pair) -> None:
    for key in (1, 2, 3):
        todo.put(pair.central, key, "x")
    pair.sync()
    backup = copied(pair.laptop)
    backup["todo"] = backup["todo"][1:]
    backup["todoStamp"] = backup["todoStamp"][1:]
    set_back(pair.laptop, backup)
    pair.sync()
    assert len(todo.whats(pair.laptop)) == 2, "nobody can see it"
    assert pair.caller.resync() == [pair.called.node_id]
    assert pair.caller.counts(pair.called.node_id) == Counts()
    assert pair.sync().fetched == 1
    assert todo.whats(pair.laptop) == todo.whats(pair.central)


def test_resync_with_one_node_leaves_the_others_alone(pair: Pair) -> None:
    store: SyncStore = pair.caller
    pair.sync()
    todo.put(pair.central, 1, "x")
    pair.sync()
    assert store.resync(4711) == []
    assert store.counts(pair.called.node_id) != Counts()
