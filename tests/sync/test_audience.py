"""Who gets what: only rows of accounts that are active on a device reach it. And what a node does not want."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.entity import Changes, Entity, Receive, RunOnChange, Sql
from tailrace.sync.exchange import Key
from tailrace.sync.failing import Failing
from tailrace.sync.round import Progress
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import SyncStore
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place
from tests.sync.todo import CREATE, node, put, remove, todo, whats

INTO = "INSERT INTO todoReplicate(trkrEntityPrimaryKey, trkrDestinationNode)"
NOTES = "CREATE TABLE note(id bigint PRIMARY KEY, changed bigint, account text, what text)"
SESSIONS = "CREATE TABLE session(id bigint PRIMARY KEY, changed bigint, device bigint, account text, is_active boolean)"
ACTIVE = "EXISTS (SELECT 1 FROM session s WHERE s.device = :nodeId AND s.account = note.account AND s.is_active)"
ON_NOTE = """
REPLACE INTO noteReplicate(trkrEntityPrimaryKey, trkrDestinationNode)
SELECT note.id, session.device
  FROM ChangeLog
       JOIN note ON ChangeLog.chTableId = 2 AND ChangeLog.chEntityPk = note.id
       JOIN session ON session.account = note.account AND session.is_active
/*psql- ON CONFLICT(...) DO UPDATE -*/:
"""
ON_SESSION = """
REPLACE INTO noteReplicate(trkrEntityPrimaryKey, trkrDestinationNode)
SELECT note.id, session.device
  FROM ChangeLog
       JOIN session ON ChangeLog.chTableId = 1 AND ChangeLog.chEntityPk = session.id AND session.is_active
       JOIN note ON note.account = session.account
"""
NEW_NODE = """
REPLACE INTO noteReplicate(trkrEntityPrimaryKey, trkrDestinationNode)
SELECT note.id, :newNodeId FROM note JOIN session ON session.account = note.account
 WHERE session.device = :newNodeId AND session.is_active
