"""Rows that wait for others are told of."""

from __future__ import annotations

from tailrace.observe.model import Health, Kind
from tailrace.observe.syncs import overview_of_sync
from tests.sync.direct import meet, sync
from tests.sync.lists import lists
from tests.sync.places import Place


def test_the_status_says_that_rows_wait(place: Place, other: Place) -> None:
    one, two = lists(place), lists(other)
    place.run("INSERT INTO list(id) VALUES (1)", "INSERT INTO task(id, list) VALUES (1, 1), (2, 1), (3, NULL)")
    meet(one, two)
    one.process_changes()
    two.receive(2, one.node_id, one.pending_rows(2, two.node_id, None, 10))
    two.process_changes()
    told = overview_of_sync("two.yml", two)
    assert told.health is Health.TROUBLED
    parts = {part.name: part for part in told.parts}
    assert (parts["list"].health, parts["task"].health) == (Health.GOOD, Health.TROUBLED)
    assert parts["task"].state == "rows wait for others"
    assert parts["task"].wrong is not None and parts["task"].wrong.what.startswith("2 of its rows came and wait")
    sync(one, two)
    two.process_changes()
    assert {part.health for part in overview_of_sync("two.yml", two).of(Kind.TABLE)} == {Health.GOOD}
