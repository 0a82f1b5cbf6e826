"""Trackers: what a page of them reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tailrace.sync import trackers
from tailrace.sync.columns import Columns
from tailrace.sync.database import Link
from tailrace.sync.page import Page
from tailrace.sync.store import CALLS_US, SyncStore
from tests.sync import todo
from tests.sync.conftest import Places

PEER = 4711
ROWS = 2000


class Explaining:
    """A link that says how a page would be read first, and reads nothing of it."""

    def __init__(self, link: Link, *ways_off: str) -> None:
        self._link = link
        self._ways_off = ways_off
        self.run, self.rows = link.run, link.rows
        self.plan: dict[str, Any] = {}

    def page(self, query: str, values: Sequence[Any], _length_max: int) -> Page:
        if self.plan:
            return Page(Columns(()), False)
        for way in self._ways_off:
            self._link.run(f"SET LOCAL {way} = off")
        self.plan = self._link.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", values)[0]["Plan"]
        return Page(Columns(()), False)


def test_a_page_reads_nothing_of_what_is_before_it_in_postgres(places: Places) -> None:
    """Otherwise each page would take longer than the one before."""
    place = places("postgres")
    store = todo.node(place)
    place.run(f"INSERT INTO todo(id) SELECT generate_series(1, {ROWS})", "ANALYZE todo", "ANALYZE todostamp")
    store.meet(PEER, CALLS_US)
    place.run("UPDATE todoreplicate SET trkrprocessed = true WHERE trkrentityprimarykey % 10 <> 0")
    shape = store.shape(todo.TABLE_ID)

    def explain(link: Link) -> dict[str, Any]:
        ways = ("enable_nestloop", "enable_hashjoin", "enable_sort")  # so that it is the one for large tables
        explaining = Explaining(link, *ways)
        trackers.pending_rows(explaining, shape, PEER, (ROWS - 600,), 50)  # type: ignore[arg-type]
        return explaining.plan

    read = dict(_scans(store.database.read(explain)))
    assert read.keys() == {"todo", "todostamp", "todoreplicate"}
    assert 50 <= min(read.values()) <= max(read.values()) <= 600, read


def test_a_dense_page_is_read_in_one_go_in_postgres(places: Places) -> None:
    """Nothing is known yet about the trackers of a new node, and PostgreSQL would search row by row."""
    place = places("postgres")
    store = todo.node(place)
    place.run(f"INSERT INTO todo(id) SELECT generate_series(1, {ROWS})")
    store.meet(PEER, CALLS_US)
    shape = store.shape(todo.TABLE_ID)

    def explain(link: Link, after: int) -> dict[str, Any]:
        explaining = Explaining(link)
        trackers.pending_rows(explaining, shape, PEER, (after,), 500)  # type: ignore[arg-type]
        return explaining.plan

    for after in (0, 1000):
        plan = store.database.read(partial(explain, after=after))
        assert dict(_scans(plan)) == {"todo": 500, "todostamp": 500, "todoreplicate": 500}, plan
        assert {node["Node Type"] for node in _nodes(plan)}.isdisjoint({"Nested Loop", "Sort"}), plan


def test_a_dense_page_is_as_long_as_was_asked_for(places: Places, dialect: str) -> None:
    """Also where it has trackers of which nobody can be told: who gets fewer rows believes that there are no more."""
    place = places(dialect)
    store = todo.node(place)
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) SELECT i FROM n"
    place.run(f"INSERT INTO todo(id) {numbers}")
    store.meet(PEER, CALLS_US)
    assert _keys(store, 1000, 500) == list(range(1001, 1501))
    assert _keys(store, 1900, 500) == list(range(1901, 2001))
    assert _keys(store, 1999, 500) == [2000]
    assert _keys(store, 2000, 500) == []
    place.run("UPDATE todoReplicate SET trkrProcessed = true WHERE trkrEntityPrimaryKey BETWEEN 1101 AND 1150")
    assert _keys(store, 1000, 500) == [*range(1001, 1101), *range(1151, 1551)]
    place.run("DELETE FROM todoStamp WHERE stEntityPrimaryKey BETWEEN 1201 AND 1210")
    assert _keys(store, 1000, 500) == [*range(1001, 1101), *range(1151, 1201), *range(1211, 1561)]
    place.run("UPDATE todoReplicate SET trkrProcessed = true WHERE trkrEntityPrimaryKey % 100 <> 0")
    assert _keys(store, 1000, 500) == list(range(1100, 2001, 100))


def _keys(store: SyncStore, after: int, limit: int) -> list[int]:
    """Of a page."""
    batch = store.pending_rows(todo.TABLE_ID, PEER, (after,), limit)
    return [row[0] for row in batch.rows]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def _scans(plan: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for node in _nodes(plan):
        if "Relation Name" in node:
            read = node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
            yield node["Relation Name"], read
