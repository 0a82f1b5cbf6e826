"""Triggers that an application has on its tables: they may set versions, change rows, and leave some out."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.sync.store import SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place

HOUR_MS = 3_600_000
NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
WHOLE_SECONDS = "(floor(extract(epoch FROM now())) * 1000)::bigint"


def on_todo(place: Place, name: str, when: str, sqlite: str = "", postgres: str = "") -> None:
    """A trigger of the application, in either dialect."""
    if place.is_postgres:
        body = f"$$BEGIN {postgres} END$$"
        place.run(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS {body}",
            f"CREATE TRIGGER {name} {when} ON todo FOR EACH ROW EXECUTE FUNCTION {name}()",
        )
    else:
        moment, _, events = when.partition(" ")
        for event in events.split(" OR "):
            place.run(f"CREATE TRIGGER {name}_{event} {moment} {event} ON todo {sqlite}")


def touching(place: Place, time: str) -> SyncStore:
    """A node whose application sets the version by itself, as most do; its trigger's name is behind most others."""
    store = todo.node(place)
    on_todo(place, "zz_touch", "BEFORE INSERT OR UPDATE", postgres=f"NEW.changed := {time}; RETURN NEW;")
    return store


def is_settled(one: SyncStore, two: SyncStore) -> bool:
    done = sync(one, two)
    return (done.sent, done.fetched) == (0, 0)


def versions(place: Place) -> list[tuple[Any, ...]]:
    """Of rows that are there, by the table and by the stamps."""
    at_row = "JOIN todoStamp ON stEntityPrimaryKey = id"
    return place.ask(f"SELECT id, changed, stTime FROM todo {at_row} WHERE changed <> stTime OR stDeleted = true")


def test_versions_in_whole_seconds_lose_no_edit(places: Places) -> None:
    place, other = places("postgres"), places("sqlite")
    one, two = touching(place, WHOLE_SECONDS), todo.node(other)
    for number in range(3):
        todo.put(place, 1, f"edit {number}")
        sync(two, one)
        assert todo.whats(other) == {1: f"edit {number}"}
    assert versions(place) == []


def test_an_application_that_sets_versions_goes_on_after_a_row_of_a_fast_clock(places: Places) -> None:
    place, other = places("postgres"), places("sqlite")
    one, two = touching(place, NOW_MS), todo.node(other)
    other.run(f"UPDATE DoorSelf SET clockShift = {HOUR_MS}")
    todo.put(other, 1, "an hour ahead")
    sync(two, one)
    ahead = todo.version(other, 1)
    assert todo.version(place, 1) == ahead
    todo.put(place, 1, "edit")
    assert todo.version(place, 1) > ahead
    sync(two, one)
    assert todo.whats(other) == {1: "edit"}
    todo.put(other, 1, "ahead again")
    sync(two, one)
    assert todo.whats(place) == {1: "ahead again"}
    place.run("DELETE FROM todo")
    todo.put(place, 1, "inserted again")
    sync(two, one)
    assert todo.whats(other) == {1: "inserted again"}


def test_two_applications_that_set_versions_do_not_tell_each_other_for_ever(places: Places) -> None:
    place, other = places("postgres"), places("postgres")
    one, two = touching(place, NOW_MS), touching(other, NOW_MS)
    todo.put(place, 1, "milk")
    sync(two, one)
    assert is_settled(two, one)
    todo.put(other, 1, "bread")
    sync(two, one)
    assert is_settled(two, one)
    assert place.ask("SELECT * FROM todo") == other.ask("SELECT * FROM todo")


def test_a_trigger_that_changes_the_version_once_more(places: Places) -> None:
    """After the row was noticed, or before: its stamp is that of the row."""
    place, other = places("postgres"), places("sqlite")
    one, two = todo.node(place), todo.node(other)
    place.run(
        f"""CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            UPDATE todo SET changed = {WHOLE_SECONDS} - 1000 WHERE id = NEW.id; RETURN NULL; END$$""",
        """CREATE TRIGGER a_late AFTER INSERT OR UPDATE OF what ON todo FOR EACH ROW
            WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION late()""",
    )
    for what in ("milk", "bread"):
        todo.put(place, 1, what)
        assert versions(place) == []
        sync(two, one)
        assert todo.whats(other) == {1: what}


