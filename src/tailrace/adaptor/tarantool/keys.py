"""Keys of tuples in a form in which equal ones are equal, whatever they were written as."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from tailrace.adaptor.tarantool.catalog import Part
from tailrace.adaptor.tarantool.iproto import packed
from tailrace.adaptor.tarantool.values import number_of

ImageKey = int | bytes
_WHOLE: Final = ("unsigned", "integer")
_LOOSE: Final = ("number", "double", "decimal", "scalar", "any")
"""In which 1 and 1.0 are the same."""
_CASELESS: Final = 2
"""The collation `unicode_ci`, to which letters in either case, with accents or not, are the same."""
_INT64: Final = 1 << 63

KeyOf = Callable[[Sequence[Any]], ImageKey]


def key_of_tuple(parts: Sequence[Part]) -> KeyOf:
    """How the key of a whole tuple is found."""
    fields = [part.field for part in parts]
    of_key = key_of_values(parts)
    if len(fields) == 1:
        (only,) = fields
        return lambda row: of_key((row[only],))
    return lambda row: of_key([row[field] for field in fields])


def key_of_values(parts: Sequence[Part]) -> KeyOf:
    """How a key is found that stands alone, as in a delete."""
    if len(parts) == 1 and parts[0].type in _WHOLE:
        return _whole
    plain = [_plain_part(part) for part in parts]
    return lambda values: packed([make(value) for make, value in zip(plain, values, strict=True)])


def _whole(values: Sequence[Any]) -> ImageKey:
    (value,) = values
    return value if -_INT64 <= value < _INT64 else packed(value)


def _plain_part(part: Part) -> Callable[[Any], Any]:
    if part.type in _LOOSE:
        return _number
    if part.type == "string" and part.collation == _CASELESS:
        return _collated
    return lambda value: value


def _number(value: Any) -> Any:
    """Numbers that are equal in one form."""
    found: Any = number_of(value)
    if isinstance(found, bool) or not isinstance(found, int | float | Decimal):
        return found
    number: Any = found
    if math.isfinite(number) and abs(number) < 1 << 64 and number == int(number):
        return int(found)
    if isinstance(found, Decimal):
        return float(found) if Decimal(float(found)) == found else f"{found.normalize():f}"
    return found


def _collated(value: Any) -> Any:
    """Texts that `unicode_ci` takes for the same."""
    if not isinstance(value, str):
        return value
    apart = unicodedata.normalize("NFKD", value)
    return "".join(sign for sign in apart if not unicodedata.combining(sign)).casefold()
