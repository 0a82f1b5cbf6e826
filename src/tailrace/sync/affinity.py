"""Affinity: what a column of SQLite makes of a value that it is given, by the type that it was declared with.

A column for numbers makes a number of a text that looks like one, with the 15 to 17 digits of a float at most and no
zeros before them; one for texts keeps 15 digits of a float; and there is no NaN. An edit of another column would then
take what was lost to all nodes. So values are bound as the column keeps them, and refused if it cannot keep them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum, auto
from functools import partial
from math import isnan
from typing import Any, Final

from tailrace.sync.columns import Types
from tailrace.sync.database import Unfit

_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
"""What SQLite takes for a number."""
_PLAIN: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
"""How databases write one; any other text was a text."""
_DIGITS_SAFE: Final = 15
_DIGITS_MAX: Final = 1000
_WHOLE_REAL_MAX: Final = 1 << 53
_SHOWN_MAX: Final = 60


class Affinity(Enum):
    """What a column is for."""

    NONE = auto()
    TEXT = auto()
    REAL = auto()
    NUMERIC = auto()
    """Whole numbers, too."""


_PARTS: Final = (
    (("INT",), Affinity.NUMERIC),
    (("CHAR", "CLOB", "TEXT"), Affinity.TEXT),
    (("BLOB",), Affinity.NONE),
    (("REAL", "FLOA", "DOUB"), Affinity.REAL),
)

_CHANGED: Final[Mapping[Affinity, Types]] = {
    Affinity.NONE: frozenset(),
    Affinity.TEXT: frozenset((float,)),
    Affinity.REAL: frozenset((int, str)),
    Affinity.NUMERIC: frozenset((str,)),
}
"""What each may change."""


def affinity_of(declared: str) -> Affinity:
    """By SQLite's rules, of which the first counts that fits."""
    name = declared.upper()
    found = (affinity for parts, affinity in _PARTS if any(part in name for part in parts))
    return next(found, Affinity.NUMERIC if name else Affinity.NONE)


def fitting(declared: str, types: Types, values: Sequence[Any]) -> Callable[[Any], Any] | None:
    """What has to be done with values of some types before a column gets them; mostly nothing. Raises `Unfit`."""
    affinity = affinity_of(declared)
    has_nan = float in types and any(isnan(value) for value in values if type(value) is float)
    return partial(_fit, declared, affinity) if has_nan or types & _CHANGED[affinity] else None


def _fit(declared: str, affinity: Affinity, value: Any) -> Any:
    if type(value) is float and isnan(value):
        return "NaN"  # SQLite would make NULL of it; as a text it goes back to where it came from
    if type(value) is float and affinity is Affinity.TEXT:
        return repr(value)
    if type(value) is str and affinity in (Affinity.REAL, Affinity.NUMERIC):
        return _number(declared, value, is_real=affinity is Affinity.REAL)
    if type(value) is int and affinity is Affinity.REAL and abs(value) > _WHOLE_REAL_MAX and int(float(value)) != value:
        raise _unfit(declared, str(value))
    return value


def _number(declared: str, text: str, *, is_real: bool) -> Any:
    """The number that a column would keep instead of a text, if it is the same; texts that are none stay."""
    if _NUMBER.fullmatch(text) is None:
        return text
    if _PLAIN.fullmatch(text) is None or len(text) > _DIGITS_MAX:
        raise _unfit(declared, text)
    if not is_real and "." not in text and len(text) < 20 and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    found = float(text)
    if len(text) > _DIGITS_SAFE and Decimal(repr(found)) != Decimal(text):
        raise _unfit(declared, text)
    return found


def _unfit(declared: str, text: str) -> Unfit:
    shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
    return Unfit(f"a column declared {declared} cannot keep {shown} as it is; declare it TEXT")
