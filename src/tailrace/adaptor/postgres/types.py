"""Types: what becomes of each of PostgreSQL's types in Arrow. `docs/reference/types.md` has the same as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.converting import Convert, cast_to
from tailrace.adaptor.postgres import texts
from tailrace.adaptor.postgres.arrays import lists
from tailrace.adaptor.postgres.extremes import unwrapped
from tailrace.adaptor.postgres.sql import Asked
from tailrace.adaptor.sqltype import with_declared

DECIMAL_DIGITS: Final = 38
"""More digits have no room in the decimals that Spark and Parquet know."""
_NO_TYPMOD: Final = -1
_TYPMOD_HEAD: Final = 4
_DATED: Final = ("date", "timestamp", "timestamptz")
_DIMENSIONS_MAX: Final = 6


class Numerics(StrEnum):
    """How `numeric(p, s)` is read; without a precision it is always text."""

    DECIMAL = "decimal"
    """Exact decimals; NaN and infinities are errors."""
    TEXT = "text"


class Arrays(StrEnum):
    """How arrays are read."""

    LIST = "list"
    """Lists of the declared number of dimensions; any other array is an error."""
    TEXT = "text"


class Moments(StrEnum):
    """How `date`, `timestamp` and `timestamptz` are read."""

    ARROW = "arrow"
    """Arrow's own types; infinities are the largest and smallest number, moments after the year 294246 errors."""
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user has chosen where there is no single right way."""

    numerics: Numerics = Numerics.DECIMAL
    arrays: Arrays = Arrays.LIST
    moments: Moments = Moments.ARROW


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A type as the catalog describes it."""

    oid: int
    name: str
    """As SQL writes it, quoted and qualified where needed."""
    plain: str
    """Its name in pg_type."""
    kind: str
    """`b` base, `c` composite, `d` domain, `e` enum, `m` multirange, `r` range."""
    is_array: bool
    element: int
    base: int
    base_typmod: int
    delimiter: str


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of a column travel."""

    arrow: pa.DataType
    convert: Convert
    """From PostgreSQL's text."""
    declared: str | None = None
    """The SQL type, where the Arrow type does not say it."""
    asked: Asked = Asked.WRITTEN
    """How a copy asks for values: as text where the driver's own form is none we know, or is slower."""
    mend: Convert | None = None
    """From the driver's form, where that is not the Arrow type."""

    def field(self, name: str) -> pa.Field[Any]:
        return with_declared(pa.field(name, self.arrow), self.declared)

    def from_copy(self, column: pa.Array[Any]) -> pa.Array[Any]:
        """Values as a copy reads them."""
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if self.asked is not Asked.AS_IT_IS:
            return self.convert(column)
        return column if self.mend is None else self.mend(column)


@dataclass(slots=True)
class Kinds:
    """Looks up how a column travels."""

    types: Mapping[int, TypeInfo]
    choices: Choices = Choices()
    _known: dict[tuple[int, int, int], Kind] = field(default_factory=dict)

    def of(self, type_oid: int, typmod: int, dimensions: int = 1) -> Kind:
        """The kind of a column of this type."""
        asked = (type_oid, typmod, dimensions)
        if asked not in self._known:
            self._known[asked] = self._find(*asked)
        return self._known[asked]

    def _find(self, type_oid: int, typmod: int, dimensions: int) -> Kind:
        info = self.types.get(type_oid)
        if info is None:
            return _TEXT
        if info.kind == "d":
            return self.of(info.base, info.base_typmod if info.base_typmod != _NO_TYPMOD else typmod, dimensions)
        if info.is_array:
            return self._array(info, typmod, dimensions)
        if info.plain == "numeric":
            return self._numeric(typmod)
        if info.plain in _DATED and self.choices.moments is Moments.TEXT:
            return _as_text(info.name)
        if info.plain == "bit" and typmod != _NO_TYPMOD:
            return _as_text(f"bit({typmod})")  # without a length it would have that of 1
        return _KINDS.get(info.plain) or _as_text(info.name)

    def _numeric(self, typmod: int) -> Kind:
        if typmod == _NO_TYPMOD or self.choices.numerics is Numerics.TEXT:
            return _as_text(_numeric_name(typmod))
        digits, scale = _precision(typmod)
        if not 0 <= scale <= digits <= DECIMAL_DIGITS:
            return _as_text(_numeric_name(typmod))
        kind = pa.decimal128(digits, scale)
        return Kind(kind, cast_to(kind), asked=Asked.CAST)

    def _array(self, info: TypeInfo, typmod: int, dimensions: int) -> Kind:
        element = self.of(info.element, typmod)
        if self.choices.arrays is Arrays.TEXT or pa.types.is_nested(element.arrow):
            return _as_text(info.name)
        depth = min(max(dimensions, 1), _DIMENSIONS_MAX)
        arrow = element.arrow
        for _ in range(depth):
            arrow = pa.list_(arrow)
        name = None if element.declared is None else f"{element.declared}[]"
        return Kind(arrow, lists(element.convert, depth, info.delimiter), declared=name)


def _precision(typmod: int) -> tuple[int, int]:
    packed = typmod - _TYPMOD_HEAD
    scale = packed & 0x7FF
    return packed >> 16, scale - 0x800 if scale & 0x400 else scale


def _numeric_name(typmod: int) -> str:
    if typmod == _NO_TYPMOD:
        return "numeric"
    digits, scale = _precision(typmod)
    return f"numeric({digits},{scale})"


def _as_text(name: str) -> Kind:
    return Kind(pa.string(), cast_to(pa.string()), declared=name)


def _plain(arrow: pa.DataType, convert: Convert | None = None, mend: Convert | None = None) -> Kind:
    return Kind(arrow, convert or cast_to(arrow), asked=Asked.AS_IT_IS, mend=mend)


_TEXT: Final = Kind(pa.string(), cast_to(pa.string()), asked=Asked.AS_IT_IS)
_MOMENT: Final = pa.timestamp("us")
_ZONED: Final = pa.timestamp("us", "UTC")
_KINDS: Final[dict[str, Kind]] = {
    "bool": _plain(pa.bool_(), texts.booleans),
    "int2": _plain(pa.int16()),
    "int4": _plain(pa.int32()),
    "int8": _plain(pa.int64()),
    "oid": Kind(pa.int64(), cast_to(pa.int64())),
    "float4": _plain(pa.float32()),
    "float8": _plain(pa.float64()),
    "text": _TEXT,
    "varchar": _TEXT,
    "bpchar": _TEXT,
    "name": _TEXT,
    "bytea": _plain(pa.binary(), texts.binaries),
    "date": _plain(pa.date32(), texts.days, unwrapped),
    "time": _plain(pa.time64("us"), texts.times),
    "timestamp": _plain(_MOMENT, texts.moments(_MOMENT), unwrapped),
    "timestamptz": _plain(_ZONED, texts.moments(_ZONED), unwrapped),
    "json": Kind(pa.string(), cast_to(pa.string()), declared="json", asked=Asked.AS_IT_IS),
    "jsonb": Kind(pa.string(), cast_to(pa.string()), declared="jsonb", asked=Asked.AS_IT_IS),
    "money": Kind(pa.decimal128(19, 2), texts.money, declared="money"),
}
"""By name in pg_type; every type that is not here, nor a numeric or an array, travels as text."""
