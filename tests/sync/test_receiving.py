"""Receiving: what a node takes of another, what it refuses, and what loses."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.entity import Entity, Receive, Rule, RunOnChange, Sql
from tailrace.sync.exchange import Ack, Receipt, RowBatch, Tracker
from tailrace.sync.store import CALLS_US, WE_CALL
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import Fault, sync
from tests.sync.places import Place

PEER = 4711
COLUMNS = ("id", "changed", "what", "is_done")
UPSERT = """INSERT INTO todo(id, changed, what) VALUES (NEW.id, NEW.changed, NEW.what)
    ON CONFLICT (id) DO UPDATE SET changed = excluded.changed, what = excluded.what;"""
NO_BEER = Sql(
    f"SELECT RAISE(ABORT, 'no beer here') WHERE NEW.what = 'beer'; {UPSERT}",
    f"IF NEW.what = 'beer' THEN RAISE EXCEPTION 'no beer here'; END IF; {UPSERT}",
)


def row(key: Any, time: int, what: Any = "x", node: int = PEER, gone: bool = False) -> tuple[Any, ...]:
    return (key, time, what, None, time, node, gone, time)


@pytest.mark.parametrize("batch_rows", [1, 7, 100])
def test_rows_that_are_refused_do_not_block_the_others(places: Places, dialect: str, batch_rows: int) -> None:
    """They are found by halving, told to the sender, and kept on both sides."""
    place, other = places(dialect), places(dialect)
    one = todo.node(place, batch_rows=batch_rows)
    two = todo.node(other, batch_rows=batch_rows, receive=Receive(body=NO_BEER))
    for key in range(40):
        todo.put(place, key, "beer" if key in (0, 13, 14, 39) else f"thing {key}")
    progress = sync(two, one)
    assert (progress.fetched, progress.refused) == (40, 4)
    assert sorted(todo.whats(other)) == [key for key in range(40) if key not in (0, 13, 14, 39)]
    refused, rejected = two.quarantined(), one.quarantined()
    assert sorted(each.key[0] for each in refused) == sorted(each.key[0] for each in rejected) == [0, 13, 14, 39]
    assert {(each.why, each.node) for each in refused} == {("refused", one.node_id)}
    assert {(each.why, each.node) for each in rejected} == {("rejected", two.node_id)}
    assert all("no beer here" in each.reason and (each.row or {})["what"] == "beer" for each in refused + rejected)
    again = sync(two, one)
    assert (again.fetched, again.sent, again.refused) == (0, 0, 0)
    todo.put(place, 13, "water")
    sync(two, one)
    assert todo.whats(other)[13] == "water"


def test_rows_that_the_other_side_refuses_when_they_are_sent(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other, receive=Receive(body=NO_BEER))
    todo.put(place, 1, "beer")
    todo.put(place, 2, "bread")
    assert sync(one, two).refused == 1
    assert todo.whats(other) == {2: "bread"}
    (rejected,) = one.quarantined()
    assert (rejected.why, rejected.key, rejected.node) == ("rejected", [1], two.node_id)
    assert one.nodes_with_pending() == {}
    assert one.release(rejected.id) and not one.release(rejected.id)
    assert one.quarantined() == []


def test_a_row_that_was_rejected_is_sent_again_when_somebody_says_so(place: Place, other: Place) -> None:
    one, two = todo.node(place), todo.node(other, receive=Receive(body=NO_BEER))
    todo.put(place, 1, "beer")
    sync(one, two)
    two = other.install(todo.todo())
    assert sync(one, two).sent == 0
    (rejected,), (refused,) = one.quarantined(), two.quarantined()
    assert not two.send_again(refused.id)
    assert not one.send_again(rejected.id + 1)
    assert one.send_again(rejected.id)
    assert sync(one, two).sent == 1
    assert todo.whats(other) == {1: "beer"}
    assert one.quarantined() == []
    assert two.release(refused.id)


def test_a_row_that_a_constraint_refuses(places: Places, dialect: str) -> None:
    """Without a body of one's own, when rows are taken many at once."""
    place, other = places(dialect), places(dialect)
    one = todo.node(place)
    other.run(
        "CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what text CHECK (what <> 'beer'), is_done boolean)"
    )
    two = other.install(todo.todo())
    for key in range(10):
        todo.put(place, key, "beer" if key == 5 else "bread")
    assert sync(two, one).refused == 1
    assert 5 not in todo.whats(other) and len(todo.whats(other)) == 9
    assert [each.key for each in two.quarantined()] == [[5]]


