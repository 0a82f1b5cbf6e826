"""Rows with different keys that have the same of what must be unique: one of them stays, the same one everywhere."""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psycopg
import pytest

from tailrace.errors import TailraceError
from tailrace.node.conflict import Keep, Policies, Policy
from tailrace.relay.applier import State
from tests.node.pgshops import PgShop
from tests.node.shops import Shop, settle
from tests.node.test_conflict import conflicts, meet, rows_of
from tests.node.test_postgres_store import NewDatabase, new_database, postgres
from tests.relay.nodes import wait_until

__all__ = ["new_database", "postgres"]  # fixtures

CLUSTER = str(uuid.UUID(int=9))
TABLE = "CREATE TABLE IF NOT EXISTS t(id {} PRIMARY KEY, word text UNIQUE, note text)"
MakeShops = Callable[..., list[Shop]]


@pytest.fixture(params=["sqlite", "postgres"])
def make_shops(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeShops]:
    """Shops that all follow each other, and all have rows 1 and 2."""
    new: NewDatabase | None = request.getfixturevalue("new_database") if request.param == "postgres" else None
    with ExitStack() as stack:

        def shop(name: str, policies: Policies) -> Shop:
            if new is None:
                return Shop(tmp_path / name, CLUSTER, policies=policies, table=TABLE.format("INTEGER"))
            return PgShop(tmp_path / name, CLUSTER, new(), tables=TABLE.format("bigint"), policies=policies)

        def make(policy: Policy, count: int = 2) -> list[Shop]:
            shops = [stack.enter_context(shop(name, Policies(policy))) for name in "abc"[:count]]
            for each in shops:
                for other in shops:
                    if other is not each:
                        each.follow(other)
            shops[0].run("INSERT INTO t VALUES (1, 'one', 'old'), (2, 'two', 'old')")
            settle(shops)
            return shops

        yield make


CLASHES = [
    pytest.param(
        "INSERT INTO t VALUES (3, 'x', 'a')", "INSERT INTO t VALUES (4, 'x', 'b')", 3, 4, [1, 2], id="inserts"
    ),
    pytest.param(
        "UPDATE t SET word = 'x', note = 'a' WHERE id = 1",
        "UPDATE t SET word = 'x', note = 'b' WHERE id = 2",
        1,
        2,
        [],
        id="updates",
    ),
    pytest.param(
        "UPDATE t SET id = 3, word = 'x', note = 'a' WHERE id = 1",
        "INSERT INTO t VALUES (4, 'x', 'b')",
        3,
        4,
        [2],
        id="move and insert",
    ),
]


@pytest.mark.parametrize(("at_a", "at_b", "of_a", "of_b", "untouched"), CLASHES)
def test_the_newer_row_stays_and_both_are_kept(
    make_shops: MakeShops, at_a: str, at_b: str, of_a: int, of_b: int, untouched: list[int]
) -> None:
    a, b = make_shops(Policy.LAST_WRITE)
    a.run(at_a)
    b.run(at_b)
    meet(a, b)
    settle([a, b])
    assert a.rows() == b.rows()
    ((stays, note),) = a.rows("SELECT id, note FROM t WHERE word = 'x'")
    assert (stays, note) in ((of_a, "a"), (of_b, "b"))
    lost = of_b if stays == of_a else of_a
    assert a.rows(f"SELECT * FROM t WHERE id = {lost}") == []
    assert [number for (number,) in a.rows("SELECT id FROM t WHERE note = 'old' ORDER BY id")] == untouched
    told = [(each.keep, {row["id"] for row in rows_of(each)}) for shop in (a, b) for each in conflicts(shop)]
    assert {keep for keep, _ in told} == {Keep.OURS, Keep.THEIRS}
    assert all(ids == {of_a, of_b} for _, ids in told)


def test_a_value_that_goes_from_row_to_row_is_no_conflict(make_shops: MakeShops) -> None:
    a, b = make_shops(Policy.STOP)
    b.run(
        "BEGIN",
        "UPDATE t SET word = 'free' WHERE id = 1",
        "UPDATE t SET word = 'one' WHERE id = 2",
        "UPDATE t SET word = 'two' WHERE id = 1",
        "COMMIT",
    )
    settle([a, b])
    a.run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 'two', 'new')")
    settle([a, b])
    assert a.rows() == b.rows() == [(2, "one", "old"), (3, "two", "new")]
    assert conflicts(a) == conflicts(b) == []


@pytest.mark.parametrize("policy", [Policy.LAST_WRITE, Policy.SKIP])
def test_a_value_that_the_losing_row_had_can_be_used(make_shops: MakeShops, policy: Policy) -> None:
    a, b = make_shops(policy)
    b.run("UPDATE t SET word = 'x' WHERE id = 1", "UPDATE t SET word = 'one' WHERE id = 2")
    b.store.capture()
    a.run("INSERT INTO t VALUES (3, 'x', 'a')")
    meet(a, b)
    b.run("INSERT INTO t VALUES (9, 'beside', 'b')")
    settle([a, b])
    assert (9, "beside", "b") in a.rows(), "the store goes on"
    if policy is Policy.LAST_WRITE:
        assert a.rows() == b.rows() == [(2, "one", "old"), (3, "x", "a"), (9, "beside", "b")]