"""


@contextmanager
def served(store: SyncStore) -> Iterator[str]:
    with SyncServer(store, options=ServerOptions(Accept.ANYONE)) as server:
        yield server.url


def of_a_device() -> list[Entity]:
    """What is changed there goes to whomever it calls."""
    return [Entity("session", 1, "changed", batch=1), Entity("note", 2, "changed", batch=2)]


def by_audience() -> list[Entity]:
    """A login is a change of the session, after which notes are looked at again."""
    looks_again = RunOnChange(Sql(ON_SESSION), on=("session",))
    looks = RunOnChange(Sql(ON_NOTE))
    return [
        Entity("session", 1, "changed", batch=1, audience=Sql("session.device = :nodeId")),
        Entity("note", 2, "changed", batch=2, audience=Sql(ACTIVE), run_on_change=(looks, looks_again)),
    ]


def by_sql() -> list[Entity]:
    hooks = (RunOnChange(Sql(ON_NOTE)), RunOnChange(Sql(ON_SESSION), on=("session",)))
    return [
        Entity("session", 1, "changed", batch=1, audience=Sql("session.device = :nodeId")),
        Entity("note", 2, "changed", batch=2, run_on_change=hooks, run_on_new_node=Sql(NEW_NODE)),
    ]


def notes(place: Place) -> list[str]:
    return [what for (what,) in place.ask("SELECT what FROM note ORDER BY id")]


@pytest.mark.parametrize("declared", [by_audience, by_sql])
def test_only_rows_of_active_accounts_reach_a_device(places: Places, dialect: str, declared: Any) -> None:
    phone, central = places("sqlite"), places(dialect)
    phone.run(NOTES, SESSIONS)
    central.run(NOTES, SESSIONS)
    device, office = phone.install(*of_a_device()), central.install(*declared())
    for number, account in enumerate(["anna", "anna", "ben"]):
        central.ask("INSERT INTO note(id, account, what) VALUES (?, ?, ?)", (number, account, f"{account} {number}"))
    calling = SyncNode.over(device)
    with served(office) as url:
        assert calling.sync_with(url) == Progress(), "nobody is logged in"
        central.ask(
            "INSERT INTO session(id, device, account, is_active) VALUES (?, ?, ?, ?)", (1, device.node_id, "anna", True)
        )
        calling.sync_with(url)
        assert notes(phone) == ["anna 0", "anna 1"]
        assert phone.ask("SELECT account FROM session") == [("anna",)]
        central.ask("INSERT INTO note(id, account, what) VALUES (?, ?, ?)", (10, "anna", "anna 10"))
        central.ask("INSERT INTO note(id, account, what) VALUES (?, ?, ?)", (11, "ben", "ben 11"))
        phone.run("UPDATE note SET what = 'anna 0 changed' WHERE id = 0")
        calling.sync_with(url)
        assert notes(phone) == ["anna 0 changed", "anna 1", "anna 10"]
        assert "anna 0 changed" in notes(central)
        central.run("UPDATE session SET is_active = false")  # she logs out
        central.ask("INSERT INTO note(id, account, what) VALUES (?, ?, ?)", (12, "anna", "anna 12"))
        central.run("UPDATE note SET what = 'changed' WHERE account = 'anna'")
        calling.sync_with(url)
        calling.sync_with(url)
    assert notes(phone) == ["anna 0 changed", "anna 1", "anna 10"], "something came after the logout"
    assert phone.ask("SELECT is_active FROM session") in ([(0,)], [(False,)])


def test_a_logout_counts_for_what_waits_already(places: Places, dialect: str) -> None:
    """The audience is looked at again when rows are sent."""
    phone, central = places("sqlite"), places(dialect)
    phone.run(NOTES, SESSIONS)
    central.run(NOTES, SESSIONS)
    device, office = phone.install(*of_a_device()), central.install(*by_audience())
    into = "INSERT INTO session(id, device, account, is_active) VALUES (?, ?, ?, ?)"
    central.ask(into, (1, device.node_id, "anna", True))
    office.meet(device.node_id, 2)
    central.run("INSERT INTO note(id, account, what) VALUES (1, 'anna', 'secret')")
    office.process_changes()
    assert office.pending_tables(device.node_id) == [1, 2]
    central.run("UPDATE session SET is_active = false")
    assert office.pending_tables(device.node_id) == [1]
    with served(office) as url:
        SyncNode.over(device).sync_with(url)
    assert notes(phone) == []


def test_a_function_says_who_gets_what(places: Places) -> None:
    phone, central = places("sqlite"), places("sqlite")
    seen: list[Changes] = []

    def on_change(connection: Any, changes: Changes) -> Iterator[tuple[Key, int]]:
        seen.append(changes)
        nodes = [row[0] for row in connection.execute("SELECT nodeId FROM DoorNode")]
        return ((key, each) for key in changes.upserted if key[0] % 2 for each in nodes)

    one = node(phone)
    other = node(central, on_change=on_change, on_new_node=lambda _connection, _node: [])
    with served(other) as url:
        calling = SyncNode.over(one)
        calling.sync_with(url)
        for number in range(4):
            put(central, number, f"{number}")
        calling.sync_with(url)
    assert whats(phone) == {1: "1", 3: "3"}
    assert [key for changes in seen for key in changes.upserted] == [(0,), (1,), (2,), (3,)]


def test_a_function_that_fails_holds_up_its_table_alone(places: Places, dialect: str) -> None:
    phone, central = places("sqlite"), places(dialect)
    mood = ["bad"]
    now_s = [0.0]

    def tell_all(connection: Any, changes: Changes) -> Iterator[tuple[Key, int]]:
        if mood[0] == "bad":
            raise KeyError("a bad moment")
        nodes = [row[0] for row in connection.execute("SELECT nodeId FROM DoorNode").fetchall()]
        return ((key, each) for key in changes.upserted for each in nodes)

    for place in (phone, central):
        place.run(CREATE)
        place.run(NOTES)
    notes_too = Entity("note", 2, "changed")
    one = phone.install(todo(), notes_too)
    other = central.install(todo(on_change=tell_all, on_new_node=lambda _connection, _node: []), notes_too)
    other.failing = Failing(lambda: now_s[0])
    sync(one, other)
    put(central, 1, "waits")
    central.run("INSERT INTO note(id, what) VALUES (7, 'goes on')")
    done = sync(other, one)
    (error,) = other.failing.errors()
    assert error.code == "sync.hook_failed" and "tell_all" in error.what and "a bad moment" in error.what
    assert done.warnings == (error.what,)
    assert notes(phone) == ["goes on"] and whats(phone) == {}
    assert central.ask("SELECT count(*) FROM ChangeLog") == [(1,)]
    mood[0] = "good"
    assert not other.process_changes(), "it is left alone for a while"
    now_s[0] = 3600.0
    assert sync(other, one).warnings == ()
    assert whats(phone) == {1: "waits"} and other.failing.errors() == []


NOBODY: dict[str, dict[str, Any]] = {
    "SQL": {
        "run_on_change": (RunOnChange(Sql(f"{INTO} SELECT todo.id, 1 FROM todo WHERE 1 = 0")),),
        "run_on_new_node": Sql(f"{INTO} SELECT todo.id, :newNodeId FROM todo WHERE 1 = 0"),
    },
    "functions": {"on_change": lambda *_: [], "on_new_node": lambda *_: []},
    "by hand": {"by_hand": True},
    "an audience": {"audience": Sql("1 = 0")},
}


@pytest.mark.parametrize("way", ["bulk", "singly"])
@pytest.mark.parametrize("who", NOBODY)
def test_who_sends_a_key_does_not_get_the_row(place: Place, other: Place, who: str, way: str) -> None:
    """An older version of a row, or one that is refused, is no way to what only others may have."""
    receive = Receive(condition=Sql("NEW.what <> 'no'")) if way == "singly" else Receive()
    device, office = node(place), node(other, receive=receive, **NOBODY[who])
    put(other, 1, "not for everybody")
    put(other, 2, "neither")
    put(other, 3, "gone")
    remove(other, 3)
    for what in ("probe", "no", "probe again"):
        for key in (1, 2, 3):
            place.run(f"DELETE FROM todo WHERE id = {key}", f"DELETE FROM todoStamp WHERE stEntityPrimaryKey = {key}")
            put(place, key, what, changed=5)
        sync(device, office)
        sync(device, office)
        assert set(whats(place).values()) == {what}
    assert whats(other) == {1: "not for everybody", 2: "neither"}


@pytest.mark.parametrize("way", ["bulk", "singly"])
@pytest.mark.parametrize("who", ["SQL", "functions"])
def test_who_may_have_a_row_gets_it_when_its_own_edit_has_lost(place: Place, other: Place, who: str, way: str) -> None:
    receive = Receive(condition=Sql("NEW.what <> 'no'")) if way == "singly" else Receive()
    everybody: dict[str, dict[str, Any]] = {
        "SQL": {
            "run_on_change": (
                RunOnChange(
                    Sql(f"{INTO} SELECT todo.id, nodeId FROM ChangeLog JOIN todo ON id = chEntityPk, DoorNode")
                ),
            )
        },
        "functions": {
            "on_change": lambda connection, changes: [
                (key, found[0])
                for found in connection.execute("SELECT nodeId FROM DoorNode").fetchall()
                for key in changes.upserted
            ]
        },
    }
    device, office = node(place), node(other, receive=receive, **everybody[who])
    put(place, 1, "milk", changed=1000)
    put(place, 2, "bread", changed=1000)
    sync(device, office)
    put(place, 1, "cheese", changed=2000)
    put(place, 2, "butter", changed=2000)
    put(other, 1, "later")
    remove(other, 2)
    sync(device, office)
    assert whats(place) == whats(other) == {1: "later"}
    assert device.nodes_with_pending() == office.nodes_with_pending() == {}


REFUSES = {
    "sqlite": "SELECT RAISE(ABORT, 'no rights') WHERE NEW.what LIKE 'bad%';",
    "postgres": "IF NEW.what LIKE 'bad%' THEN RAISE EXCEPTION 'no rights'; END IF;",
}
UPSERT = """INSERT INTO todo(id, changed, what, is_done) VALUES (NEW.id, NEW.changed, NEW.what, NEW.is_done)
ON CONFLICT (id) DO UPDATE SET changed = excluded.changed, what = excluded.what, is_done = excluded.is_done;"""


def test_what_a_node_refuses_is_told_and_kept_at_both_and_holds_up_nothing(places: Places, dialect: str) -> None:
    body = Sql(REFUSES["sqlite"] + UPSERT, REFUSES["postgres"] + UPSERT)
    laptop, central = places("sqlite"), places(dialect)
    one, other = node(laptop, batch_rows=4), node(central, batch_rows=4, receive=Receive(body=body))
    for number in range(20):
        put(laptop, number, "bad" if number in (3, 11) else "good")
    calling = SyncNode.over(one)
    with served(other) as url:
        done = calling.sync_with(url)
        assert (done.sent, done.refused) == (20, 2)
        assert calling.sync_with(url) == Progress(), "what is refused is not sent again"
        assert sorted(whats(central)) == [number for number in range(20) if number not in (3, 11)]
        for store, why in ((one, "rejected"), (other, "refused")):
            kept = store.quarantined()
            assert sorted((each.why.value, each.key, each.row and each.row["what"]) for each in kept) == [
                (why, [3], "bad"),
                (why, [11], "bad"),
            ]
            assert all("no rights" in each.reason for each in kept)
        put(laptop, 3, "mended")
        assert calling.sync_with(url).sent == 1
    assert whats(central)[3] == "mended"


def test_what_the_caller_refuses_is_kept_at_both_too(places: Places) -> None:
    body = Sql(REFUSES["sqlite"] + UPSERT)
    laptop, central = places("sqlite"), places("sqlite")
    one, other = node(laptop, receive=Receive(body=body)), node(central)
    put(central, 1, "bad")
    put(central, 2, "good")
    with served(other) as url:
        assert SyncNode.over(one).sync_with(url) == Progress(fetched=2, refused=1)
        assert SyncNode.over(one).sync_with(url) == Progress()
    assert whats(laptop) == {2: "good"}
    assert [each.why.value for each in one.quarantined()] == ["refused"]
    assert [(each.why.value, each.node) for each in other.quarantined()] == [("rejected", one.node_id)]


def test_tables_of_sqlalchemy_and_reflected_ones(places: Places) -> None:
    from sqlalchemy import BigInteger, Column, MetaData, String, Table, create_engine

    metadata = MetaData()
    key, changed = Column("id", BigInteger, primary_key=True), Column("changed", BigInteger)
    table = Table("todo", metadata, key, changed, Column("what", String))
    laptop, central = places("sqlite"), places("sqlite")
    for place in (laptop, central):
        engine = create_engine(f"sqlite:///{place.address}")
        metadata.create_all(engine)
        reflected = Table("todo", MetaData(), autoload_with=engine)
        engine.dispose()
    declared = Entity.of(table, 42, table.c.changed)
    assert declared == Entity.of(reflected, 42, "changed") == todo(key=("id",))
    one, other = laptop.install(declared), central.install(Entity("todo", 42, "changed"))
    put(laptop, 1, "x")
    with served(other) as url:
        SyncNode.over(one).sync_with(url)
    assert whats(central) == {1: "x"}
