"""Amounts with units as people write them: `30s`, `1.5h`, `512MB`, `1GiB`."""

from __future__ import annotations

import re
from typing import Final

from tailrace.errors import TailraceError

_AMOUNT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_BYTES: Final = {
    "": 1,
    "b": 1,
    **{unit: 1000**power for power, unit in enumerate(("kb", "mb", "gb", "tb"), start=1)},
    **{unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib"), start=1)},
}
_AMOUNT_MAX: Final = 1e15
_STEPS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def parse_seconds(text: str) -> float:
    """A duration; a bare number is seconds."""
    amount, unit = _parse(text, "a duration such as 30s, 5m, 2h or 7d")
    if unit not in _SECONDS:
        raise _invalid(text, "a duration such as 30s, 5m, 2h or 7d")
    return amount * _SECONDS[unit]


def parse_bytes(text: str) -> int:
    """A size; a bare number is bytes."""
    amount, unit = _parse(text, "a size such as 512MB, 1GB or 1GiB")
    if unit not in _BYTES:
        raise _invalid(text, "a size such as 512MB, 1GB or 1GiB")
    return int(amount * _BYTES[unit])


def show_bytes(size: float) -> str:
    """A size for people."""
    step = 0
    while size >= 1000 and step < len(_STEPS) - 1:
        size /= 1000
        step += 1
    return f"{size:.0f} {_STEPS[step]}" if step == 0 else f"{size:.1f} {_STEPS[step]}"


def show_seconds(seconds: float) -> str:
    """A duration for people."""
    for name, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"


def _parse(text: str, wanted: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise _invalid(text, wanted)
    amount = float(match[1])
    if amount > _AMOUNT_MAX:
        raise _invalid(text, wanted)
    return amount, match[2].lower()


def _invalid(text: str, wanted: str) -> TailraceError:
    return TailraceError("input.invalid", f"{text!r} is not {wanted}", hint="correct the value")
