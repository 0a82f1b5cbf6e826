"""The mistakes of Door's first description of replication, and what holds instead. The numbers are those of the list
that was made of them; what concerns HTTP, keys and who may call is tested where these are."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.entity import Entity, Receive, RunOnChange, Sql
from tailrace.sync.exchange import ANY_NODE, Ack, Key, Part, Receipt, RowBatch, Tracker
from tailrace.sync.round import sync_round
from tailrace.sync.store import WE_CALL, SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import DirectPeer, meet, sync
from tests.sync.places import Place

PEER = 4711
OTHER_PEER = 4712
SEED_TABLE = """CREATE TABLE entity(
    entityPrimaryKey bigint PRIMARY KEY, entityLastChangedTime bigint NOT NULL DEFAULT 0, aNumberField bigint)"""
RUN_ON_CHANGE = """
REPLACE INTO EntityReplicate(trkrEntityPrimaryKey, trkrDestinationNode)
SELECT Entity.entityPrimaryKey AS trkrEntityPrimaryKey,
       DoorNode.nodeId AS trkrDestinationNode
       FROM ChangeLog
            JOIN Entity ON ChangeLog.chTableId = 42 AND ChangeLog.chEntityPk = Entity.entityPrimaryKey
            JOIN DoorNode ON DoorNode.nodeId != 0

 /*psql- ON CONFLICT(...) DO UPDATE  -*/:
 """
RUN_ON_NEW_NODE = """
    REPLACE INTO EntityReplicate(trkrEntityPrimaryKey, trkrDestinationNode)
     SELECT Entity.entityPrimaryKey AS trkrEntityPrimaryKey,
            :newNodeId AS trkrDestinationNode
    /*psql- ON CONFLICT(...) DO UPDATE  -*/:
    """


def test_1_what_was_confirmed_is_not_sent_again(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    todo.put(place, 1, "milk")
    store.process_changes()
    (tracker,) = store.pending_trackers(todo.TABLE_ID, PEER, None, 10)
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(tracker)])
    assert not store.pending_rows(todo.TABLE_ID, PEER, None, 10).rows
    assert todo.trackers(place) == [(1, PEER, tracker.version, True)]


def test_2_trackers_tell_the_version_of_the_row(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    todo.put(place, 1, "milk", changed=1000)
    store.process_changes()
    assert store.pending_trackers(todo.TABLE_ID, PEER, None, 10) == [Tracker((1,), 1000, store.node_id)]
    assert todo.trackers(place) == [(1, PEER, None, False)]


def test_3_a_tracker_that_is_replaced_keeps_the_version_that_the_peer_has(place: Place) -> None:
    """Rows of the version 0 go, too, which they would not if no version were the same as 0."""
    replaces = "REPLACE INTO todoReplicate(trkrEntityPrimaryKey, trkrDestinationNode) SELECT todo.id, DoorNode.nodeId "
    hook = RunOnChange(Sql(f"{replaces} FROM ChangeLog JOIN todo ON chEntityPk = todo.id CROSS JOIN DoorNode"))
    place.run(todo.CREATE, "INSERT INTO todo(id, changed) VALUES (7, 0)")
    store = place.install(todo.todo(run_on_change=(hook,)))
    store.meet(PEER, WE_CALL)
    todo.put(place, 1, "milk", changed=1000)
    store.process_changes()
    assert [each.key for each in store.pending_trackers(todo.TABLE_ID, PEER, None, 10)] == [(1,), (7,)]
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((1,), 1000, store.node_id))])
    store.process_changes()
    todo.put(place, 1, "bread", changed=2000)
    store.process_changes()
    assert todo.trackers(place)[0] == (1, PEER, 1000, False)


def test_3_a_version_that_the_peer_has_does_not_become_pending(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    todo.put(place, 1, "milk", changed=1000)
    store.process_changes()
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((1,), 1000, store.node_id))])
    place.run("INSERT INTO ChangeLog(chTableId, chEntityPk, chType) VALUES (42, '1', 1)")
    store.process_changes()
    assert todo.trackers(place) == [(1, PEER, 1000, True)]


def test_4_24_the_sql_of_the_first_description_runs_as_it_stands(place: Place) -> None:
    """That of a new node has no FROM, and means the entity's table; both comments for PostgreSQL are known."""
    place.run(SEED_TABLE, "INSERT INTO entity VALUES (1, 1000, 32)")
    entity = Entity(
        "entity",
        42,
        "entitylastchangedtime" if place.is_postgres else "entityLastChangedTime",
        tracker="EntityReplicate",
        run_on_change=(RunOnChange(Sql(RUN_ON_CHANGE)),),
        run_on_new_node=Sql(RUN_ON_NEW_NODE),
    )
    store = place.install(entity)
    store.meet(PEER, WE_CALL)
    assert [each.key for each in store.pending_trackers(42, PEER, None, 10)] == [(1,)]
    place.run(
        "INSERT INTO entity VALUES (2, 2000, 33)", "UPDATE entity SET aNumberField = 34 WHERE entityPrimaryKey = 1"
    )
    store.process_changes()
    assert [each.key for each in store.pending_trackers(42, PEER, None, 10)] == [(1,), (2,)]
    doors_own = RUN_ON_CHANGE.replace("/*psql- ON", "/*psql ON").replace("-*/:", "*/")
    store = place.install(
        Entity("entity", 42, entity.version, tracker="EntityReplicate", run_on_change=(RunOnChange(Sql(doors_own)),))
    )
    place.run("INSERT INTO entity VALUES (3, 3000, 35)")
    store.process_changes()
    assert [each.key for each in store.pending_trackers(42, PEER, None, 10)] == [(1,), (2,), (3,)]


