"""What a deletion that came takes with it: its sender did not know it, so it is kept."""

from __future__ import annotations

import pytest

from tailrace.sync.entity import Entity
from tailrace.sync.exchange import Part
from tailrace.sync.room import RoomLimit
from tailrace.sync.store import SyncStore
from tests.sync.conftest import Places
from tests.sync.direct import meet, sync
from tests.sync.lists import PAIRS, by_caller, lists, settle, tasks, tree, trees
from tests.sync.places import Place


@pytest.mark.parametrize("calls", ["sender", "receiver"])
@pytest.mark.parametrize("kinds", PAIRS)
@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
def test_what_was_added_meanwhile_is_kept(places: Places, kinds: tuple[str, str], action: str, calls: str) -> None:
    place, other = map(places, kinds)
    one, two = (lists(each, f"ON DELETE {action}") for each in (place, other))
    pair = by_caller(calls, one, two)
    place.run("INSERT INTO list(id) VALUES (1)", "INSERT INTO task(id, list, what) VALUES (1, 1, 'known')")
    settle(*pair)
    place.run("DELETE FROM task", "DELETE FROM list")
    other.run("INSERT INTO task(id, list, what) VALUES (7, 1, 'new')")
    settle(*pair)
    assert tasks(place) == tasks(other) == ([] if action == "CASCADE" else [(7, None, "new")])
    assert place.ask("SELECT id FROM list") == other.ask("SELECT id FROM list") == []
    (kept,) = [*one.quarantined(), *two.quarantined()]
    assert (kept.why, kept.table_id, kept.key, kept.node, kept.sender) == ("lost", 2, [7], two.node_id, one.node_id)
    assert kept.row is not None and (kept.row["list"], kept.row["what"]) == (1, "new")
    assert "referred to a row that another node has deleted" in kept.reason


def test_what_refers_to_what_goes_is_kept_too(place: Place, other: Place) -> None:
    one, two = tree(place), tree(other)
    place.run("INSERT INTO tree(id) VALUES (10)", "INSERT INTO tree(id, parent) VALUES (11, 10)")
    settle(one, two)
    place.run("DELETE FROM tree WHERE id = 10")
    other.run("INSERT INTO tree(id, parent) VALUES (5, 11)", "INSERT INTO tree(id, parent) VALUES (6, 5)")
    settle(one, two)
    assert trees(place) == trees(other) == []
    assert sorted((each.why, each.key) for each in two.quarantined()) == [("lost", [5]), ("lost", [6])]


@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_what_its_sender_has_deleted_itself_is_not(place: Place, other: Place, rows: int) -> None:
    one, two = tree(place, rows), tree(other, rows)
    place.run(
        "INSERT INTO tree(id) VALUES (1)", *(f"INSERT INTO tree(id, parent) VALUES ({n}, {n - 1})" for n in (2, 3, 4))
    )
    settle(one, two)
    place.run("DELETE FROM tree WHERE id = 1")
    settle(one, two)
    assert trees(place) == trees(other) == []
    assert one.quarantined() == two.quarantined() == []


def test_deletions_of_one_page_are_no_changes_of_who_takes_them(place: Place, other: Place) -> None:
    one, two = tree(place), tree(other)
    place.run(
        "INSERT INTO tree(id) VALUES (1)", *(f"INSERT INTO tree(id, parent) VALUES ({n}, {n - 1})" for n in (2, 3, 4))
    )
    settle(one, two)
    place.run("DELETE FROM tree WHERE id = 1")
    assert sync(one, two).sent == 4
    assert sync(one, two).fetched == 0
    assert {node for (node,) in other.ask("SELECT stNode FROM treeStamp")} == {one.node_id}


def test_an_edit_that_its_sender_did_not_know_stays_kept(place: Place, other: Place) -> None:
    """The sender has deleted the row, too, and tells it later; it had another version of it, though."""
    one, two = tree(place, 1), tree(other, 1)
    place.run("INSERT INTO tree(id) VALUES (1)", "INSERT INTO tree(id, parent) VALUES (2, 1)")
    settle(one, two)
    other.run("UPDATE tree SET what = 'edited' WHERE id = 2")
    place.run("DELETE FROM tree WHERE id = 1")
    settle(one, two)
    assert trees(place) == trees(other) == []
    kept = [*one.quarantined(), *two.quarantined()]
    assert {(each.why, str(each.row and each.row["what"])) for each in kept} == {("lost", "edited")}


def test_a_deletion_waits_while_a_later_version_of_what_it_would_take_does(place: Place, other: Place) -> None:
    one, two = lists(place), lists(other)
    place.run("INSERT INTO list(id) VALUES (1)", "INSERT INTO task(id, list, what) VALUES (1, 1, 'precious')")
    settle(one, two)
    place.run("INSERT INTO list(id) VALUES (2)", "UPDATE task SET list = 2", "DELETE FROM list WHERE id = 1")
    one.process_changes()
    meet(one, two)
    for table, part in ((2, Part.ALL), (1, Part.DELETIONS)):  # the list to which it was moved comes last
        two.receive(table, one.node_id, one.pending_rows(table, two.node_id, None, 10, part))
    two.process_changes()
    assert tasks(other) == [(1, 1, "precious")]
    assert sorted((each.why, each.table_id) for each in two.quarantined()) == [("waiting", 1), ("waiting", 2)]
    two.receive(1, one.node_id, one.pending_rows(1, two.node_id, None, 10, Part.ROWS))
    two.process_changes()
    assert tasks(other) == [(1, 2, "precious")]
    assert other.ask("SELECT id FROM list") == [(2,)]
    assert two.quarantined() == []


def test_without_room_for_what_it_would_take_a_deletion_is_left(place: Place, other: Place) -> None:
    one, two = lists(place), lists(other)
    narrow = SyncStore(two.database, [shape.entity for shape in two.by_batch()], RoomLimit(rows_max=1))
    place.run("INSERT INTO list(id) VALUES (1), (2)")
    settle(one, narrow)
    place.run("DELETE FROM list")
    other.run("INSERT INTO task(id, list) VALUES (7, 1), (8, 1)", "INSERT INTO task(id, list) VALUES (9, 2)")
    meet(one, narrow)
    one.process_changes()
    receipt = narrow.receive(1, one.node_id, one.pending_rows(1, narrow.node_id, None, 10))
    assert [ack.tracker.key for ack in receipt.left] in ([(1,), (2,)], [(1,)])
    assert "would be deleted" in str(receipt.left[0].refused)
    assert {7, 8} <= {key for key, *_ in tasks(other)}


def test_other_columns_than_the_key_may_be_referred_to(places: Places, dialect: str) -> None:
    stores = []
    for place in (first := places(dialect), second := places(dialect)):
        place.run(
            "CREATE TABLE list(id bigint PRIMARY KEY, changed bigint, area text, code bigint, UNIQUE (area, code))",
            """CREATE TABLE task(id bigint PRIMARY KEY, changed bigint, what text, place bigint, area text,
                FOREIGN KEY (area, place) REFERENCES list(area, code) ON DELETE CASCADE)""",
        )
        stores.append(place.install(Entity("list", 1, "changed"), Entity("task", 2, "changed")))
    one, two = stores
    first.run("INSERT INTO list(id, area, code) VALUES (1, 'north', 5)")
    settle(one, two)
    first.run("DELETE FROM list")
    second.run("INSERT INTO task(id, area, place) VALUES (7, 'north', 5)")
    settle(one, two)
    assert second.ask("SELECT id FROM task") == []
    assert [(each.why, each.key) for each in two.quarantined()] == [("lost", [7])]
