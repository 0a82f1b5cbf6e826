"""Convergence: whatever nodes do and however often they are cut off, their rows are equal in the end (I9, R16, R17)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sync.conftest import Places
from tests.sync.world import World, steps, world

_SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
KINDS = {
    "two SQLite": ("sqlite", "sqlite"),
    "two PostgreSQL": ("postgres", "postgres"),
    "four SQLite": ("sqlite", "sqlite", "sqlite", "sqlite"),
    "SQLite around PostgreSQL": ("sqlite", "postgres", "sqlite"),
}
SHORT = {"two SQLite": 40, "two PostgreSQL": 15, "four SQLite": 25, "SQLite around PostgreSQL": 20}


@pytest.mark.parametrize("kinds", KINDS)
def test_nodes_converge(places: Places, kinds: str) -> None:
    _converge(places, kinds, SHORT[kinds], 20)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kinds", KINDS)
def test_nodes_converge_after_long_lives(places: Places, kinds: str) -> None:
    _converge(places, kinds, SHORT[kinds] * 40, 60)


def _converge(places: Places, kinds: str, examples: int, most: int) -> None:
    all_of_them: World = world([places(kind) for kind in KINDS[kinds]])

    @settings(max_examples=examples, suppress_health_check=_SHARED)
    @given(st.data())
    def run(data: Any) -> None:
        everything = World(all_of_them.places, all_of_them.stores)
        everything.clear()
        for step in data.draw(steps(len(everything.stores), most)):
            everything.do(step)
        everything.settle()
        everything.check()

    run()
