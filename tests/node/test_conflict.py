"""Two nodes write one row and do not know of each other: what each policy makes of it, and how people decide."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.node.conflict import Conflict, Keep, Policies, Policy
from tests.node.pgshops import PgShop
from tests.node.shops import Shop, settle
from tests.node.test_postgres_store import NewDatabase, new_database, postgres
from tests.relay.nodes import wait_for

__all__ = ["new_database", "postgres"]  # fixtures

CLUSTER = str(uuid.UUID(int=9))
Pair = tuple[Shop, Shop]
MakePair = Callable[[Policy], Pair]


@pytest.fixture(params=["sqlite", "postgres"])
def make_pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakePair]:
    """Two shops that follow each other and both have row 1; what is done next they do not tell each other before
    `meet`."""
    new: NewDatabase | None = request.getfixturevalue("new_database") if request.param == "postgres" else None
    with ExitStack() as stack:

        def shop(name: str, policies: Policies) -> Shop:
            if new is None:
                return Shop(tmp_path / name, CLUSTER, policies=policies)
            table = "CREATE TABLE t(id bigint PRIMARY KEY, word text); ALTER TABLE t REPLICA IDENTITY FULL"
            return PgShop(tmp_path / name, CLUSTER, new(), tables=table, policies=policies)

        def make(policy: Policy) -> Pair:
            a, b = (stack.enter_context(shop(name, Policies(policy))) for name in "ab")
            a.follow(b)
            b.follow(a)
            a.run("INSERT INTO t VALUES (1, 'old')")
            settle([a, b])
            return a, b

        yield make


def meet(a: Shop, b: Shop) -> None:
    """Each captures what it has; then each gets what the other has, and applies what it can."""
    for shop in (a, b):
        shop.store.capture()
    wait_for(lambda: a.journal.vclock == b.journal.vclock)
    for shop in (a, b):
        with suppress(TailraceError):
            shop.turn()


def conflicts(shop: Shop) -> list[Conflict]:
    return shop.store.storage.conflicts()


def rows_of(conflict: Conflict) -> tuple[Any, Any]:
    ours, theirs = (None if text is None else json.loads(text) for text in (conflict.ours, conflict.theirs))
    return ours, theirs


CHANGES = [
    pytest.param(
        "UPDATE t SET word = 'from a' WHERE id = 1", "UPDATE t SET word = 'from b' WHERE id = 1", 1, id="updates"
    ),
    pytest.param("INSERT INTO t VALUES (2, 'from a')", "INSERT INTO t VALUES (2, 'from b')", 2, id="inserts"),
    pytest.param("DELETE FROM t WHERE id = 1", "UPDATE t SET word = 'from b' WHERE id = 1", 1, id="delete and update"),
]


@pytest.mark.parametrize(("at_a", "at_b", "number"), CHANGES)
def test_the_newer_one_stays_and_both_are_kept(make_pair: MakePair, at_a: str, at_b: str, number: int) -> None:
    a, b = make_pair(Policy.LAST_WRITE)
    a.run(at_a)
    b.run(at_b)
    meet(a, b)
    settle([a, b])
    assert a.rows() == b.rows()
    (at_first,), (at_second,) = conflicts(a), conflicts(b)
    assert {at_first.keep, at_second.keep} == {Keep.OURS, Keep.THEIRS}
    assert rows_of(at_first) == tuple(reversed(rows_of(at_second)))
    assert json.loads(at_first.key) == {"id": number}


@pytest.mark.parametrize(("at_a", "at_b", "number"), CHANGES)
def test_a_row_in_conflict_is_skipped(make_pair: MakePair, at_a: str, at_b: str, number: int) -> None:
    a, b = make_pair(Policy.SKIP)
    a.run(at_a)
    b.run(at_b, "INSERT INTO t VALUES (7, 'beside')")
    meet(a, b)
    settle([a, b])
    assert a.rows(f"SELECT word FROM t WHERE id = {number}") != b.rows(f"SELECT word FROM t WHERE id = {number}")
    assert (7, "beside") in a.rows()
    assert [each.keep for shop in (a, b) for each in conflicts(shop)] == [None, None]


def test_what_follows_a_skipped_message_is_skipped_too(make_pair: MakePair) -> None:
    a, b = make_pair(Policy.SKIP)
    a.run("UPDATE t SET word = 'from a' WHERE id = 1")
    b.run("UPDATE t SET word = 'from b' WHERE id = 1")
    meet(a, b)
    b.run("UPDATE t SET word = 'from b again' WHERE id = 1")
    settle([a, b])
    assert a.rows() == [(1, "from a")]
    assert [rows_of(each)[1]["word"] for each in conflicts(a)] == ["from b", "from b again"]


def test_somebody_decides_about_what_was_skipped(make_pair: MakePair) -> None:
    a, b = make_pair(Policy.SKIP)
    a.run("UPDATE t SET word = 'from a' WHERE id = 1")
    b.run("UPDATE t SET word = 'from b' WHERE id = 1")
    meet(a, b)
    a.store.storage.resolve(conflicts(a)[0], Keep.THEIRS)
    b.store.storage.resolve(conflicts(b)[0], Keep.OURS)
    settle([a, b])
    assert a.rows() == b.rows() == [(1, "from b")]
    assert [each.keep for shop in (a, b) for each in conflicts(shop)] == [Keep.THEIRS, Keep.OURS]


@pytest.mark.parametrize("keep", list(Keep))
def test_the_store_stops_until_somebody_decides(make_pair: MakePair, keep: Keep) -> None:
    a, b = make_pair(Policy.STOP)
    b.run("INSERT INTO t VALUES (5, 'before')")
    b.store.capture()
    b.run("BEGIN", "UPDATE t SET word = 'from b' WHERE id = 1", "INSERT INTO t VALUES (6, 'with it')", "COMMIT")
    a.run("UPDATE t SET word = 'from a' WHERE id = 1")
    meet(a, b)
    with pytest.raises(TailraceError, match=r"row \{\"id\": 1\} of .*t was changed here") as caught:
        a.turn()
    assert caught.value.code == "relay.conflict"
    assert a.rows() == [(1, "from a"), (5, "before")], "nothing of the transaction, and all before it"
    (conflict,) = conflicts(a)
    assert rows_of(conflict) == ({"id": 1, "word": "from a"}, {"id": 1, "word": "from b"})
    a.store.storage.resolve(conflict, keep)
    a.turn()
    assert a.rows() == [(1, "from a" if keep is Keep.OURS else "from b"), (5, "before"), (6, "with it")]


def test_what_follows_a_decision_for_theirs_is_no_conflict(make_pair: MakePair) -> None:
    a, b = make_pair(Policy.STOP)
    b.run("UPDATE t SET word = 'from b' WHERE id = 1")
    b.store.capture()
    b.run("UPDATE t SET word = 'from b again' WHERE id = 1")
    a.run("UPDATE t SET word = 'from a' WHERE id = 1")
    meet(a, b)
    a.store.storage.resolve(conflicts(a)[0], Keep.THEIRS)
    a.turn()
    assert a.rows() == [(1, "from b again")]
    assert len(conflicts(a)) == 1


def test_a_deletion_that_is_kept_goes_to_the_others(make_pair: MakePair) -> None:
    a, b = make_pair(Policy.SKIP)
    a.run("DELETE FROM t WHERE id = 1")
    b.run("UPDATE t SET word = 'from b' WHERE id = 1")
    meet(a, b)
    a.store.storage.resolve(conflicts(a)[0], Keep.OURS)
    b.store.storage.resolve(conflicts(b)[0], Keep.THEIRS)
    settle([a, b])
    assert a.rows() == b.rows() == []


def test_a_move_onto_a_row_of_somebody_else(make_pair: MakePair) -> None:
    a, b = make_pair(Policy.SKIP)
    a.run("INSERT INTO t VALUES (2, 'mine')")
    b.run("UPDATE t SET id = 2 WHERE id = 1")
    meet(a, b)
    assert a.rows() == [(1, "old"), (2, "mine")]
    (conflict,) = conflicts(a)
    a.store.storage.resolve(conflict, Keep.THEIRS)
    assert a.rows() == [(2, "old")]


def test_rows_that_say_the_same_are_no_conflict(make_pair: MakePair) -> None:
    a, b = make_pair(Policy.STOP)
    for shop in (a, b):
        shop.run("INSERT INTO t VALUES (2, 'the same')", "DELETE FROM t WHERE id = 1")
    meet(a, b)
    settle([a, b])
    assert a.rows() == b.rows() == [(2, "the same")]
    assert conflicts(a) == conflicts(b) == []


def test_changes_one_after_the_other_are_no_conflict(make_pair: MakePair) -> None:
    a, b = make_pair(Policy.STOP)
    for number in range(6):
        (a, b)[number % 2].run(f"UPDATE t SET word = 'turn {number}' WHERE id = 1")
        settle([a, b])
    b.run("DELETE FROM t WHERE id = 1")
    settle([a, b])
    a.run("INSERT INTO t VALUES (1, 'again')")
    settle([a, b])
    assert a.rows() == b.rows() == [(1, "again")]
    assert conflicts(a) == conflicts(b) == []


@pytest.mark.parametrize("make_pair", ["sqlite"], indirect=True)
def test_a_receive_view_decides(make_pair: MakePair) -> None:
    a, b = make_pair(Policy.RECEIVE_VIEW)
    for shop in (a, b):
        shop.run(
            "CREATE VIEW t_ReceiveView AS SELECT id, word FROM t",
            """CREATE TRIGGER longest INSTEAD OF INSERT ON t_ReceiveView BEGIN
                INSERT INTO t VALUES (NEW.id, NEW.word) ON CONFLICT(id) DO UPDATE SET word = excluded.word
                WHERE length(excluded.word) > length(word); END""",
        )
    a.run("UPDATE t SET word = 'the longest of all' WHERE id = 1")
    b.run("UPDATE t SET word = 'short' WHERE id = 1")
    meet(a, b)
    settle([a, b])
    assert a.rows() == b.rows() == [(1, "the longest of all")]
