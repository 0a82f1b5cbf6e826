"""How fast something goes."""

from __future__ import annotations

import pytest

from tailrace.cli.sight import RATE_OVER_S, NamespaceSight, Rate
from tailrace.source.phase import Phase


def test_a_rate_needs_two_looks() -> None:
    rate = Rate()
    assert rate.note(100, 5.0) == 0.0
    assert rate.note(300, 7.0) == 100.0


def test_a_rate_forgets() -> None:
    rate = Rate()
    for second in range(11):
        rate.note(second * 1_000, float(second))
    for second in range(11, 21):
        last = rate.note(10_000, float(second))
    assert last == 0.0


def test_a_rate_after_a_long_pause_covers_the_pause() -> None:
    rate = Rate()
    rate.note(0, 0.0)
    assert rate.note(1_000, 10 * RATE_OVER_S) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("phase", "rows", "rate", "fraction", "left_s"),
    [
        (Phase.COPY, 400, 10.0, 0.25, 30.0),
        (Phase.COPY, None, 10.0, None, None),
        (Phase.COPY, 0, 10.0, None, None),
        (Phase.COPY, 400, 0.0, 0.25, None),
        (Phase.COPY, 50, 10.0, 1.0, 0.0),
        (Phase.SYNC, 400, 10.0, 1.0, None),
    ],
)
def test_how_much_is_left(
    phase: Phase, rows: int | None, rate: float, fraction: float | None, left_s: float | None
) -> None:
    sight = NamespaceSight("main.orders", phase, 100, rows, 100, rate)
    assert (sight.fraction, sight.left_s) == (fraction, left_s)
