"""Reports: what nodes say about themselves is believed within limits."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.topology.member import Report


@pytest.mark.parametrize("wrong", [{"received": -1}, {"generation": 1 << 63}, {"lag_s": math.nan}, {"lag_s": math.inf}])
def test_what_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(TailraceError, match=r"input\.invalid"):
        Report(**wrong)


@pytest.mark.parametrize(
    ("mine", "source", "expected"),
    [
        (Report(received=5), Report(first_offset=5), True),
        (Report(received=4), Report(first_offset=5), False),
        (Report(), Report(first_offset=5), True),
        (Report(received=4), Report(), True),
        (Report(generation=2), Report(generation=2), True),
        (Report(generation=3), Report(generation=2), False),
        (Report(generation=1), Report(generation=2), True),
    ],
)
def test_where_a_log_goes_on(mine: Report, source: Report, expected: bool) -> None:
    assert mine.is_covered_by(source) is expected
