"""Rows that came from another node, and what is here of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tailrace.errors import TailraceError
from tailrace.sync.database import Link
from tailrace.sync.entity import Authors
from tailrace.sync.exchange import ROW_STAMP, Key, RowBatch, Tracker, VersionId
from tailrace.sync.horizon import Horizon
from tailrace.sync.names import Dialect, equal, quoted
from tailrace.sync.references import Reference
from tailrace.sync.room import Room
from tailrace.sync.shape import Column, Kind, Shape
from tailrace.sync.values import from_wire, to_wire

_NO_KEY = (type(None), list, dict)


@dataclass(frozen=True, slots=True)
class Incoming:
    """A row that came."""

    key: Key
    values: tuple[Any, ...]
    """Of all columns, as the wire has them."""
    time: int
    node: int
    is_deleted: bool
    version: VersionId

    @property
    def stamp(self) -> tuple[int, int]:
        return self.time, self.node

    @property
    def tracker(self) -> Tracker:
        return Tracker(self.key, self.version, self.node)


@dataclass(frozen=True, slots=True)
class Here:
    """What is here of a row."""

    time: int
    node: int
    is_deleted: bool

    @property
    def stamp(self) -> tuple[int, int]:
        return self.time, self.node


class Refusal(NamedTuple):
    """Why a row is not taken."""

    why: str
    is_about_others: bool = False
    """Whether it will be when other rows have come."""
    is_collision: bool = False
    """Whether another row has what no two may have."""


@dataclass(frozen=True, slots=True)
class Reception:
    """Rows are taken: where, whose, and by whom."""

    link: Link
    shape: Shape
    sender: int
    oneself: int
    refusals: tuple[type[Exception], ...]
    """What a savepoint raises when the database does not want a row."""
    is_about_others: Callable[[BaseException], bool]
    """Whether that was only because of rows that are not here yet, or still are."""
    is_collision: Callable[[BaseException], bool]
    """Whether it was because of one that has the same where no two may."""
    is_watched: bool
    """Whether a change of these rows may concern others."""
    room: Room
    """For what is not taken."""
    horizon: Horizon
    """Rows that were changed later than this are not."""
    authors: Authors = Authors.ANY
    """Whose versions the sender may send."""
    references: Sequence[Reference] = ()
    """The foreign keys between all tables."""

    def refusal(self, error: BaseException) -> Refusal:
        """What the database says against a row."""
        why = str(error).strip().partition("\n")[0]
        return Refusal(why, self.is_about_others(error), self.is_collision(error))


def incoming(shape: Shape, sender: int, batch: RowBatch) -> list[Incoming]:
    """The rows of a batch, of each key the newest. Raises `sync.malformed` when they are not what the protocol says."""
    places = {name: place for place, name in enumerate(batch.columns)}
    if lost := [name for name in shape.key if name not in places]:
        raise malformed(shape, f"have no {', '.join(lost)}, which is a part of the key")
    count = len(batch.columns)
    found: dict[Key, Incoming] = {}
    for row in batch.rows:
        if len(row) != count + len(ROW_STAMP):
            raise malformed(shape, f"have {len(row)} values instead of {count + len(ROW_STAMP)}")
        each = _read(shape, sender, places, row)
        known = found.get(each.key)
        if known is None or known.stamp < each.stamp:
            found[each.key] = each
    return list(found.values())


def _read(shape: Shape, sender: int, places: dict[str, int], row: tuple[Any, ...]) -> Incoming:
    key = tuple(row[places[name]] for name in shape.key)
    if any(isinstance(part, _NO_KEY) for part in key):
        raise malformed(shape, "have no value for a part of the key")
    time, node, is_deleted, version = row[len(places) :]
    told = row[places[shape.entity.version]] if shape.entity.version in places else None
    time = told if time is None and not shape.is_hash else time
    if type(time) is not int or not 0 <= time < 1 << 63:
        raise malformed(shape, f"have {time!r} as the time of their change, which is none")
    if version is None:
        version = time if is_deleted else told
    if type(version) is not (str if shape.is_hash else int):
        raise malformed(shape, f"have {version!r} as a version, which is none")
    made_by = sender if node is None else node
    if type(made_by) is not int or not 0 <= made_by < 1 << 63:
        raise malformed(shape, f"have {made_by!r} as the node that changed them")
    if not shape.is_hash and not is_deleted and told != time:
        raise malformed(shape, f"have the version {told!r} and another time of their change, {time}")
    values = tuple(row[places[name]] if name in places else None for name in shape.column_names)
    return Incoming(key, values, time, made_by, bool(is_deleted), version)


def completed(link: Link, shape: Shape, rows: Sequence[Incoming], columns: Sequence[str]) -> list[Incoming]:
    """Rows of a node that does not know some columns yet: it changes nothing in them; new rows get their default."""
    missing = [column for column in shape.columns if column.name not in columns]
    if not missing:
        return list(rows)
    names = [column.name for column in missing]
    wanted = ", ".join(shape.shown(name, quoted(name)) for name in names)
    at_row = equal(shape.table_key, [shape.mark(number) for number in range(1, len(shape.key) + 1)])
    query = f"SELECT {wanted} FROM {shape.table} WHERE {at_row}"  # noqa: S608  names are quoted
    places = [shape.column_names.index(name) for name in names]
    fresh = _fresh(link, shape, missing)
    found = []
    for row in rows:
        here = to_wire(shape, link.rows(query, from_wire(shape, [row.key], shape.key)[0]), names)
        values = list(row.values)
        for place, value in zip(places, here[0] if here else fresh, strict=True):
            values[place] = value
        found.append(replace(row, values=tuple(values)))
    return found


def as_they_are(link: Link, shape: Shape, rows: Sequence[Incoming]) -> list[Incoming]:
    """Deletions with the values of the rows that they would delete: others than the key their sender cannot say.
    A receive view's condition looks at them."""
    if shape.entity.receive.condition is None:
        return list(rows)
    wanted = ", ".join(shape.shown(name, quoted(name)) for name in shape.column_names)
    at_row = equal(shape.table_key, [shape.mark(number) for number in range(1, len(shape.key) + 1)])
    lock = "FOR UPDATE" if shape.dialect is Dialect.POSTGRES else ""
    query = f"SELECT {wanted} FROM {shape.table} WHERE {at_row} {lock}"  # noqa: S608  names are quoted
    found = []
    for row in rows:
        if row.is_deleted:
            here = to_wire(shape, link.rows(query, from_wire(shape, [row.key], shape.key)[0]), shape.column_names)
            key = dict(zip(shape.key, row.key, strict=True))
            nothing = tuple(key.get(name) for name in shape.column_names)
            found.append(replace(row, values=here[0] if here else nothing))
        else:
            found.append(row)
    return found


def _fresh(link: Link, shape: Shape, missing: Sequence[Column]) -> tuple[Any, ...]:
    """What some columns have in a new row that does not say it."""
    expressions = ", ".join(shape.shown(column.name, f"({_default(column)})") for column in missing)
    names = [column.name for column in missing]
    return to_wire(shape, link.rows(f"SELECT {expressions}"), names)[0]


def _default(column: Column) -> str:
    if column.default is not None or not column.is_required:
        return column.default or "NULL"
    zero = {Kind.BOOLEAN: "false", Kind.REAL: "0", Kind.JSON: "'null'"}.get(column.kind, "''")
    return "0" if "int" in column.declared.lower() or "num" in column.declared.lower() else zero


def malformed(shape: Shape, what: str) -> TailraceError:
    return TailraceError("sync.malformed", f"rows of table {shape.entity.table} {what}", hint="send them as documented")
