"""Applying: the changes of a Tarantool's log to the image, and what that means for each space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.adaptor.tarantool.catalog import INDEXES, SPACES, SYSTEM_MAX, TRUNCATIONS, Part, Space, read_space
from tailrace.adaptor.tarantool.image import CATALOG_PARTS, GONE, Image
from tailrace.adaptor.tarantool.iproto import Key, Type, malformed
from tailrace.adaptor.tarantool.keys import ImageKey, KeyOf, key_of_tuple, key_of_values
from tailrace.adaptor.tarantool.lookup import Lookup
from tailrace.adaptor.tarantool.operations import Impossible, updated, upserted
from tailrace.adaptor.tarantool.stream import Change
from tailrace.errors import TailraceError
from tailrace.message import Op


@dataclass(frozen=True, slots=True)
class Effect:
    """What became of a row; of a whole space when there is no row."""

    space: Space
    op: Op
    """COMMAND for a space that has no rows any more."""
    row: list[Any] | None = None
    before: list[Any] | None = None


@dataclass(frozen=True, slots=True)
class _Rows:
    """How the rows of a space are found and changed, as long as the space does not change."""

    space: int
    names: tuple[str, ...]
    of_tuple: KeyOf
    of_key: KeyOf


def _rows_of(space: int, parts: tuple[Part, ...], names: Iterable[str] = ()) -> _Rows:
    return _Rows(space, tuple(names), key_of_tuple(parts), key_of_values(parts))


@dataclass(slots=True)
class Applying:
    """The image and its catalog, as the changes move them on."""

    image: Image
    spaces: dict[int, Space] = field(default_factory=dict)
    _known: dict[int, tuple[Space, _Rows]] = field(default_factory=dict)
    _lookup: Lookup = field(init=False)

    def __post_init__(self) -> None:
        self._lookup = Lookup(self.image)

    def apply(self, change: Change) -> Iterator[Effect]:
        """One change. What it did is told when it is done."""
        space_id = _space_of(change)
        if space_id == TRUNCATIONS:
            yield from self._truncated(change)
        elif space_id in CATALOG_PARTS:
            old, new = self._row(_rows_of(space_id, CATALOG_PARTS[space_id]), change)
            yield from self._described(space_id, old, new)
        elif space_id > SYSTEM_MAX:
            yield from self._changed(space_id, change)

    def _changed(self, space_id: int, change: Change) -> Iterator[Effect]:
        space = self.spaces.get(space_id)
        if space is None:
            raise malformed(f"a change is of space {space_id}, of which nothing is known")
        if space.why_unusable:
            return
        known, rows = self._known.get(space_id, (None, None))
        if known is not space or rows is None:
            self.image.ready(space.id, space.parts)
            rows = _rows_of(space.id, space.parts, (column.name for column in space.columns))
            self._known[space_id] = (space, rows)
        old, new = self._row(rows, change)
        if old is None and new is not None:
            yield Effect(space, Op.INSERT, new)
        elif old is not None and new is not None:
            yield Effect(space, Op.UPDATE, new, old)
        elif old is not None:
            yield Effect(space, Op.DELETE, old)

    def _row(self, rows: _Rows, change: Change) -> tuple[list[Any] | None, list[Any] | None]:
        """What a row was and is."""
        space, body = rows.space, change.body
        try:
            told: Any = body.get(Key.TUPLE)
            is_whole = change.type in (Type.INSERT, Type.REPLACE, Type.UPSERT)
            key = rows.of_tuple(told) if is_whole else self._key(rows, body)
            if key is None:
                return None, None
            old = self.image.get(space, key)
            new = _after(change, old, told, rows.names)
            if old is not None and new is not None and not _has_key(rows, new, key):
                new = old  # an upsert that would change the key: the server passes it over
        except Impossible as error:
            what = f"an update of space {space} (lsn {change.lsn}) does not fit the row that it is for: {error}"
            hint = "please report it; until then, copy the source again, into a new log"
            raise TailraceError("source.unsupported", what, hint=hint) from error
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise malformed(f"a change of space {space} (lsn {change.lsn}) is none: {error}") from error
        if new is not None:
            self.image.put(space, key, new)
        elif old is not None:
            self.image.remove(space, key)
        self._lookup.changed(space, old, new)
        return old, new

    def _key(self, rows: _Rows, body: Mapping[int, Any]) -> ImageKey | None:
        """Of the row that is to be changed, None when there is none."""
        index: Any = body.get(Key.INDEX_ID) or 0
        if index == 0:
            return rows.of_key(body[Key.KEY])
        return self._lookup.find(rows.space, int(index), body[Key.KEY], rows.of_tuple)

    def _truncated(self, change: Change) -> Iterator[Effect]:
        """A row of _truncate counts how often a space was emptied."""
        if change.type is Type.DELETE:
            return
        told = change.body.get(Key.KEY if change.type is Type.UPDATE else Key.TUPLE)
        space = self.spaces.get(int(told[0])) if isinstance(told, list) and told else None
        if space is not None and not space.why_unusable:
            self.image.ready(space.id, space.parts)
            self.image.clear(space.id)
            self._lookup.forget(space.id)
            yield Effect(space, Op.COMMAND)

    def _described(self, system: int, old: list[Any] | None, new: list[Any] | None) -> Iterator[Effect]:
        """A space or its first index was made, changed or dropped."""
        row = new or old
        if row is None or row[0] <= SYSTEM_MAX:
            return
        self._lookup.forget(row[0])
        if system == INDEXES and row[1] != 0:
            return
        before = self.spaces.get(row[0])
        after = self._found(row[0])
        if before is not None and not before.why_unusable:
            self.image.ready(before.id, before.parts)
        if after is None:
            yield from self._dropped(before)
            return
        self.spaces[after.id] = after
        yield from self._altered(before, after)

    def _found(self, id_: int) -> Space | None:
        """A space as the image's catalog has it now."""
        of_space, of_index = (key_of_values(CATALOG_PARTS[system]) for system in (SPACES, INDEXES))
        row = self.image.get(SPACES, of_space([id_]))
        return None if row is None else read_space(row, self.image.get(INDEXES, of_index([id_, 0])))

    def _dropped(self, before: Space | None) -> Iterator[Effect]:
        """What its destinations have of it stays, until there is a space of the same name."""
        if before is not None:
            del self.spaces[before.id]
            self.image.clear(before.id)
            self.image.put(GONE, before.name.encode(), [before.id])
        yield from ()

    def _altered(self, before: Space | None, after: Space) -> Iterator[Effect]:
        had_rows = before is not None and bool(before.parts)
        if had_rows and not after.parts:  # its first index is gone, and with it all rows
            self.image.clear(after.id)
            self.image.put(GONE, after.name.encode(), [after.id])
            return
        if after.why_unusable:
            return
        is_new_name = before is None or before.why_unusable != "" or before.name != after.name
        if is_new_name and self.image.get(GONE, after.name.encode()) is not None:
            self.image.remove(GONE, after.name.encode())
            yield Effect(after, Op.COMMAND)
        if before is None or not had_rows:
            return
        if before.parts != after.parts:
            self.image.rekey(after.id, after.parts)
        if before.name != after.name:
            self.image.put(GONE, before.name.encode(), [before.id])
            for row in self.image.rows(after.id):
                yield Effect(after, Op.INSERT, row)
        elif self._reads_otherwise(before, after):
            for row in self.image.rows(after.id):
                yield Effect(after, Op.UPDATE, row)

    def _reads_otherwise(self, before: Space, after: Space) -> bool:
        """Whether rows that are there have another name or type for something that they hold."""
        widest = max((len(row) for row in self.image.rows(after.id)), default=0)
        pairs = zip(before.widened(widest), after.widened(widest), strict=False)
        differing = [at for at, (one, two) in enumerate(pairs) if one != two]
        return any(at < len(row) and row[at] is not None for at in differing for row in self.image.rows(after.id))


def _has_key(rows: _Rows, row: list[Any], key: ImageKey) -> bool:
    try:
        return rows.of_tuple(row) == key
    except (IndexError, TypeError):
        return False


def _after(change: Change, old: list[Any] | None, told: Any, names: tuple[str, ...]) -> list[Any] | None:
    if change.type in (Type.INSERT, Type.REPLACE):
        return list(told)
    if change.type is Type.DELETE:
        return None
    base = int(change.body.get(Key.INDEX_BASE) or 0)
    if change.type is Type.UPSERT:
        return list(told) if old is None else upserted(old, change.body[Key.OPS], base, names)
    return None if old is None else updated(old, told, base, names)


def _space_of(change: Change) -> int:
    space = change.body.get(Key.SPACE_ID)
    if not isinstance(space, int):
        raise malformed(f"a change (lsn {change.lsn}) is of no space")
    return space
