"""What a running pipeline has not delivered yet is no difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tailrace.verify.differences import Differences, DifferingKey, Kind
from tailrace.verify.settling import TRIES, settled


def found(**stored: int) -> Differences:
    """Differing keys by name, each with the hash of its row in the destination."""
    keys = tuple(DifferingKey(hash(name), name, Kind.DIFFERENT, (row,)) for name, row in stored.items())
    return Differences(10, 10, Counter(key.kind for key in keys), keys)


def looks(*differences: Differences) -> Callable[[], Differences]:
    waiting = iter(differences)
    return lambda: next(waiting)


def names(differences: Differences) -> list[str]:
    return [key.text for key in differences.keys]


def test_only_what_differs_at_every_look_does() -> None:
    result = settled(looks(found(a=1, b=1), found(b=1, c=1), found(b=1, a=1), found(b=1)), lambda: True)
    assert names(result.differences) == ["b"]
    assert result.moving == 0


def test_a_row_that_keeps_changing_is_on_its_way() -> None:
    result = settled(looks(*(found(hot=number, stuck=0) for number in range(TRIES))), lambda: True)
    assert names(result.differences) == ["stuck"]
    assert result.moving == 1


def test_nothing_is_looked_at_twice_without_need() -> None:
    assert settled(looks(found()), lambda: True).differences.total == 0
    assert names(settled(looks(found(a=1)), None).differences) == ["a"]
    assert names(settled(looks(found(a=1)), lambda: False).differences) == ["a"]


def test_of_too_many_keys_the_last_look_counts() -> None:
    many = Differences(10, 10, {Kind.MISSING: 500_000}, found(a=1).keys)
    assert settled(looks(many, found(b=1), found(b=1), found(b=1)), lambda: True).differences.counts == {
        Kind.DIFFERENT: 1
    }
