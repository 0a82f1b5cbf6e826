"""Trackers: what a page of them reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tailrace.sync import trackers
from tailrace.sync.columns import Columns
from tailrace.sync.database import Link, Page
from tailrace.sync.store import CALLS_US
from tests.sync import todo
from tests.sync.conftest import Places

PEER = 4711
ROWS = 2000


class Explaining:
    """A link that says how a page would be read, and reads nothing."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.plan: dict[str, Any] = {}

    def page(self, query: str, values: Sequence[Any], _length_max: int) -> Page:
        for way in ("enable_nestloop", "enable_hashjoin", "enable_sort"):  # so that it is the one for large tables
            self._link.run(f"SET LOCAL {way} = off")
        self.plan = self._link.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", values)[0]["Plan"]
        return Page(Columns(()), False)


def test_a_page_reads_nothing_of_what_is_before_it_in_postgres(places: Places) -> None:
    """Otherwise each page would take longer than the one before."""
    place = places("postgres")
    store = todo.node(place)
    place.run(f"INSERT INTO todo(id) SELECT generate_series(1, {ROWS})", "ANALYZE todo", "ANALYZE todostamp")
    store.meet(PEER, CALLS_US)
    shape = store.shape(todo.TABLE_ID)

    def explain(link: Link) -> dict[str, Any]:
        explaining = Explaining(link)
        trackers.pending_rows(explaining, shape, PEER, (ROWS - 100,), 50)  # type: ignore[arg-type]
        return explaining.plan

    read = dict(_scans(store.database.read(explain)))
    assert read.keys() == {"todo", "todostamp", "todoreplicate"}
    assert 50 <= min(read.values()) <= max(read.values()) <= 100, read


def _scans(plan: dict[str, Any]) -> Iterator[tuple[str, float]]:
    if "Relation Name" in plan:
        yield plan["Relation Name"], plan["Actual Rows"] * plan["Actual Loops"] + plan.get("Rows Removed by Filter", 0)
    for inner in plan.get("Plans", ()):
        yield from _scans(inner)
