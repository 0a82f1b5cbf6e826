"""Amounts with units."""

from __future__ import annotations

import pytest

from tailrace.errors import TailraceError
from tailrace.units import parse_bytes, parse_seconds, show_bytes, show_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("250ms", 0.25), ("5m", 300), ("1.5h", 5400), ("7d", 604800), ("2w", 1209600), ("42", 42)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GB", 10**9), ("1GiB", 2**30), ("512 MB", 512 * 10**6), ("1.5kB", 1500), ("7", 7), ("3b", 3), ("1TiB", 2**40)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 year", "1e3", "1GB2", "½h"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    for parse in (parse_seconds, parse_bytes):
        with pytest.raises(TailraceError) as refusal:
            parse(text)
        assert refusal.value.code == "input.invalid"


def test_amounts_for_people() -> None:
    assert [show_bytes(size) for size in (0, 999, 1000, 1_500_000, 10**15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.5 MB",
        "1.0 PB",
    ]
    assert [show_seconds(seconds) for seconds in (0, 59.94, 60, 5400, 172800)] == [
        "0.0 s",
        "59.9 s",
        "1.0 m",
        "1.5 h",
        "2.0 d",
    ]