def test_5_a_receive_view_is_given_the_body_of_its_trigger_alone(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one = todo.node(place)
    body = "INSERT INTO todo(id, what, changed) VALUES (NEW.id, upper(NEW.what), NEW.changed)"
    two = todo.node(other, receive=Receive(body=Sql(body)))
    todo.put(place, 1, "milk")
    sync(two, one)
    assert todo.whats(other) == {1: "MILK"}


def test_6_an_older_version_does_not_beat_a_newer_one(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "old", changed=4000)
    todo.put(other, 1, "new", changed=5000)
    progress = sync(two, one)
    assert progress.older == 1
    assert todo.whats(place) == todo.whats(other) == {1: "new"}


def test_7_two_edits_at_the_same_time_converge(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "of one", changed=1000)
    todo.put(other, 1, "of two", changed=1000)
    sync(two, one)
    winner, loser = (one, two) if one.node_id > two.node_id else (two, one)
    assert todo.whats(place) == todo.whats(other) == {1: "of one" if winner is one else "of two"}
    (lost,) = [*one.quarantined(), *two.quarantined()]
    assert (lost.why, lost.node, lost.row and lost.row["what"]) == (
        "lost", loser.node_id, "of two" if winner is one else "of one",
    )  # fmt: skip


def test_8_deletes_are_replicated(places: Places, dialect: str) -> None:
    """The last thing that happened to a row counts."""
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    for key in (1, 2, 3):
        todo.put(place, key, "milk")
    sync(two, one)
    todo.remove(place, 1)
    todo.remove(other, 2)
    todo.remove(place, 3)
    todo.put(place, 3, "again")
    todo.put(place, 4, "never seen")
    todo.remove(place, 4)
    sync(two, one)
    assert todo.whats(place) == todo.whats(other) == {3: "again"}
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


def test_10_a_confirmation_for_a_row_that_is_not_there_changes_nothing(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((99,), 1000, 5)), Ack(Tracker((98,), 1000))])
    assert todo.trackers(place) == []
    todo.put(place, 1, "milk", changed=1000)
    store.process_changes()
    todo.remove(place, 1)
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((1,), 1000, store.node_id))])
    assert todo.trackers(place) == [(1, PEER, 1000, False)]  # it should hear that the row is gone
    (row,) = store.pending_rows(todo.TABLE_ID, PEER, None, 10).rows
    assert row[-2]


