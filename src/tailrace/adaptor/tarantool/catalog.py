"""The catalog: which spaces there are, what their fields are called, and which of them are the key.

A space without a format has fields all the same: they are called `field1`, `field2` and so on, as are fields behind
those that the format names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.tarantool.iproto import malformed
from tailrace.adaptor.tarantool.types import Kind, Numbers, kind_of
from tailrace.errors import TailraceError
from tailrace.namespace import check_name
from tailrace.source.contract import Table

SPACES: Final = 280
INDEXES: Final = 288
TRUNCATIONS: Final = 330
SYSTEM_MAX: Final = 511
"""Spaces up to this number are the server's own."""
SCHEMA: Final = "box"
_ANY: Final = "any"
_COLLATIONS: Final = (None, 0, 1, 2, 3)
"""None, `none`, `unicode`, `unicode_ci` and `binary`: it is known which texts are the same key to them."""


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a key."""

    field: int
    """Its place in the tuple, from 0."""
    type: str
    collation: int | None = None
    is_inside: bool = False
    """Whether it lies inside a field."""


@dataclass(frozen=True, slots=True)
class Column:
    """One field."""

    name: str
    type: str

    def kind(self, numbers: Numbers) -> Kind:
        return kind_of(self.type, numbers)


@dataclass(frozen=True, slots=True)
class Space:
    """One space."""

    id: int
    name: str
    columns: tuple[Column, ...]
    """Those that the format or the key names; tuples may have more fields."""
    parts: tuple[Part, ...]
    """The primary key; empty when there is none."""
    why_unusable: str = ""

    @property
    def namespace(self) -> str:
        return f"{SCHEMA}.{self.name}"

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(self.columns[part.field].name for part in self.parts)

    def widened(self, fields: int) -> tuple[Column, ...]:
        """The columns of tuples that have so many fields."""
        taken = {column.name for column in self.columns}
        more = [Column(_free(at, taken), _ANY) for at in range(len(self.columns), fields)]
        return (*self.columns, *more)

    def table(self, numbers: Numbers) -> Table:
        schema = pa.schema([column.kind(numbers).field(column.name) for column in self.columns])
        others = tuple(column.name for column in self.columns if column.name not in self.key)
        return Table(self.namespace, schema, self.key, empty=others)


def read_spaces(spaces: Iterable[Any], indexes: Iterable[Any]) -> dict[int, Space]:
    """The users' spaces by number, as the rows of `_space` and `_index` describe them."""
    primary = {index[0]: index for index in indexes if index[1] == 0}
    return {row[0]: read_space(row, primary.get(row[0])) for row in spaces if row[0] > SYSTEM_MAX}


def read_space(row: Any, primary: Any | None) -> Space:
    """One space from its row in `_space` and that of its first index, None when it has none."""
    try:
        id_, name, options, told = int(row[0]), str(row[2]), row[5], row[6]
        parts = () if primary is None else read_parts(primary)
        return Space(id_, name, _columns(told, parts), parts, _why_unusable(name, options, parts))
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise malformed(f"a space is described as nobody knows: {error}") from error


def _why_unusable(name: str, options: Any, parts: tuple[Part, ...]) -> str:
    flags = options if isinstance(options, Mapping) else {}
    if flags.get("temporary"):
        return "it is temporary, and its changes are not told"
    if flags.get("group_id"):
        return "it is local to its server, and its changes are not told"
    if flags.get("view"):
        return "it is a view"
    if not parts:
        return "it has no primary index, and so no rows"
    if why := why_not_compared(parts):
        return why
    try:
        check_name(f"{SCHEMA}.{name}", "space")
    except TailraceError as error:
        return str(error)
    return ""


def read_parts(index: Any) -> tuple[Part, ...]:
    """The key of an index from its row in `_index`."""
    return tuple(_part(part) for part in index[5])


def why_not_compared(parts: Iterable[Part]) -> str:
    """Why it is not known which tuples have the same key; empty when it is."""
    for part in parts:
        if part.is_inside:
            return "its key lies inside of a field"
        if part.collation not in _COLLATIONS:
            return "its key has a collation other than unicode, unicode_ci and binary"
    return ""


def _columns(told: Any, parts: tuple[Part, ...]) -> tuple[Column, ...]:
    fields = [_described(field) for field in told]
    known = {part.field: part.type for part in parts}
    taken = {name for name, _ in fields if name}
    columns = []
    for at in range(max(len(fields), max(known, default=-1) + 1)):
        name, type_ = fields[at] if at < len(fields) else ("", _ANY)
        columns.append(Column(name or _free(at, taken), known.get(at, _ANY) if type_ == _ANY else type_))
    return tuple(columns)


def _described(field: Any) -> tuple[str, str]:
    if isinstance(field, Mapping):
        return str(field.get("name", "")), _type(field.get("type", _ANY))
    return str(field[0]), _type(field[1] if len(field) > 1 else _ANY)


def _type(said: Any) -> str:
    """Types have short names, too."""
    lower = str(said).lower()
    return {"*": _ANY, "str": "string", "num": "unsigned", "int": "integer"}.get(lower, lower)


def _part(part: Any) -> Part:
    if isinstance(part, Mapping):
        is_inside = "path" in part
        return Part(int(part["field"]), _type(part.get("type", _ANY)), part.get("collation"), is_inside)
    return Part(int(part[0]), _type(part[1] if len(part) > 1 else _ANY))


def _free(at: int, taken: set[str]) -> str:
    name = f"field{at + 1}"
    while name in taken:
        name += "_"
    return name