def test_keys_that_move_up(place: Place, other: Place) -> None:
    """Each row gets the key that another one has given up in the same statement."""
    stores = []
    for each in (place, other):
        each.run("CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what text)")
        stores.append(each.install(todo.todo()))
    one, two = stores
    rows = ", ".join(f"({key}, 'of {key}')" for key in range(1, 301))
    place.run(f"INSERT INTO todo(id, what) VALUES {rows}")
    sync(two, one)
    place.run("DELETE FROM todo WHERE id = 2")
    place.run("UPDATE todo SET id = id - 1 WHERE id > 2")
    assert todo.whats(place) == {1: "of 1", **{key: f"of {key + 1}" for key in range(2, 300)}}
    assert versions(place) == []
    sync(two, one)
    assert place.ask("SELECT * FROM todo ORDER BY id") == other.ask("SELECT * FROM todo ORDER BY id")
    assert is_settled(two, one)


def test_rows_that_are_deleted_and_inserted_in_one_statement(places: Places) -> None:
    place, other = places("postgres"), places("sqlite")
    one, two = todo.node(place), todo.node(other)
    place.run("INSERT INTO todo(id, what) SELECT g, 'old' FROM generate_series(1, 500) AS g")
    sync(two, one)
    place.run("WITH d AS (DELETE FROM todo RETURNING id) INSERT INTO todo(id, what) SELECT id, 'new' FROM d")
    assert versions(place) == []
    sync(two, one)
    assert set(todo.whats(other).values()) == {"new"} and len(todo.whats(other)) == 500
    assert is_settled(two, one)


@pytest.mark.parametrize("dialect", ["postgres"])
def test_what_triggers_do_to_others_while_a_version_is_corrected_is_noticed(place: Place) -> None:
    store = todo.node(place)
    place.run("INSERT INTO todo(id, what) SELECT g, '0' FROM generate_series(1, 20) AS g")
    count = "UPDATE todo SET what = what::int + 1 WHERE id = 1 AND NEW.id > 1; RETURN NEW;"
    on_todo(place, "counts", "BEFORE UPDATE", postgres=count)
    place.run("DELETE FROM todo WHERE id = 2")
    lines = "SELECT count(*) FROM ChangeLog WHERE chEntityPk = '1'"
    (before,) = place.ask(lines)[0]
    place.run("UPDATE todo SET id = id - 1 WHERE id > 2")
    (after,) = place.ask(lines)[0]
    assert after - before >= int(todo.whats(place)[1]) >= 18
    assert versions(place) == []
    assert store.process_changes()


def leaves_out(place: Place) -> None:
    on_todo(
        place,
        "leaves_out",
        "BEFORE INSERT OR UPDATE",
        "WHEN NEW.what = 'bad' BEGIN SELECT RAISE(IGNORE); END",
        "IF NEW.what = 'bad' THEN RETURN NULL; END IF; RETURN NEW;",
    )


def test_rows_that_a_trigger_leaves_out_are_refused(place: Place, other: Place) -> None:
    one, two = todo.node(place), todo.node(other)
    leaves_out(other)
    place.run("INSERT INTO todo(id, what) VALUES (1, 'bad'), (2, 'good'), (3, 'good')")
    assert sync(two, one).refused == 1
    assert todo.whats(other) == {2: "good", 3: "good"}
    todo.put(place, 3, "bad")
    assert sync(two, one).refused == 1
    assert todo.whats(other) == {2: "good", 3: "good"}
    for store, why in ((one, "rejected"), (two, "refused")):
        found = [(each.why, each.key) for each in store.quarantined()]
        assert found == [(why, [3]), (why, [1])]
        assert all("a trigger of the table did not take it" in each.reason for each in store.quarantined())
    assert is_settled(two, one)


def test_a_deletion_that_a_trigger_leaves_out_is_refused(place: Place, other: Place) -> None:
    one, two = todo.node(place), todo.node(other)
    on_todo(
        other,
        "keeps",
        "BEFORE DELETE",
        "WHEN OLD.what = 'kept' BEGIN SELECT RAISE(IGNORE); END",
        "IF OLD.what = 'kept' THEN RETURN NULL; END IF; RETURN OLD;",
    )
    place.run("INSERT INTO todo(id, what) VALUES (1, 'kept'), (2, 'not kept')")
    sync(two, one)
    place.run("DELETE FROM todo")
    assert sync(two, one).refused == 1
    assert todo.whats(other) == {1: "kept"}
    assert versions(other) == []
    assert [(each.why, each.key) for each in two.quarantined()] == [("refused", [1])]
    assert "did not delete" in two.quarantined()[0].reason