@pytest.mark.parametrize("name", ["trkrVersionId", "TRKRPROCESSED", "fromNodeId", "doortime"])
def test_11_columns_are_not_called_like_those_of_a_tracker(place: Place, name: str) -> None:
    place.run(f"CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, {name} bigint)")
    with pytest.raises(TailraceError) as caught:
        place.install(todo.todo())
    assert caught.value.code == "config.invalid" and name.lower() in caught.value.what.lower()


def test_12_nothing_goes_back_to_where_it_came_from(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "milk")
    sync(two, one)
    two.process_changes()
    assert two.nodes_with_pending() == {}
    assert [row[:2] for row in todo.trackers(other)] == [(1, one.node_id)]
    third_party = 99
    two.meet(third_party, WE_CALL)
    assert two.nodes_with_pending() == {third_party: [todo.TABLE_ID]}


def test_13_what_a_sender_says_about_trackers_does_not_count(place: Place) -> None:
    """Whose row it is, a receive view's body is told."""
    place.run("CREATE TABLE heard(sender bigint)")
    note = "INSERT INTO heard VALUES (NEW.fromNodeId);"
    store = todo.node(place, receive=Receive(body=Sql(f"{note} {_UPSERT}")))
    store.meet(PEER, WE_CALL)
    told = ("id", "changed", "what", "is_done", "trkrDestinationNode", "trkrProcessed")
    store.receive(todo.TABLE_ID, PEER, RowBatch(told, [(1, 1000, "milk", None, 5, True, 1000, PEER, False, 1000)]))
    assert place.ask("SELECT sender FROM heard") == [(PEER,)]
    assert todo.trackers(place) == [(1, PEER, 1000, True)]


_UPSERT = """INSERT INTO todo(id, changed, what) VALUES (NEW.id, NEW.changed, NEW.what)
    ON CONFLICT (id) DO UPDATE SET changed = excluded.changed, what = excluded.what"""


def test_14_tables_of_a_lower_batch_come_first(places: Places, dialect: str) -> None:
    """And in both directions, before any other begins."""
    place, other = places(dialect), places(dialect)
    entities = [
        Entity("second", 1, "changed", batch=200, batch_rows=2),
        Entity("first", 2, "changed", batch=100, batch_rows=2),
    ]
    for each in (place, other):
        for table in ("first", "second"):
            each.run(f"CREATE TABLE {table}(id bigint PRIMARY KEY, changed bigint)")
    one, two = place.install(*entities), other.install(*entities)
    for each, start in ((place, 0), (other, 100)):
        for table in ("first", "second"):
            each.run(*(f"INSERT INTO {table}(id) VALUES ({number + start})" for number in range(5)))
    meet(two, one)
    asked: list[int] = []

    class Noting(DirectPeer):
        def pending_rows(self, table_id: int, after: Key | None, limit: int, part: Part = Part.ALL) -> RowBatch:
            asked.append(table_id)
            return super().pending_rows(table_id, after, limit, part)

        def receive(self, table_id: int, batch: RowBatch) -> Receipt:
            asked.append(table_id)
            return super().receive(table_id, batch)

    sync_round(two, Noting(two, one))
    assert asked == sorted(asked, reverse=True) and set(asked) == {1, 2}