def test_a_view_that_leaves_a_row_out_without_a_word_refuses_it(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one = todo.node(place)
    two = todo.node(other, receive=Receive(condition=Sql("NEW.fromNodeId = 5 OR NEW.id > 1")))
    todo.put(place, 1, "milk")
    todo.put(place, 2, "bread")
    assert sync(two, one).refused == 1
    assert todo.whats(other) == {2: "bread"}
    assert two.quarantined()[0].reason == "the receive view did not take it"


CONDITIONS = {
    "nothing": Sql("1 = 0", "false"),
    "by who sends": Sql("NEW.fromNodeId = 5"),
    "by the row that is here": Sql("NEW.what <> 'milk'"),
    "by the kind of change": Sql("coalesce(NEW.doorDeleted, 0) = 0", "NEW.doorDeleted IS NOT TRUE"),
}


@pytest.mark.parametrize("way", ["sent", "fetched"])
@pytest.mark.parametrize("why", CONDITIONS)
def test_a_condition_decides_about_deletions_too(place: Place, other: Place, why: str, way: str) -> None:
    device, office = todo.node(place), todo.node(other, receive=Receive(condition=CONDITIONS[why]))
    todo.put(other, 1, "milk")
    todo.put(other, 2, "milk")
    sync(device, office)
    todo.remove(place, 1)
    done = sync(device, office) if way == "sent" else sync(office, device)
    assert done.refused == 1
    assert todo.whats(other) == {1: "milk", 2: "milk"}
    (refused,), (rejected,) = office.quarantined(), device.quarantined()
    assert (refused.why, refused.key, refused.row) == ("refused", [1], None)
    assert (rejected.why, rejected.key, rejected.node) == ("rejected", [1], office.node_id)
    assert sync(device, office).refused == 0, "it is not sent again"
    assert device.nodes_with_pending() == office.nodes_with_pending() == {}


def test_a_condition_sees_the_row_that_would_be_deleted_and_not_what_its_sender_says(place: Place) -> None:
    store = todo.node(place, receive=Receive(condition=Sql("NEW.what <> 'milk'")))
    store.meet(PEER, CALLS_US)
    todo.put(place, 1, "milk", changed=1000)
    todo.put(place, 2, "bread", changed=1000)
    late = todo.version(place, 2) + 1
    gone = [row(1, late, "bread", gone=True), row(2, late, "milk", gone=True), row(3, late, "milk", gone=True)]
    receipt = store.receive(todo.TABLE_ID, PEER, RowBatch(COLUMNS, gone))
    assert [ack.tracker.key for ack in receipt.refused] == [(1,)]
    assert todo.whats(place) == {1: "milk"}
    assert place.ask("SELECT stEntityPrimaryKey FROM todoStamp WHERE stDeleted <> ? ORDER BY 1", (False,)) == [
        (2,),
        (3,),
    ], "that of a row which is not here is known, too"


@pytest.mark.parametrize("calls", ["the winner", "the loser"])
def test_an_own_rule_for_conflicts(places: Places, dialect: str, calls: str) -> None:
    """The longer text stays, whatever the versions say."""
    place, other = places(dialect), places(dialect)
    longest = """INSERT INTO todo(id, changed, what) VALUES (NEW.id, NEW.changed, NEW.what)
        ON CONFLICT (id) DO UPDATE SET changed = excluded.changed, what = excluded.what
        WHERE length(excluded.what) > length(todo.what)"""
    rule = {"conflict": Rule.CUSTOM, "receive": Receive(body=Sql(longest))}
    one, two = todo.node(place, **rule), todo.node(other, **rule)
    todo.put(place, 1, "a longer text", changed=1000)
    todo.put(other, 1, "a text", changed=2000)
    for _ in range(3):
        sync(*((one, two) if calls == "the winner" else (two, one)))
    assert todo.whats(place) == todo.whats(other) == {1: "a longer text"}
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


HOSTILE: dict[str, Any] = {
    "too long for 64 bits": (1 << 63) + 5,
    "text for a number": "five",
    "a NUL": "\0",
    "an object": {"$bytes": "zz"},
    "a list": [1],
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_key_that_cannot_be_is_refused_alone(place: Place, why: str) -> None:
    """Or the batch is malformed; nothing of it is taken then, and nothing breaks."""
    place.run("CREATE TABLE todo(id integer PRIMARY KEY, changed bigint, what text, is_done boolean)")
    store = place.install(todo.todo())
    store.meet(PEER, WE_CALL)
    batch = RowBatch(COLUMNS, [row(1, 1000), row(HOSTILE[why], 1000), row(2, 1000)])
    try:
        receipt = store.receive(todo.TABLE_ID, PEER, batch)
    except TailraceError as error:
        assert error.code == "sync.malformed"
        assert todo.whats(place) == {}
    else:
        assert len(receipt.refused) == 1
        assert sorted(todo.whats(place)) == [1, 2]
        assert len(store.quarantined()) == 1


UNREADABLE: dict[str, tuple[str, Any, list[Any]]] = {
    "a NUL": ("text", "a\0b", ["k1", "k2", "k3"]),
    "no uuid": ("uuid", "five", [f"7f9c24e8-3b12-4fef-91e0-00000000000{number}" for number in range(3)]),
    "too long for 32 bits": ("integer", 1 << 40, [1, 2, 3]),
    "too long a text": ("varchar(3)", "much", ["a", "b", "c"]),
    "no day": ("date", "2024-02-30", ["2024-01-01", "2024-01-02", "2024-03-01"]),
    "no whole number": ("bigint", 1.5, [1, 2, 3]),
}


@pytest.mark.parametrize("calls", ["sqlite", "postgres"])
@pytest.mark.parametrize("why", UNREADABLE)
def test_a_key_that_the_other_database_cannot_read_is_refused_alone(places: Places, why: str, calls: str) -> None:
    kind, bad, good = UNREADABLE[why]
    place, other = places("sqlite"), places("postgres")
    place.run("CREATE TABLE todo(id PRIMARY KEY, changed bigint, what text, is_done boolean)")
    other.run(f"CREATE TABLE todo(id {kind} PRIMARY KEY, changed bigint, what text, is_done boolean)")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    caller, called = (one, two) if calls == "sqlite" else (two, one)
    todo.put(place, good[0], "first")
    sync(caller, called)
    for key, what in ((good[1], "good"), (bad, "bad"), (good[2], "good")):
        todo.put(place, key, what)
    assert sync(caller, called).refused == 1
    assert [what for (what,) in other.ask("SELECT what FROM todo ORDER BY id")] == ["first", "good", "good"]
    assert [(each.why, each.key) for each in one.quarantined()] == [("rejected", [bad])]
    assert [(each.why, each.key) for each in two.quarantined()] == [("refused", [bad])]
    todo.put(place, good[0], "changed")
    assert sync(caller, called).refused == 0
    assert one.nodes_with_pending() == {}


@pytest.mark.parametrize("why", ["too long for 64 bits", "text for a number"])
def test_a_value_that_cannot_be_is_refused_alone(place: Place, why: str) -> None:
    place.run("CREATE TABLE todo(id integer PRIMARY KEY, changed bigint, what integer, is_done boolean)")
    if not place.is_postgres:
        place.run("DROP TABLE todo")
        place.run("CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER, what INTEGER, is_done INTEGER) STRICT")
    store = place.install(todo.todo())
    store.meet(PEER, WE_CALL)
    batch = RowBatch(COLUMNS, [row(1, 1000, 5), row(2, 1000, HOSTILE[why]), row(3, 1000, 6)])
    receipt = store.receive(todo.TABLE_ID, PEER, batch)
    assert [ack.tracker.key for ack in receipt.refused] == [(2,)]
    assert sorted(todo.whats(place)) == [1, 3]


MALFORMED: dict[str, tuple[Any, ...]] = {
    "too few values": (1, 1000, "x"),
    "no key": row(None, 1000),
    "no time": (1, None, "x", None, None, PEER, False, None),
    "a time before 1970": row(1, -1),
    "a time that is none": row(1, 1 << 63),
    "a text as a time": (1, 1000, "x", None, "1000", PEER, False, 1000),
    "true as a time": (1, True, "x", None, True, PEER, False, True),
    "another version than the time": (1, 2000, "x", None, 1000, PEER, False, 2000),
    "a node that is none": row(1, 1000, node=1 << 63),
}


@pytest.mark.parametrize("why", MALFORMED)
def test_rows_that_are_not_what_the_protocol_says(place: Place, why: str) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    with pytest.raises(TailraceError) as caught:
        store.receive(todo.TABLE_ID, PEER, RowBatch(COLUMNS, [row(7, 1000), MALFORMED[why]]))
    assert caught.value.code == "sync.malformed"
    assert todo.whats(place) == {}


def test_rows_without_a_stamp_are_their_sender_s(place: Place) -> None:
    """As the first description has them: the time of a change is the version, and who sends it has made it."""
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    batch = RowBatch(("changed", "id", "what"), [(1000, 1, "milk", None, None, None, None)])
    assert store.receive(todo.TABLE_ID, PEER, batch).refused == []
    assert todo.whats(place) == {1: "milk"}
    assert place.ask("SELECT stTime, stNode FROM todoStamp") == [(1000, PEER)]


def test_the_newest_of_several_versions_of_a_row_in_a_batch_stays(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    rows = [row(1, 2000, "newest"), row(1, 1000, "older"), row(2, 1000), row(2, 3000, gone=True)]
    store.receive(todo.TABLE_ID, PEER, RowBatch(COLUMNS, rows))
    assert todo.whats(place) == {1: "newest"}


def test_a_repeated_batch_changes_nothing(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    batch = RowBatch(COLUMNS, [row(key, 1000 + key) for key in range(20)])
    for _ in range(2):
        receipt = store.receive(todo.TABLE_ID, PEER, batch)
        assert (receipt.refused, receipt.older) == ([], [])
        store.process_changes()
        assert store.nodes_with_pending() == {}
    assert place.ask("SELECT count(*) FROM todo") == [(20,)]


def test_an_edit_that_loses_is_kept_on_one_side(places: Places, dialect: str) -> None:
    """Whoever has both sees that neither knew the other one. One that was known has not lost: it was changed."""
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "milk", changed=1000)
    sync(two, one)
    todo.put(other, 1, "bread", changed=2000)
    sync(two, one)
    assert one.quarantined() == two.quarantined() == []
    todo.put(place, 1, "of one", changed=3000)
    todo.put(other, 1, "of two", changed=4000)
    sync(two, one)
    (lost,) = [*one.quarantined(), *two.quarantined()]
    assert (lost.why, lost.node, lost.version) == ("lost", one.node_id, "3000")
    assert lost.row is not None and lost.row["what"] == "of one"
    sync(two, one, [Fault.REPEATED] * 5)
    assert len([*one.quarantined(), *two.quarantined()]) == 1


def test_a_deletion_that_beats_an_edit_keeps_it_in_quarantine(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "milk", changed=1000)
    sync(two, one)
    todo.put(place, 1, "edited", changed=2000)
    todo.remove(other, 1)
    sync(two, one)
    assert todo.whats(place) == todo.whats(other) == {}
    (lost,) = [*one.quarantined(), *two.quarantined()]
    assert lost.row is not None and lost.row["what"] == "edited"


VALUES: dict[str, list[Any]] = {
    "text": ["", "ä\U0001f600", "'); DROP TABLE todo; --", "%s ? $1 :nodeId", "\\x00ff", "line\nline", "x" * 5000],
    "bigint": [0, -1, (1 << 63) - 1, -(1 << 63)],
    "double precision": [0.1, -1.5e300, 5e-324, float("inf"), float("-inf")],
    "boolean": [True, False],
    "bytea": [b"", b"\x00\xff", b"\\x41"],
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("way", [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite")])
def test_values_arrive_as_they_are(places: Places, kind: str, way: tuple[str, str]) -> None:
    """S4: a value never becomes SQL."""
    place, other = (places(each) for each in way)
    for each in (place, other):
        each.run(f"CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what {kind})")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    for key, value in enumerate([None, *VALUES[kind]]):
        place.ask("INSERT INTO todo(id, what) VALUES (?, ?)", (key, value))
    assert sync(two, one).refused == 0
    assert dict(other.ask("SELECT id, what FROM todo")) == dict(enumerate([None, *VALUES[kind]]))
    other.run("UPDATE todo SET changed = NULL")
    sync(two, one)
    assert place.ask("SELECT id, what FROM todo ORDER BY id") == other.ask("SELECT id, what FROM todo ORDER BY id")


@pytest.mark.parametrize("batch_rows", [1, 100])
@pytest.mark.parametrize("kind", ["jsonb", "json", "jdomain"])
def test_json_of_postgres_stays_what_it_is(places: Places, kind: str, batch_rows: int) -> None:
    """As one value and not as a string of JSON, also by way of SQLite, and in rows that are taken one by one."""
    central, laptop, archive = places("postgres"), places("sqlite"), places("postgres")
    create = "CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what {})"
    laptop.run(create.format("text"))
    for each in (central, archive):
        each.run("CREATE DOMAIN jdomain AS jsonb", create.format(kind))
    one, two, three = (each.install(todo.todo(batch_rows=batch_rows)) for each in (central, laptop, archive))
    values = ['{"a": [1, 2.50, "x"]}', '"text"', "null", "3", "[]"]
    for key, value in enumerate(values):
        central.ask(f"INSERT INTO todo(id, what) VALUES (?, ?::{kind})", (key, value))
    central.run(
        "INSERT INTO todo(id) VALUES (99)", "INSERT INTO todo(id) VALUES (98)", "DELETE FROM todo WHERE id = 98"
    )
    sync(two, one)
    laptop.run("""UPDATE todo SET what = '{"b": 2}' WHERE id = 0""", "DELETE FROM todo WHERE id = 1")
    sync(two, one)
    sync(two, three)
    query = "SELECT id, what::text FROM todo ORDER BY id"
    assert archive.ask(query) == central.ask(query)
    assert dict(central.ask(query)) == {0: '{"b": 2}', 2: "null", 3: "3", 4: "[]", 99: None}


@pytest.mark.parametrize("value", [b"\xff\x00", 1.5, float("inf"), "text", 7, None])
def test_values_that_sqlite_holds_against_the_type_of_a_column(places: Places, value: Any) -> None:
    place, other = places("sqlite"), places("sqlite")
    for each in (place, other):
        each.run("CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER, a BLOB, b, c BOOLEAN, d REAL)")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    place.ask("INSERT INTO todo(id, a, b, c, d) VALUES (1, ?, ?, ?, ?)", [value] * 4)
    sync(two, one)
    assert other.ask("SELECT * FROM todo") == place.ask("SELECT * FROM todo")


def test_rows_that_are_large_travel_in_small_pages(
    places: Places, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.sync.trackers.PAGE_LENGTH_MAX", 10_000)
    monkeypatch.setattr("tailrace.sync.exchange.PAGE_LENGTH_MAX", 10_000)
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    for key in range(60):
        todo.put(place, key, "x" * (4000 if key % 3 else 10))
    one.meet(PEER, WE_CALL)
    one.process_changes()
    assert 1 <= len(one.pending_rows(todo.TABLE_ID, PEER, None, 1000)) <= 40
    sync(two, one)
    assert todo.whats(place) == todo.whats(other)
    assert one.nodes_with_pending() == {PEER: [todo.TABLE_ID]}


def test_many_rows_in_many_pages(places: Places, dialect: str) -> None:
    """Pages are asked for, taken and confirmed at the same time, and may be cut at any of these."""
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place, batch_rows=10), todo.node(other, batch_rows=10)
    insert = "INSERT INTO todo(id, what) VALUES "
    place.run(insert + ", ".join(f"({key}, 'of one')" for key in range(0, 300, 2)))
    other.run(insert + ", ".join(f"({key}, 'of two')" for key in range(1, 300, 2)))
    faults = [Fault.NONE] * 9 + [Fault.RESPONSE_LOST]
    for _ in range(30):
        try:
            sync(two, one, faults)
        except TailraceError as error:
            assert error.code == "sync.unreachable"
        else:
            break
    sync(two, one)
    assert todo.whats(place) == todo.whats(other) and len(todo.whats(place)) == 300
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}
    assert one.quarantined() == two.quarantined() == []


def test_what_is_staged_does_not_pile_up_in_postgres(places: Places) -> None:
    """Nobody else removes what is dead in a temporary table, and it would be taken for a large one."""
    place = places("postgres")
    store = todo.node(place)
    store.meet(PEER, CALLS_US)
    store.meet(PEER + 1, CALLS_US)
    for first in range(0, 2000, 500):
        rows = [row(key, 5000) for key in range(first, first + 500)]
        assert store.receive(todo.TABLE_ID, PEER, RowBatch(COLUMNS, rows)) == Receipt()
        store.process_changes()
    query = r"""SELECT count(*), sum(pg_relation_size(oid))::bigint FROM pg_class
        WHERE relname LIKE 'door\_%' AND relpersistence = 't'"""
    assert store.database.read(lambda link: link.rows(query)) == [(2, 0)]
    assert len(todo.whats(place)) == 2000 and store.nodes_with_pending() == {PEER + 1: [todo.TABLE_ID]}


def test_what_comes_from_one_node_goes_on_to_others(places: Places, dialect: str) -> None:
    spots = [places(dialect) for _ in range(3)]
    one, two, three = (todo.node(each) for each in spots)
    sync(two, one)
    sync(three, two)
    todo.put(spots[0], 1, "milk")
    sync(two, one)
    sync(three, two)
    assert todo.whats(spots[2]) == {1: "milk"}
    todo.put(spots[2], 1, "bread")
    sync(three, two)
    sync(two, one)
    assert todo.whats(spots[0]) == {1: "bread"}


def test_a_row_that_came_makes_others_go_back(places: Places, dialect: str) -> None:
    """A hook looks at one table and sends rows of another, even if nobody else is there to hear of the former."""
    place, other = places(dialect), places(dialect)
    hook = """INSERT INTO docReplicate(trkrEntityPrimaryKey, trkrDestinationNode)
        SELECT doc.id, permission.node FROM ChangeLog JOIN permission ON chEntityPk = permission.id CROSS JOIN doc"""
    entities = (
        Entity("permission", 1, "changed", batch=1),
        Entity(
            "doc",
            2,
            "changed",
            run_on_change=(RunOnChange(Sql(hook), on=("permission",)),),
            run_on_new_node=Sql("SELECT 1 WHERE 1 = 0"),
        ),
    )
    for each in (place, other):
        each.run("CREATE TABLE permission(id bigint PRIMARY KEY, changed bigint, node bigint)")
        each.run("CREATE TABLE doc(id bigint PRIMARY KEY, changed bigint)")
    one, two = place.install(*entities), other.install(*entities)
    place.run("INSERT INTO doc(id) VALUES (5)")
    sync(two, one)
    assert other.ask("SELECT id FROM doc") == []
    other.run(f"INSERT INTO permission(id, node) VALUES (1, {two.node_id})")
    sync(two, one)
    sync(two, one)
    assert other.ask("SELECT id FROM doc") == [(5,)]


@pytest.mark.parametrize("keys", [(1, 2, 3), (3, 1, 2), (2, 2, 1)])
def test_many_new_rows_are_taken_in_any_order(place: Place, keys: tuple[int, ...]) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    batch = RowBatch(COLUMNS, [row(key, 1000) for key in keys])
    assert store.receive(todo.TABLE_ID, PEER, batch) == Receipt()
    assert store.receive(todo.TABLE_ID, PEER, batch) == Receipt()
    asked = [Tracker((key,), version, PEER) for key in sorted(set(keys)) for version in (999, 1000)]
    assert [each.key[0] for each in store.already_received(todo.TABLE_ID, PEER, asked).trackers] == sorted(set(keys))
    assert store.pending_trackers(todo.TABLE_ID, PEER, None, 10) == []


def test_of_a_page_that_is_confirmed_what_has_changed_since_stays_pending(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, CALLS_US)
    for key in range(1, 6):
        todo.put(place, key, "x")
    store.process_changes()
    acks = [Ack(each) for each in store.pending_trackers(todo.TABLE_ID, PEER, None, 10)]
    todo.put(place, 3, "y")
    for _ in range(2):
        store.mark_processed(todo.TABLE_ID, PEER, acks)
        assert [each.key for each in store.pending_trackers(todo.TABLE_ID, PEER, None, 10)] == [(3,)]
