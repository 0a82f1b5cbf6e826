"""Convergence of rows that refer to each other: with cascades, too, rows are equal in the end (I9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.sync.entity import Entity
from tailrace.sync.store import SyncStore
from tests.sync.conftest import Places
from tests.sync.direct import Fault, sync
from tests.sync.lists import LIST, TASK, TREE
from tests.sync.places import Place

_SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
KINDS: Final = {
    "two SQLite": (("sqlite", "sqlite"), 40),
    "two PostgreSQL": (("postgres", "postgres"), 10),
    "SQLite around PostgreSQL": (("sqlite", "postgres", "sqlite"), 15),
}
TABLES: Final = {"list": "id, changed", "task": "id, changed, what, list", "tree": "id, changed, what, parent"}
KEYS: Final = 4


def steps(nodes: int, most: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    node, key = st.integers(0, nodes - 1), st.integers(1, KEYS)
    faults = st.lists(st.sampled_from([Fault.NONE, *Fault]), max_size=8).map(tuple)
    pairs = st.sampled_from([(one, other) for one in range(nodes) for other in range(nodes) if one != other])
    return st.lists(
        st.one_of(
            st.tuples(st.just("list"), node, key),
            st.tuples(st.sampled_from(["task", "tree"]), node, key, st.none() | key),
            st.tuples(st.just("delete"), node, st.sampled_from(list(TABLES)), key),
            st.tuples(st.just("sync"), pairs, faults),
        ),
        min_size=1,
        max_size=most,
    )


def put(place: Place, table: str, key: int, column: str = "", to: int | None = None) -> None:
    """Insert a row or change it; it refers to nothing if what it should refer to is not there."""
    other = "list" if table == "task" else "tree"
    if to is not None and not place.ask(f"SELECT 1 FROM {other} WHERE id = ?", (to,)):
        to = None
    if not place.ask(f"SELECT 1 FROM {table} WHERE id = ?", (key,)):
        place.ask(f"INSERT INTO {table}(id) VALUES (?)", (key,))
    change = f"{column} = ?" if column else "id = ?"
    place.ask(f"UPDATE {table} SET {change} WHERE id = ?", (to if column else key, key))


def do(places: Sequence[Place], stores: Sequence[SyncStore], step: tuple[Any, ...]) -> None:
    match step:
        case ("list", node, key):
            put(places[node], "list", key)
        case ("task", node, key, to):
            put(places[node], "task", key, "list", to)
        case ("tree", node, key, to):
            put(places[node], "tree", key, "parent", to)
        case ("delete", node, table, key):
            places[node].ask(f"DELETE FROM {table} WHERE id = ?", (key,))
        case ("sync", (one, other), faults):
            try:
                sync(stores[one], stores[other], faults)
            except TailraceError as error:
                assert error.code == "sync.unreachable" and faults, error


@pytest.mark.parametrize("kinds", KINDS)
def test_rows_that_refer_to_each_other_converge(places: Places, kinds: str) -> None:
    _converge(places, kinds, 1, 15)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kinds", KINDS)
def test_rows_that_refer_to_each_other_converge_after_long_lives(places: Places, kinds: str) -> None:
    _converge(places, kinds, 20, 50)


def _converge(places: Places, kinds: str, times: int, most: int) -> None:
    dialects, examples = KINDS[kinds]
    made = [places(dialect) for dialect in dialects]
    stores = []
    for place in made:
        place.run(LIST, TASK.format("ON DELETE CASCADE"), TREE)
        stores.append(place.install(*(Entity(table, number, "changed") for number, table in enumerate(TABLES, 1))))
    own = [f"{table}{kind}" for table in TABLES for kind in ("Replicate", "Stamp")]

    @settings(max_examples=examples * times, suppress_health_check=_SHARED, deadline=None)
    @given(steps(len(made), most))
    def run(todo: list[tuple[Any, ...]]) -> None:
        for place in made:
            for table in ("task", "list", "tree", *own, "ChangeLog", "DoorNode", "DoorQuarantine"):
                place.ask(f"DELETE FROM {table}")
        for step in todo:
            do(made, stores, step)
        for _ in range(2 * len(made) + 2):
            for one in range(len(made) - 1):
                sync(stores[one], stores[one + 1])
                sync(stores[one + 1], stores[one])
        for table, columns in TABLES.items():
            rows = [place.ask(f"SELECT {columns} FROM {table} ORDER BY id") for place in made]
            assert all(each == rows[0] for each in rows), (table, rows)
        assert [each for store in stores for each in store.quarantined() if each.why == "waiting"] == []

    run()
