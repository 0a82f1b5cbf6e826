"""The shelf: by tier, then by load, then by the time that somebody has waited."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.topology.member import Member
from tailrace.topology.shelf import Shelf
from tests.topology.places import site


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30), st.data())
def test_it_is_a_sorted_list(keys: list[tuple[int, int]], data: st.DataObject) -> None:
    shelf = Shelf()
    members = [(key, Member(site(number))) for number, key in enumerate(keys)]
    for key, member in members:
        shelf.put(key, member)
    for key, member in data.draw(st.lists(st.sampled_from(members), unique=True) if members else st.just([])):
        shelf.take(key, member)
        members.remove((key, member))
    expected = [member for _, member in sorted(members, key=lambda pair: pair[0])]
    assert list(shelf) == expected
    assert bool(shelf) is bool(expected)
    assert sorted(map(id, shelf.deepest_first())) == sorted(map(id, expected))
