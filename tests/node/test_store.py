"""Databases that several nodes write: what one has, all have, and nothing goes round in circles."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.message import NodeId
from tests.node.shops import Shop, settle
from tests.relay.nodes import wait_for

CLUSTER = str(uuid.UUID(int=8))


@pytest.fixture
def shops(tmp_path: Path) -> Iterator[list[Shop]]:
    with ExitStack() as stack:
        nodes = [stack.enter_context(Shop(tmp_path / name, CLUSTER)) for name in "abc"]
        for node in nodes:
            for other in nodes:
                if other is not node:
                    node.follow(other)
        yield nodes


def test_what_one_writes_all_have(shops: list[Shop]) -> None:
    for number, shop in enumerate(shops):
        shop.run(f"INSERT INTO t VALUES ({number}, 'from {number}'), ({number + 10}, 'too')")
    settle(shops)
    assert [shop.rows() for shop in shops] == [shops[0].rows()] * 3
    assert len(shops[0].rows()) == 6
    shops[1].run("UPDATE t SET word = 'changed' WHERE id = 0", "DELETE FROM t WHERE id = 12")
    settle(shops)
    for shop in shops:
        assert (0, "changed") in shop.rows()
        assert len(shop.rows()) == 5


def test_what_came_from_elsewhere_is_not_captured_again(shops: list[Shop]) -> None:
    shops[0].run("INSERT INTO t VALUES (1, 'once')")
    settle(shops)
    known = shops[0].journal.vclock
    assert known.total == 1
    for _ in range(3):
        settle(shops)
    assert {shop.journal.vclock for shop in shops} == {known}
    assert shops[1].rows("SELECT count(*) FROM tailrace_changelog") == [(0,)]


def test_both_at_once(shops: list[Shop]) -> None:
    """What the database's own users write beside what is applied is noted, though numbers are left out between."""
    for number in range(20):
        for at, shop in enumerate(shops):
            shop.run(f"INSERT INTO t VALUES ({number * 3 + at}, 'x')")
            shop.turn()
    settle(shops)
    assert [len(shop.rows()) for shop in shops] == [60] * 3
    assert shops[0].journal.vclock.total == 60


def test_a_store_that_comes_back(shops: list[Shop]) -> None:
    """What is in the journal and not in the database is applied; what is in the database and not in the journal is
    captured."""
    a, b, _ = shops
    a.run("INSERT INTO t VALUES (1, 'a')")
    a.store.capture()
    wait_for(lambda: b.journal.vclock[NodeId(a.id)] == 1)
    b.run("INSERT INTO t VALUES (2, 'b')")
    b.store.close()
    b.open_store()
    settle(shops)
    assert a.rows() == b.rows() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))])
def test_all_write_the_same_rows_and_agree_in_the_end(shops: list[Shop], seed: int) -> None:
    """Inserts, updates, deletes and rows that move to another key, by all at once, seen by each in another order."""
    chosen = random.Random(seed)
    for number in range(60):
        shop = chosen.choice(shops)
        id_, other = chosen.randrange(6), chosen.randrange(6)
        shop.run(
            chosen.choice(
                [
                    f"INSERT OR REPLACE INTO t VALUES ({id_}, 'row {number}')",
                    f"UPDATE t SET word = 'row {number}' WHERE id = {id_}",
                    f"DELETE FROM t WHERE id = {id_}",
                    f"UPDATE OR REPLACE t SET id = {other} WHERE id = {id_}",
                ]
            )
        )
        if chosen.random() < 0.5:
            chosen.choice(shops).store.capture()
        if chosen.random() < 0.5:
            chosen.choice(shops).turn()
    settle(shops)
    assert [shop.rows() for shop in shops] == [shops[0].rows()] * 3
    versions = "SELECT namespace, key, at, origin, lsn FROM tailrace_version ORDER BY namespace, key"
    assert [shop.rows(versions) for shop in shops] == [shops[0].rows(versions)] * 3


def test_the_later_write_stays(shops: list[Shop]) -> None:
    a, b, _ = shops
    a.run("INSERT INTO t VALUES (1, 'first')")
    settle(shops)
    a.run("UPDATE t SET word = 'earlier' WHERE id = 1")
    a.store.capture()
    b.run("UPDATE t SET word = 'later' WHERE id = 1")  # it does not know of the other yet, or at least has not seen it
    b.store.capture()
    settle(shops)
    assert [shop.rows() for shop in shops] == [[(1, "later")]] * 3


def test_what_users_write_while_something_is_applied_is_not_overwritten(shops: list[Shop]) -> None:
    """What came from elsewhere is older than what they write when it is there and not applied yet."""
    a, b, _ = shops
    a.run("INSERT INTO t VALUES (1, 'from a')")
    a.store.capture()
    wait_for(lambda: b.journal.vclock[NodeId(a.id)] == 1)
    b.run("INSERT INTO t VALUES (1, 'by a user of b')")
    b.store.apply()
    assert b.rows() == [(1, "by a user of b")]
    settle(shops)
    assert [shop.rows() for shop in shops] == [[(1, "by a user of b")]] * 3


def test_a_deleted_row_is_not_brought_back_by_an_older_change(shops: list[Shop]) -> None:
    a, b, _ = shops
    a.run("INSERT INTO t VALUES (1, 'x')")
    settle(shops)
    a.run("UPDATE t SET word = 'changed' WHERE id = 1")
    a.store.capture()
    b.run("DELETE FROM t WHERE id = 1")
    b.store.capture()
    settle(shops)
    assert [shop.rows() for shop in shops] == [[]] * 3


def test_of_a_move_only_one_half_may_be_newer(shops: list[Shop]) -> None:
    """The row that it leaves is gone, though the one it comes to was changed later by somebody else."""
    a, b, _ = shops
    a.run("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    settle(shops)
    a.run("DELETE FROM t WHERE id = 2", "UPDATE t SET id = 2 WHERE id = 1")
    a.store.capture()
    b.run("UPDATE t SET word = 'later' WHERE id = 2")
    b.store.capture()
    settle(shops)
    assert [shop.rows() for shop in shops] == [[(2, "later")]] * 3


def test_rows_of_its_own_come_back_with_all_that_happened_to_them(shops: list[Shop]) -> None:
    """A row that others wrote moves to a key that they never wrote, and is deleted there, before anything is merged."""
    a, b, _ = shops
    a.run("INSERT INTO t VALUES (1, 'of a')")
    settle(shops)
    b.run("UPDATE t SET id = 50 WHERE id = 1", "DELETE FROM t WHERE id = 50")
    settle(shops)
    assert [shop.rows() for shop in shops] == [[]] * 3


def test_a_table_without_a_key_is_refused(tmp_path: Path) -> None:
    """Its rows have only numbers of their own in each database."""
    shop = Shop(tmp_path / "a", CLUSTER)
    with shop:
        shop.run("CREATE TABLE k(x TEXT)")
        shop.store.close()
        with pytest.raises(TailraceError, match=r"main\.k has no primary key") as caught:
            shop.open_store()
        assert caught.value.code == "config.invalid"
        shop.run("DROP TABLE k")
        shop.open_store()