def test_a_deletion_of_which_a_trigger_makes_an_edit(place: Place, other: Place) -> None:
    one, two = todo.node(place), todo.node(other)
    edit = "UPDATE todo SET what = 'deleted' WHERE id = OLD.id;"
    on_todo(other, "soft", "BEFORE DELETE", f"BEGIN {edit} SELECT RAISE(IGNORE); END", f"{edit} RETURN NULL;")
    todo.put(place, 1, "milk")
    sync(two, one)
    todo.remove(place, 1)
    sync(two, one)
    sync(two, one)
    assert todo.whats(other) == todo.whats(place) == {1: "deleted"}
    assert is_settled(two, one)


SHOUT = "UPDATE todo SET what = upper(what) WHERE id = NEW.id"
SHOUTS = {
    "before": ("BEFORE INSERT OR UPDATE", "NEW.what := upper(NEW.what); RETURN NEW;"),
    "after": (
        "AFTER INSERT OR UPDATE",
        f"IF NEW.what <> upper(NEW.what) THEN {SHOUT}; END IF; RETURN NULL;",
    ),
}


@pytest.mark.parametrize(
    ("dialect", "when"), [("postgres", "before"), ("postgres", "after"), ("sqlite", "after")]
)  # SQLite's triggers cannot change a row before it is written
@pytest.mark.parametrize("age", ["older", "younger"])
@pytest.mark.parametrize("who", ["the caller", "the called", "both"])
def test_what_a_trigger_makes_of_a_row_is_sent_once(place: Place, other: Place, when: str, age: str, who: str) -> None:
    """Triggers that are there before sync run in another order than those that come later."""
    stores = []
    for each, name in ((place, "the caller"), (other, "the called")):
        each.run(todo.CREATE)
        if age == "younger":
            stores.append(each.install(todo.todo()))
        if who in (name, "both"):
            moment, body = SHOUTS[when]
            on_todo(each, "shout", moment, f"WHEN NEW.what <> upper(NEW.what) BEGIN {SHOUT}; END", body)
        if age == "older":
            stores.append(each.install(todo.todo()))
    one, two = stores
    todo.put(place, 1, "of one")
    todo.put(other, 2, "of two")
    for _ in range(3):
        sync(one, two)
    assert place.ask("SELECT * FROM todo ORDER BY id") == other.ask("SELECT * FROM todo ORDER BY id")
    shouting = {"the caller": {2: "OF TWO"}, "the called": {1: "OF ONE"}, "both": {1: "OF ONE", 2: "OF TWO"}}[who]
    assert todo.whats(place).items() >= shouting.items()
    assert versions(place) == versions(other) == []
    assert is_settled(one, two)


@pytest.mark.parametrize("age", ["older", "younger"])
def test_triggers_that_always_set_the_version_are_quiet_in_sqlite(places: Places, age: str) -> None:
    """Those that come later than sync have the last word about the column, and yet what is sent has the stamp."""
    place, other = places("sqlite"), places("sqlite")
    now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
    stores = []
    for each in (place, other):
        each.run(todo.CREATE)
        if age == "younger":
            stores.append(each.install(todo.todo()))
        for event in ("INSERT", "UPDATE"):
            touch = f"UPDATE todo SET changed = {now} WHERE id = NEW.id"
            each.run(f"CREATE TRIGGER touch_{event} AFTER {event} ON todo BEGIN {touch}; END")
        if age == "older":
            stores.append(each.install(todo.todo()))
    one, two = stores
    todo.put(place, 1, "milk")
    sync(two, one)
    assert is_settled(two, one)
    todo.put(other, 1, "bread")
    sync(two, one)
    assert is_settled(two, one)
    assert todo.whats(place) == todo.whats(other) == {1: "bread"}
    if age == "older":
        assert versions(place) == versions(other) == []
