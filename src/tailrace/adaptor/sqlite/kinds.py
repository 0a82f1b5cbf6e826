"""Kinds: the Arrow type that a column of SQLite is given, by its declared type, else by what it holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from tailrace.log.documents import is_json, json_field


class Kind(StrEnum):
    """What a column is read as."""

    INTEGER = "integer"
    REAL = "real"
    TEXT = "text"
    BLOB = "blob"
    JSON = "json"
    """Values of several classes: JSON text, and the field's metadata says so."""


_TYPES: Final[dict[Kind, pa.DataType]] = {
    Kind.INTEGER: pa.int64(),
    Kind.REAL: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.BLOB: pa.binary(),
    Kind.JSON: pa.string(),
}
_CLASSES: Final[dict[Kind, type]] = {Kind.INTEGER: int, Kind.REAL: float, Kind.TEXT: str, Kind.BLOB: bytes}
_EXACT_REAL: Final = 1 << 53
"""Whole numbers up to here are floats without loss."""


def type_of(kind: Kind) -> pa.DataType:
    """The Arrow type of a kind."""
    return _TYPES[kind]


def field_of(name: str, kind: Kind) -> pa.Field[Any]:
    """A column as an Arrow field."""
    return json_field(name) if kind is Kind.JSON else pa.field(name, _TYPES[kind])


def kind_of_field(field: pa.Field[Any]) -> Kind:
    """The inverse of `field_of`."""
    if is_json(field):
        return Kind.JSON
    return next(kind for kind, type_ in _TYPES.items() if type_ == field.type)


def declared_kind(declared: str) -> Kind | None:
    """The kind that a declared type fixes, by SQLite's own rules; None where values of any class are usual."""
    name = declared.upper()
    if "INT" in name:
        return Kind.INTEGER
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return Kind.TEXT
    if "BLOB" in name:
        return Kind.BLOB
    if any(part in name for part in ("REAL", "FLOA", "DOUB", "DEC", "NUMERIC")):
        return Kind.REAL
    return None


def found_kind(declared: str, classes: Collection[str]) -> Kind:
    """The kind of a column whose declared type says little, by the classes (`typeof`) of the values in it."""
    found = set(classes) - {"null"}
    if not found:
        return _kind_when_empty(declared.upper())
    if found == {"integer"}:
        return Kind.INTEGER
    if found <= {"integer", "real"}:
        return Kind.REAL
    if found == {"text"}:
        return Kind.TEXT
    return Kind.BLOB if found == {"blob"} else Kind.JSON


def _kind_when_empty(declared: str) -> Kind:
    if "BOOL" in declared:
        return Kind.INTEGER
    if any(part in declared for part in ("DATE", "TIME", "STRING", "JSON", "UUID")):
        return Kind.TEXT
    return Kind.JSON


def all_fit(kind: Kind, values: Sequence[Any]) -> bool:
    """Whether every value keeps its worth in a column of this kind."""
    classes = set(map(type, values)) - {type(None)}
    if kind is Kind.JSON or classes <= {_CLASSES[kind]}:
        return True
    if kind is not Kind.REAL or not classes <= {int, float}:
        return False
    return all(abs(value) <= _EXACT_REAL for value in values if type(value) is int)