def test_a_value_that_a_transaction_only_passes_is_nobodys(make_shops: MakeShops) -> None:
    a, b = make_shops(Policy.LAST_WRITE)
    a.run("INSERT INTO t VALUES (3, 'tmp', 'a')")
    a.store.capture()
    b.run(
        "BEGIN",
        "UPDATE t SET word = 'tmp' WHERE id = 1",
        "UPDATE t SET word = 'one' WHERE id = 2",
        "UPDATE t SET word = 'two' WHERE id = 1",
        "COMMIT",
    )
    meet(a, b)
    settle([a, b])
    assert a.rows() == b.rows() == [(1, "two", "old"), (2, "one", "old"), (3, "tmp", "a")]
    assert conflicts(a) == conflicts(b) == []


@pytest.mark.parametrize("keep", list(Keep))
def test_the_store_stops_until_somebody_decides(make_shops: MakeShops, keep: Keep) -> None:
    a, b = make_shops(Policy.STOP)
    a.run("INSERT INTO t VALUES (3, 'x', 'a')")
    b.run("INSERT INTO t VALUES (4, 'x', 'b')")
    meet(a, b)
    for shop, (ours, theirs) in ((a, (3, 4)), (b, (4, 3))):
        with pytest.raises(TailraceError, match=rf"row \{{\"id\": {theirs}\}} of main.t") as caught:
            shop.turn()
        assert caught.value.code == "relay.conflict"
        (conflict,) = conflicts(shop)
        assert [row["id"] for row in rows_of(conflict)] == [ours, theirs]
    a.store.storage.resolve(conflicts(a)[0], keep)
    b.store.storage.resolve(conflicts(b)[0], Keep.THEIRS if keep is Keep.OURS else Keep.OURS)
    settle([a, b])
    stays = (3, "x", "a") if keep is Keep.OURS else (4, "x", "b")
    assert a.rows() == b.rows() == [(1, "one", "old"), (2, "two", "old"), stays]


@pytest.mark.parametrize("keep", list(Keep))
def test_somebody_decides_about_what_was_skipped(make_shops: MakeShops, keep: Keep) -> None:
    a, b = make_shops(Policy.SKIP)
    a.run("INSERT INTO t VALUES (3, 'x', 'a')")
    b.run("INSERT INTO t VALUES (4, 'x', 'b')", "INSERT INTO t VALUES (5, 'beside', 'b')")
    meet(a, b)
    settle([a, b])
    assert [row[0] for row in a.rows()] == [1, 2, 3, 5]
    assert [row[0] for row in b.rows()] == [1, 2, 4, 5]
    a.store.storage.resolve(conflicts(a)[0], keep)
    b.store.storage.resolve(conflicts(b)[0], Keep.THEIRS if keep is Keep.OURS else Keep.OURS)
    settle([a, b])
    assert a.rows() == b.rows()
    assert a.rows("SELECT id FROM t WHERE word = 'x'") == [(3 if keep is Keep.OURS else 4,)]


def test_what_lost_can_be_brought_back(make_shops: MakeShops) -> None:
    a, b = make_shops(Policy.LAST_WRITE)
    a.run("INSERT INTO t VALUES (3, 'x', 'a')")
    b.run("INSERT INTO t VALUES (4, 'x', 'b')")
    meet(a, b)
    settle([a, b])
    ((stays,),) = a.rows("SELECT id FROM t WHERE word = 'x'")
    (conflict, *_) = conflicts(a)
    a.store.storage.resolve(conflict, Keep.OURS if conflict.keep is Keep.THEIRS else Keep.THEIRS)
    settle([a, b])
    assert a.rows() == b.rows()
    assert a.rows("SELECT id FROM t WHERE word = 'x'") == [({3: 4, 4: 3}[stays],)]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (7, 2026))])
def test_all_end_with_the_same_rows_in_whichever_order_they_hear(make_shops: MakeShops, seed: int) -> None:
    shops = make_shops(Policy.LAST_WRITE, 3)
    chance = random.Random(seed)
    shops[0].run("INSERT INTO t VALUES (7, 'w7', 'a')")
    shops[1].run("INSERT INTO t VALUES (8, 'w7', 'b')")  # two that meet for sure
    for _ in range(12):
        for shop in shops:
            for _ in range(chance.randrange(3)):
                number, word = chance.randrange(1, 7), f"w{chance.randrange(4)}"
                statement = chance.choice(
                    [
                        f"INSERT INTO t VALUES ({number}, '{word}', 'new')",
                        f"UPDATE t SET word = '{word}' WHERE id = {number}",
                        f"DELETE FROM t WHERE id = {number}",
                    ]
                )
                with suppress(sqlite3.IntegrityError, psycopg.errors.UniqueViolation):
                    shop.run(statement)
        chance.choice(shops).turn()
    settle(shops)
    first, *others = (shop.rows() for shop in shops)
    assert all(rows == first for rows in others)
    assert any(conflict.rival for shop in shops for conflict in conflicts(shop)), "there was something to see"


def test_an_anonymous_replica_gets_what_its_source_decided(tmp_path: Path) -> None:
    with ExitStack() as stack:
        a, b = (stack.enter_context(Shop(tmp_path / name, CLUSTER, table=TABLE.format("INTEGER"))) for name in "ab")
        a.follow(b)
        b.follow(a)
        quiet = stack.enter_context(Shop(tmp_path / "c", None, is_anonymous=True, table=TABLE.format("INTEGER")))
        wait_until(quiet.join(a), State.FOLLOW)
        a.run("INSERT INTO t VALUES (3, 'x', 'a')")
        b.run("INSERT INTO t VALUES (4, 'x', 'b')")
        a.store.capture()
        settle([quiet])
        meet(a, b)
        settle([a, b, quiet])
        assert a.rows() == b.rows() == quiet.rows()
        assert len(a.rows()) == 1
