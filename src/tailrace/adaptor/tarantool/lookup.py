"""Looking a row up by another index than the first.

A delete or update that was asked for by another index is logged with the key of the first one, where a row was found.
Where none was, it stands in the log as it was asked for; and so does every delete of vinyl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.adaptor.tarantool.catalog import INDEXES, SPACES, Part, read_parts, why_not_compared
from tailrace.adaptor.tarantool.image import CATALOG_PARTS, Image
from tailrace.adaptor.tarantool.keys import ImageKey, KeyOf, key_of_tuple, key_of_values
from tailrace.errors import TailraceError

_VINYL: Final = "vinyl"
_OF_SPACE, _OF_INDEX = (key_of_values(CATALOG_PARTS[system]) for system in (SPACES, INDEXES))


@dataclass(slots=True)
class _Known:
    """The rows of a space by one index."""

    parts: tuple[Part, ...]
    primary: KeyOf
    rows: dict[ImageKey, ImageKey] = field(default_factory=dict)

    def key(self, row: Sequence[Any]) -> ImageKey | None:
        """None of a row that nobody can ask for: it lacks something."""
        if any(part.field >= len(row) or row[part.field] is None for part in self.parts):
            return None
        return key_of_tuple(self.parts)(row)

    def change(self, old: list[Any] | None, new: list[Any] | None) -> None:
        if old is not None and (key := self.key(old)) is not None:
            self.rows.pop(key, None)
        if new is not None and (key := self.key(new)) is not None:
            self.rows[key] = self.primary(new)


class Lookup:
    """Goes through a space when it is first asked, and knows its rows from then on, for it is told of changes."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._known: dict[int, dict[int, _Known]] = {}

    def find(self, space: int, index: int, values: Sequence[Any], primary: KeyOf) -> ImageKey | None:
        """The first index's key of the row that another index has under these values."""
        described = self._image.get(SPACES, _OF_SPACE([space]))
        if described is None or described[3] != _VINYL:
            return None
        known = self._known.setdefault(space, {})
        if index not in known:
            known[index] = self._read(space, index, primary)
        return known[index].rows.get(key_of_values(known[index].parts)(values))

    def changed(self, space: int, old: list[Any] | None, new: list[Any] | None) -> None:
        for known in self._known.get(space, {}).values():
            known.change(old, new)

    def forget(self, space: int) -> None:
        """It was emptied, or is described otherwise now."""
        self._known.pop(space, None)

    def _read(self, space: int, index: int, primary: KeyOf) -> _Known:
        row = self._image.get(INDEXES, _OF_INDEX([space, index]))
        parts = () if row is None else read_parts(row)
        if why := why_not_compared(parts) if parts else "nothing is known of it":
            what = f"a row of space {space} was deleted by index {index}, which cannot be looked into: {why}"
            hint = "leave the space out with `namespace`, or delete by the primary key, and copy the source again"
            raise TailraceError("source.unsupported", what, hint=hint)
        known = _Known(parts, primary)
        for each in self._image.rows(space):
            known.change(None, each)
        return known
