"""Vector clocks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.message import Lsn, NodeId
from tailrace.relay.vclock import Vclock, decode_vclock


def clocks() -> st.SearchStrategy[Vclock]:
    lsns = st.dictionaries(st.integers(0, 5), st.integers(0, 5), max_size=5)
    return lsns.map(lambda told: Vclock({NodeId(origin): Lsn(lsn) for origin, lsn in told.items()}))


def clock(**lsns: int) -> Vclock:
    return Vclock({NodeId(int(name[1:])): Lsn(lsn) for name, lsn in lsns.items()})


@given(clocks(), clocks(), clocks())
def test_the_order_is_one(one: Vclock, two: Vclock, three: Vclock) -> None:
    assert one <= Vclock(one)
    if one <= two <= one:
        assert one == two
    if one <= two <= three:
        assert one <= three


@given(clocks(), clocks())
def test_joined_is_the_least_above_and_met_the_greatest_below(one: Vclock, two: Vclock) -> None:
    assert one <= one.joined(two) and two <= one.joined(two)
    assert one.met(two) <= one and one.met(two) <= two
    for origin in {*one, *two}:
        assert one.joined(two)[origin] in (one[origin], two[origin])
    assert one.joined(two) == two.joined(one)
    assert one.met(two) == two.met(one)


@given(clocks())
def test_it_travels_as_json(one: Vclock) -> None:
    assert decode_vclock(json.loads(json.dumps(one.encode()))) == one


def test_each_may_have_what_the_other_lacks() -> None:
    one, two = clock(n1=5), clock(n2=1)
    assert not one <= two and not two <= one
    assert one.joined(two).total == 6


def test_what_is_local_is_no_part_of_it() -> None:
    assert clock(n0=7, n1=1) == clock(n1=1)
    assert clock(n1=1).advanced(NodeId(0), Lsn(9)) == clock(n1=1)


def test_it_never_goes_back() -> None:
    assert clock(n1=5).advanced(NodeId(1), Lsn(3)) == clock(n1=5)
    assert str(clock(n2=9, n1=5)) == "{1: 5, 2: 9}"


@pytest.mark.parametrize(
    "told",
    [
        *(None, [], "x", {1: 1}, {"": 1}, {"-1": 1}, {"1.5": 1}, {"٣": 1}, {str(2**64): 1}, {"9" * 5000: 1}),
        *({"1": -1}, {"1": "1"}, {"1": True}, {"1": 1.0}, {"1": None}, {"1": 2**63}),
    ],
)
def test_what_is_none_is_refused(told: Any) -> None:
    with pytest.raises(TailraceError) as caught:
        decode_vclock(told)
    assert caught.value.code == "relay.malformed"
    assert len(caught.value.what) < 200
