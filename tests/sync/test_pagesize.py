"""Pages grow as long as that is quick, and never beyond what the entity says."""

from __future__ import annotations

from dataclasses import replace

from tailrace.limits import SYNC_VALUES_MAX
from tailrace.sync.pagesize import PageSize
from tailrace.sync.shape import Column, Kind, Shape
from tests.sync.conftest import Places
from tests.sync.todo import node

TODO = 42


def _shape(places: Places, **more: int) -> Shape:
    return node(places("sqlite"), **more).shape(TODO)


def test_pages_grow_where_that_is_quick_and_shrink_where_it_is_slow(places: Places) -> None:
    size = PageSize(_shape(places))
    found = [size.rows]
    for seconds in (0.1, 0.1, 0.5, 0.1, 0.1, 0.1, 2.0, 0.5):
        size.took(seconds)
        found.append(size.rows)
    assert found == [1_000, 2_000, 4_000, 4_000, 8_000, 10_000, 10_000, 5_000, 5_000]
    for _ in range(20):
        size.took(10.0)
    assert size.rows == 100


def test_a_page_is_never_larger_than_the_entity_says(places: Places) -> None:
    size = PageSize(_shape(places, batch_rows=30))
    assert size.rows == 30
    for seconds in (0.0, 0.0, 10.0, 10.0):
        size.took(seconds)
        assert size.rows == 30


def test_a_page_of_a_table_with_very_many_columns_fits_into_a_request(places: Places) -> None:
    shape = _shape(places)
    wide = replace(shape, columns=(*shape.columns, *(Column(f"c{n}", "text", Kind.PLAIN) for n in range(1_500))))
    size = PageSize(wide)
    for _ in range(10):
        size.took(0.0)
    assert 0 < size.rows * len(wide.columns) < SYNC_VALUES_MAX / 2