@pytest.mark.parametrize("page", [1, 2])
@pytest.mark.parametrize("direction", ["fetch", "send"])
def test_14_a_lower_batch_that_gets_something_meanwhile_comes_first_again(
    place: Place, other: Place, direction: str, page: int
) -> None:
    """A right and what it allows are given together, while rows of the higher batch are on their way."""
    create = "CREATE TABLE {}(id bigint PRIMARY KEY, changed bigint)"
    allowed = Receive(condition=Sql("EXISTS (SELECT 1 FROM allowed WHERE allowed.id = NEW.id)"))
    entities = (
        Entity("allowed", 9, "changed", batch=1),
        Entity("thing", 8, "changed", batch=2, batch_rows=1, receive=allowed),
    )
    for each in (place, other):
        each.run(create.format("allowed"), create.format("thing"))
    one, two = place.install(*entities), other.install(*entities)
    place.run("INSERT INTO allowed(id) VALUES (1), (2)", "INSERT INTO thing(id) VALUES (1), (2)")
    asked = 0

    def pending_rows(store: SyncStore) -> Any:
        ask = store.pending_rows

        def asked_for(table_id: int, *more: Any) -> RowBatch:
            nonlocal asked
            asked += table_id == 8
            if table_id == 8 and asked == page:
                more_of_both = [f"INSERT INTO {table}(id) VALUES (0), (3)" for table in ("allowed", "thing")]
                store.database.write(lambda link: [link.run(statement) for statement in more_of_both])
                store.process_changes()
            return ask(table_id, *more)

        return asked_for

    one.pending_rows = pending_rows(one)  # type: ignore[method-assign]
    done = sync(two, one) if direction == "fetch" else sync(one, two)
    assert (done.refused, done.fetched + done.sent) == (0, 8)
    assert other.ask("SELECT id FROM thing ORDER BY id") == [(0,), (1,), (2,), (3,)]
    assert one.nodes_with_pending() == {}


def test_17_pages_go_on_behind_a_key(place: Place) -> None:
    """Whatever is confirmed or changed meanwhile, no row is left out."""
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    place.run(*(f"INSERT INTO todo(id, what) VALUES ({number}, 'x')" for number in range(25)))
    store.process_changes()
    seen: list[object] = []
    after = None
    while rows := store.pending_rows(todo.TABLE_ID, PEER, after, 10).rows:
        seen += [row[0] for row in rows]
        store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((row[0],), row[-1], row[-3])) for row in rows[::2]])
        after = (rows[-1][0],)
    assert seen == list(range(25))
    assert [each.key[0] for each in store.pending_trackers(todo.TABLE_ID, PEER, None, 99)] == [
        number for number in range(25) if number % 10 % 2
    ]


def test_23_a_node_never_has_itself_for_a_peer(place: Place) -> None:
    store = todo.node(place)
    for node in (store.node_id, 0, -5, 1 << 63):
        with pytest.raises(TailraceError) as caught:
            store.meet(node, WE_CALL)
        assert caught.value.code == "sync.bad_node"
    place.run(f"INSERT INTO DoorNode(nodeId) VALUES ({store.node_id})")
    todo.put(place, 1, "milk")
    store.process_changes()
    assert todo.trackers(place) == []


def test_an_ack_of_an_older_version_leaves_the_row_pending(place: Place) -> None:
    """D9: the row was changed between sending and confirming."""
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    todo.put(place, 1, "milk", changed=1000)
    store.process_changes()
    todo.put(place, 1, "bread", changed=2000)
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((1,), 1000, store.node_id))])
    assert todo.trackers(place) == [(1, PEER, 1000, False)]
    store.process_changes()
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((1,), 2000, ANY_NODE))])
    assert todo.trackers(place) == [(1, PEER, 2000, True)]


def test_who_knows_a_version_already_is_not_sent_it(places: Places, dialect: str) -> None:
    """A row that came from one node is not sent again by another."""
    spots = [places(dialect) for _ in range(3)]
    one, two, three = (todo.node(each) for each in spots)
    todo.put(spots[0], 1, "milk")
    sync(two, one)
    sync(three, one)
    progress = sync(three, two)
    assert (progress.fetched, progress.sent) == (0, 0)
    assert two.nodes_with_pending() == three.nodes_with_pending() == {}
