"""Types: what becomes of each of Tarantool's in Arrow. `docs/reference/adaptors/tarantool.md` has them as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
from msgpack import ExtType

from tailrace.adaptor.sqltype import with_declared
from tailrace.adaptor.tarantool.values import DECIMAL, UUID, decimal_text, json_text, number_of, uuid_text

Gather = Callable[[Sequence[Any]], "pa.Array[Any]"]
"""Values of one column as Arrow. Raises `ValueError` or `OverflowError` when one has no place there."""
HINT: Final = "correct the value or the space's format, or leave the space out with `namespace`"


class Numbers(StrEnum):
    """How fields of the type `number` are read, in which whole numbers, floats and decimals may stand."""

    DOUBLE = "double"
    """As floats; a number that no float is equal to stops the pipeline, naming the column."""
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of a field travel."""

    arrow: pa.DataType
    gather: Gather
    declared: str | None = None
    """The SQL type, where the Arrow type does not say it."""

    def field(self, name: str) -> pa.Field[Any]:
        return with_declared(pa.field(name, self.arrow), self.declared)


def kind_of(type_: str, numbers: Numbers = Numbers.DOUBLE) -> Kind:
    """How a field of this type travels. One that can hold anything travels as JSON."""
    if type_ == "number" and numbers is Numbers.TEXT:
        return _TEXT_NUMBER
    return _KINDS.get(type_, _ANY)


def _plain(arrow: pa.DataType) -> Gather:
    def gather(values: Sequence[Any]) -> pa.Array[Any]:
        return pa.array(values, arrow)

    return gather


def _texts(values: Sequence[Any]) -> pa.Array[Any]:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        raise ValueError("a text is not UTF-8; the type varbinary is for bytes") from None


def _doubles(values: Sequence[Any]) -> pa.Array[Any]:
    try:
        return pa.array(values, pa.float64())
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # there are decimals, or whole numbers that are long
        return pa.array([_exact(number_of(value)) for value in values], pa.float64())


def _exact(value: Any) -> float | None:
    if value is None:
        return None
    made = float(value)
    if made != value and not math.isnan(made):
        raise ValueError(f"no float is equal to {value}; `numbers: text` reads it as it is")
    return made


def _number_text(value: Any) -> str | None:
    if value is None or isinstance(value, ExtType):
        return None if value is None else decimal_text(value.data)
    return repr(value)


def _each(read: Callable[[Any], Any], arrow: pa.DataType) -> Gather:
    def gather(values: Sequence[Any]) -> pa.Array[Any]:
        return pa.array([read(value) for value in values], arrow)

    return gather


def _extension(code: int, read: Callable[[bytes], str], what: str) -> Callable[[Any], str | None]:
    def text(value: Any) -> str | None:
        if value is None:
            return None
        if isinstance(value, ExtType) and value.code == code:
            return read(value.data)
        if isinstance(value, int | float) and code == DECIMAL:
            return repr(value)
        raise ValueError(f"{value!r} is no {what}")

    return text


_ANY: Final = Kind(pa.string(), _each(json_text, pa.string()), "json")
_TEXT_NUMBER: Final = Kind(pa.string(), _each(_number_text, pa.string()), "numeric")
_KINDS: Final[dict[str, Kind]] = {
    "unsigned": Kind(pa.uint64(), _plain(pa.uint64())),
    "integer": Kind(pa.int64(), _plain(pa.int64())),
    "number": Kind(pa.float64(), _doubles),
    "double": Kind(pa.float64(), _doubles),
    "boolean": Kind(pa.bool_(), _plain(pa.bool_())),
    "string": Kind(pa.string(), _texts),
    "varbinary": Kind(pa.binary(), _plain(pa.binary())),
    "decimal": Kind(pa.string(), _each(_extension(DECIMAL, decimal_text, "decimal"), pa.string()), "numeric"),
    "uuid": Kind(pa.string(), _each(_extension(UUID, uuid_text, "uuid"), pa.string()), "uuid"),
}
