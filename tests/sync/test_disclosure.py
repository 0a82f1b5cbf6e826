"""Disclosure: whoever guesses keys and versions of rows that are not for it learns nothing, and gets nothing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tailrace.sync.auth import hashed
from tailrace.sync.entity import Changes, Entity, Sql
from tailrace.sync.exchange import Ack, Receipt, RowBatch, Tracker
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import CALLS_US, SyncStore
from tests.sync import todo
from tests.sync.places import Place
from tests.sync.served import ALICE, SECRETS, door_node

PEER = 4711
COLUMNS = ("id", "changed", "what", "is_done")
TIMES = {1: 1000, 2: 2000, 3: 3000}


def only_beer(link: Any, changed: Changes) -> list[tuple[Any, int]]:
    """The row 1 is for everybody."""
    return [(key, PEER) for key in changed.upserted if key == (1,)]


WAYS: dict[str, dict[str, Any]] = {
    "audience": {"audience": Sql("todo.what = 'beer'")},
    "hook": {"on_change": only_beer, "on_new_node": lambda _link, _node: [(1,)]},
    "by hand": {"by_hand": True},
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(place: Place, way: str) -> SyncStore:
    """Of three rows, a node gets the first one."""
    found = todo.node(place, **WAYS[way])
    found.meet(PEER, CALLS_US)
    for key, time in TIMES.items():
        todo.put(place, key, "beer" if key == 1 else "secret", time)
    if way == "by hand":
        place.ask("INSERT INTO todoReplicate(trkrEntityPrimaryKey, trkrDestinationNode) VALUES (1, ?)", (PEER,))
    found.process_changes()
    return found


def told(store: SyncStore, node: int = PEER) -> list[Any]:
    asked = [Tracker((key,), time) for key, time in TIMES.items()]
    return [each.key[0] for each in store.already_received(todo.TABLE_ID, node, asked).trackers]


def offered(store: SyncStore) -> list[Any]:
    store.process_changes()
    return [each.key[0] for each in store.pending_trackers(todo.TABLE_ID, PEER, None, 10)]


def sent(store: SyncStore, key: int, time: int) -> Receipt:
    batch = RowBatch(COLUMNS, [(key, time, "x", None, time, PEER, False, time)])
    receipt = store.receive(todo.TABLE_ID, PEER, batch)
    store.process_changes()
    return store.as_told(todo.TABLE_ID, PEER, receipt)


def test_who_guesses_versions_hears_only_of_what_it_may_have(store: SyncStore) -> None:
    assert told(store) == [1]


def test_what_a_node_has_it_may_ask_for(store: SyncStore) -> None:
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((1,), TIMES[1]))])
    assert (offered(store), told(store)) == ([], [1])


def test_a_node_that_gets_all_hears_of_all(place: Place) -> None:
    store = todo.node(place)
    for key, time in TIMES.items():
        todo.put(place, key, "x", time)
    assert told(store) == [1, 2, 3]


def test_whoever_sends_a_key_and_confirms_what_it_was_not_sent_gets_nothing(store: SyncStore) -> None:
    assert sent(store, 2, 1).older == []
    assert sent(store, 3, 1).older == []
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((2,), 7)), Ack(Tracker((3,), TIMES[3]))])
    assert offered(store) == [1]
    assert told(store) == [1]


def test_a_sender_hears_that_there_is_a_newer_version_of_what_it_may_have(store: SyncStore) -> None:
    older = sent(store, 1, 1).older
    assert [each.key for each in older] == [(1,)]
    assert offered(store) == [1]


def test_a_deletion_is_known_to_those_who_had_the_row(place: Place, store: SyncStore) -> None:
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((1,), TIMES[1]))])
    todo.remove(place, 1)
    todo.remove(place, 2)
    store.process_changes()
    gone = dict(place.ask("SELECT stEntityPrimaryKey, stTime FROM todoStamp"))
    asked = [Tracker((key,), time) for key, time in gone.items()]
    assert [each.key[0] for each in store.already_received(todo.TABLE_ID, PEER, asked).trackers] == [1]


def test_who_calls_hears_no_more(place: Place) -> None:
    place.run(todo.CREATE)
    store = place.install(Entity("todo", todo.TABLE_ID, "changed", audience=Sql("todo.what = 'beer'")))
    store.register(ALICE, hashed(SECRETS[ALICE]))
    for key, time in TIMES.items():
        todo.put(place, key, "beer" if key == 1 else "secret", time)
    with (
        SyncServer(store, options=ServerOptions()) as server,
        httpx.Client(base_url=f"{server.url}/replication/", headers=door_node(ALICE), timeout=60) as client,
    ):
        asked = [{"primaryKey": key, "versionId": time} for key, time in TIMES.items()]
        found = client.post("checkForEntitiesAlreadyReceived?tableId=42", json=asked).json()
        assert [each["primaryKey"] for each in found] == [1]
        rows = [{"id": key, "changed": 1, "what": "x", "is_done": None} for key in TIMES]
        receipt = client.put("receive?tableId=42", json=rows).json()
        assert [each["primaryKey"] for each in receipt["older"]] == [1]
