"""The wire: trackers, acknowledgements and rows of one table as JSON.

A key of one column is its value, one of several a list of them. Rows are objects with the table's columns and those of
a tracker, as Door's are, and `doorTime`, `doorNode` and `doorDeleted`. What a sender says in the columns of a tracker
does not count: they are its own. Names of columns that differ only in large and small letters are the same.

JavaScript cannot hold numbers of 64 bits. Who asks for it gets them as text, and may write them so: keys, versions,
nodes and all columns of whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from operator import itemgetter
from typing import Any, Final

import orjson

from tailrace.errors import TailraceError
from tailrace.sync import names
from tailrace.sync.columns import Columns
from tailrace.sync.exchange import ANY_NODE, ROW_STAMP, Ack, Acks, Key, Receipt, RowBatch, Tracker, VersionId
from tailrace.sync.names import numbered
from tailrace.sync.shape import KEY_COLUMNS_MAX, Kind, Shape

REASON_CHARACTERS_MAX: Final = 1000
_LONG: Final = re.compile(r"-?[0-9]{1,19}")
_KEY_PARTS: Final = (int, str, float, bool)
_MARKED: Final = ("$bytes", "$real", "$text")
_TRACKER: Final = {
    name.lower()
    for count in range(1, KEY_COLUMNS_MAX + 1)
    for name in (
        *numbered(names.TRACKER_KEY, count),
        names.TRACKER_NODE,
        names.TRACKER_VERSION,
        names.TRACKER_VERSION_NODE,
        names.TRACKER_PROCESSED,
    )
}
_TRACKER_PARTS: Final = itemgetter("primaryKey", "versionId", "changedBy")
_FLAGS: Final = {None: False, False: False, True: True}
Json = dict[str, Any]


@dataclass(frozen=True)
class Wire:
    """How one table is told."""

    shape: Shape
    longs_as_text: bool = False

    # What is sent.

    def trackers(self, trackers: Iterable[Tracker]) -> list[Json]:
        if self.longs_as_text or len(self.shape.key) > 1:
            return [self._tracker(each) for each in trackers]
        return [
            {"primaryKey": key[0], "versionId": version, "changedBy": node}
            if node != ANY_NODE
            else {"primaryKey": key[0], "versionId": version}
            for key, version, node in trackers
        ]

    def acks(self, acks: Sequence[Ack]) -> list[Json]:
        if not acks:
            return []
        columns = Acks.of(acks)
        told = self.trackers(map(Tracker, zip(*columns.keys, strict=True), columns.versions, columns.nodes))
        for place, refused in columns.refused.items():
            told[place]["refused"] = refused
        return told

    def receipt(self, receipt: Receipt) -> Json:
        refused = [{**self._tracker(ack.tracker), "reason": ack.refused} for ack in receipt.refused]
        told: Json = {"refused": refused, "older": self.trackers(receipt.older)}
        if receipt.left:
            told["left"] = [{**self._tracker(ack.tracker), "reason": ack.refused} for ack in receipt.left]
        return told

    def rows(self, batch: RowBatch, receiver: int) -> list[Json]:
        """Rows for a node."""
        columns = batch.columns
        values = batch.by_column.values
        if self.longs_as_text:
            values = self._as_text(columns, values)
        times, nodes, gone, versions = values[len(columns) :]
        told: dict[str, Iterable[Any]] = dict(zip(columns, values, strict=False))
        for name, column in zip(numbered(names.TRACKER_KEY, len(self.shape.key)), self.shape.key, strict=True):
            told[name] = told[column]
        told[names.TRACKER_NODE] = repeat(self._long(receiver))
        told[names.TRACKER_VERSION] = versions
        told[names.TRACKER_PROCESSED] = repeat(False)
        told["doorTime"] = times
        told["doorNode"] = nodes
        told["doorDeleted"] = map(bool, gone)
        rows = zip(*told.values(), strict=False)
        return list(map(dict, map(zip, repeat(tuple(told)), rows)))

    # What has come.

    def read_trackers(self, told: Any) -> list[Tracker]:
        rows = objects(told)
        plain = self._read_plain(rows)
        if plain is None:
            return [self._read_tracker(each) for each in rows]
        keys, versions, nodes = plain
        return list(map(Tracker, zip(keys, strict=True), versions, nodes))

    def read_acks(self, told: Any) -> Acks:
        rows = objects(told)
        refused = {}
        for place, each in enumerate(rows):
            if "refused" in each and (why := self._read_reason(each["refused"])) is not None:
                refused[place] = why
        plain = self._read_plain(rows)
        if plain is not None:
            keys, versions, nodes = plain
            return Acks([keys], versions, nodes, refused)
        trackers = [self._read_tracker(each) for each in rows]
        return Acks.of([Ack(tracker, refused.get(place)) for place, tracker in enumerate(trackers)])

    def read_ack_columns(
        self, keys: Sequence[Sequence[Any]], versions: Sequence[Any], nodes: Sequence[Any], reasons: Iterable[Any]
    ) -> Acks:
        """Acknowledgements that come column by column."""
        for column in keys:
            if not set(map(type, column)) <= {*_KEY_PARTS}:
                for part in column:
                    _check_key_part(part)
        self._check_versions(versions)
        made_by = nodes if _are_nodes(nodes) else list(map(_read_node, nodes))
        why = {place: reason for place, reason in enumerate(map(self._read_reason, reasons)) if reason is not None}
        return Acks(keys, versions, made_by, why)

    def read_receipt(self, told: Any) -> Receipt:
        if type(told) is not dict:
            raise malformed("an answer is no object")
        refused, left = (
            [
                Ack(self._read_tracker(each), self._read_reason(each.get("reason")) or "no reason was told")
                for each in objects(told.get(name, []))
            ]
            for name in ("refused", "left")
        )
        return Receipt(refused, self.read_trackers(told.get("older", [])), left)

    def read_key(self, text: str) -> Key:
        """Where to go on."""
        try:
            return self._read_key(orjson.loads(text))
        except orjson.JSONDecodeError:
            raise malformed("a key is no JSON") from None

    def read_rows(self, told: Any) -> list[RowBatch]:
        """Rows; those that have the same columns are together."""
        rows = objects(told)
        kinds = set(map(tuple, rows))
        if len(kinds) <= 1:
            return [self._read_alike(kinds.pop(), rows)] if rows else []
        deleted = [row for row in rows if row.get("doorDeleted")]
        groups: dict[tuple[str, ...], list[Json]] = {}
        for row in rows:
            if not row.get("doorDeleted"):
                groups.setdefault(tuple(sorted(row)), []).append(row)
        found = [self._read_alike(columns, group) for columns, group in groups.items()]
        if deleted:
            everything = (*self.shape.column_names, *ROW_STAMP[:3])
            whole = [{**dict.fromkeys(everything), **self._folded(row)} for row in deleted]
            found.append(self._read_alike(everything, whole))
        return found

    def read_version(self, time: Any, node: Any, is_deleted: bool, version: Any) -> VersionId | None:
        """The version id of a row, from what it carries."""
        if not is_deleted:
            return version  # type: ignore[no-any-return]  # it is looked at where rows are received
        return f"-{time}-{node}" if self.shape.is_hash else time

    def own_name(self, name: str) -> str | None:
        """A column as it is called here."""
        return name if name in self._own_names else self._own_folded.get(name.lower())

    def unknown(self, told: Iterable[str]) -> frozenset[str]:
        """The columns that are none here, nor a tracker's."""
        return frozenset(name for name in told if self.own_name(name) is None and name.lower() not in _TRACKER)

    @property
    def _version_type(self) -> type[int] | type[str]:
        return str if self.shape.is_hash else int

    @cached_property
    def _own_names(self) -> frozenset[str]:
        return frozenset((*self.shape.column_names, *ROW_STAMP))

    @cached_property
    def _own_folded(self) -> dict[str, str]:
        return {name.lower(): name for name in reversed((*self.shape.column_names, *ROW_STAMP))}

    @cached_property
    def _longs(self) -> frozenset[str]:
        """The columns of whole numbers."""
        return frozenset(
            column.name
            for column in self.shape.columns
            if column.kind is Kind.PLAIN and "int" in column.declared.lower()
        )

    def _folded(self, row: Json) -> Json:
        """A row with the names of its columns as they are here."""
        found: Json = {}
        for name, value in row.items():
            if (own := self.own_name(name)) is not None and (own not in found or name == own):
                found[own] = value
        return found

    def _read_alike(self, told: Sequence[str], rows: list[Json]) -> RowBatch:
        theirs: dict[str, str] = {}
        for name in told:
            if (own := self.own_name(name)) is not None and (own not in theirs or name == own):
                theirs[own] = name
        columns = tuple(name for name in self.shape.column_names if name in theirs)
        rest = [theirs.get(name) for name in (*ROW_STAMP[:3], self.shape.entity.version)]
        absent = [None] * len(rows)
        times, nodes, flags, made = (absent if name is None else list(map(itemgetter(name), rows)) for name in rest)
        if not set(map(type, flags)) <= {bool, int, type(None)} or not set(flags) <= _FLAGS.keys():
            raise malformed("a row's doorDeleted is neither true nor false")
        values = [list(map(itemgetter(theirs[name]), rows)) for name in columns]
        if self.longs_as_text:
            values = [
                list(map(_number, column)) if name in self._longs else column
                for name, column in zip(columns, values, strict=True)
            ]
            times, nodes = list(map(_number, times)), list(map(_number, nodes))
            made = made if self.shape.is_hash else list(map(_number, made))
        gone = [_FLAGS[flag] for flag in flags]
        versions = list(map(self.read_version, times, nodes, gone, made)) if any(gone) else made
        return RowBatch(columns, Columns([*values, times, nodes, gone, versions]), self.unknown(told))

    def _as_text(self, columns: Sequence[str], values: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        count = len(columns)
        places = {place for place, name in enumerate(columns) if name in self._longs}
        places |= {count, count + 1, count + 3}
        return [list(map(_text, column)) if place in places else column for place, column in enumerate(values)]

    def _long(self, number: int) -> int | str:
        return str(number) if self.longs_as_text else number

    def _tracker(self, tracker: Tracker) -> Json:
        key = tracker.key
        version: VersionId = tracker.version
        if self.longs_as_text:
            key = tuple(
                _text(part) if name in self._longs else part for name, part in zip(self.shape.key, key, strict=True)
            )
            version = _text(version)
        found = {"primaryKey": key[0] if len(key) == 1 else list(key), "versionId": version}
        if tracker.node != ANY_NODE:
            found["changedBy"] = self._long(tracker.node)
        return found

    def _read_plain(self, told: list[Json]) -> tuple[Sequence[Any], Sequence[VersionId], Sequence[int]] | None:
        """Keys, versions and nodes of trackers in which there is nothing odd, all at once; None if there may be."""
        if self.longs_as_text or len(self.shape.key) > 1 or not told:
            return None
        try:
            keys, versions, nodes = zip(*map(_TRACKER_PARTS, told), strict=True)
        except KeyError:
            return None
        is_plain = set(map(type, keys)) <= {int, str} and set(map(type, versions)) == {self._version_type}
        if not is_plain or not _are_nodes(nodes):
            return None
        return keys, versions, nodes

    def _read_tracker(self, told: Json) -> Tracker:
        if "primaryKey" not in told or "versionId" not in told:
            raise malformed("a tracker needs primaryKey and versionId")
        version, node = told["versionId"], told.get("changedBy")
        if self.longs_as_text:
            version, node = version if self.shape.is_hash else _number(version), _number(node)
        self._check_versions((version,))
        return Tracker(self._read_key(told["primaryKey"]), version, _read_node(node))

    def _check_versions(self, versions: Iterable[Any]) -> None:
        if not set(map(type, versions)) <= {self._version_type}:
            raise malformed("a tracker's versionId is not of the kind that this table's versions are")

    def _read_key(self, told: Any) -> Key:
        count = len(self.shape.key)
        parts = tuple(told) if type(told) is list else (told,)
        if len(parts) != count or (type(told) is list) != (count > 1):
            raise malformed(f"a key of table {self.shape.entity.table} has {count} part{'s' * (count > 1)}")
        for part in parts:
            _check_key_part(part)
        if not self.longs_as_text:
            return parts
        return tuple(
            _number(part) if name in self._longs else part for name, part in zip(self.shape.key, parts, strict=True)
        )

    def _read_reason(self, told: Any) -> str | None:
        if told is not None and type(told) is not str:
            raise malformed("a reason is no text")
        return (
            None if told is None else told[:REASON_CHARACTERS_MAX].replace("\0", "")
        )  # PostgreSQL has no text with it


def malformed(what: str) -> TailraceError:
    return TailraceError("sync.malformed", what, hint="send it as GET /openapi.json says")


def objects(told: Any) -> list[Json]:
    """A list of objects."""
    if type(told) is not list:
        raise malformed("a body is no array")
    if not set(map(type, told)) <= {dict}:
        raise malformed("an array has something else than objects")
    return told


def _check_key_part(part: Any) -> None:
    is_marked = type(part) is dict and len(part) == 1 and next(iter(part)) in _MARKED
    if type(part) not in _KEY_PARTS and not is_marked:
        raise malformed("a part of a key is neither a number nor text")


def _read_node(told: Any) -> int:
    if told is None:
        return ANY_NODE
    if not _are_nodes((told,)):
        raise malformed("a tracker's changedBy is no node")
    return int(told)


def _are_nodes(told: Sequence[Any]) -> bool:
    return set(map(type, told)) == {int} and 0 <= min(told) <= max(told) < 1 << 63


def _number(value: Any) -> Any:
    return int(value) if type(value) is str and _LONG.fullmatch(value) else value


def _text(value: Any) -> Any:
    return str(value) if type(value) is int else value
