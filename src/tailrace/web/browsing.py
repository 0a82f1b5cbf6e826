"""Browsing the log: a page of messages by offset, namespace, time, origin or destination, and one message whole."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.log.reader import LogReader
from tailrace.log.selection import Selection, exactly
from tailrace.message import Entry, Message, Micros, Offset, moment

MESSAGES_MAX: Final = 200
LOOKED_S: Final = 2.0
"""After so long a page ends, however little was found: the next one goes on from there."""
STRETCH: Final = 50_000
"""So many offsets are looked through before the time is looked at, whether anything is found in them or not."""
SHOWN_LETTERS: Final = 10_000
FIELDS_MAX: Final = 500
"""So many fields of one message are shown."""
_NOTHING: Final = object()
"""Stands for a field that is not there."""
PAGE_BYTES_MAX: Final = 8 << 20
"""A page of messages ends with the one that makes it larger than this, as JSON."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages somebody wants to see."""

    offset: int | None = None
    namespace: str | None = None
    since: datetime | None = None
    origin: int | None = None
    destination: str | None = None
    limit: int = 50

    @classmethod
    def read(cls, said: dict[str, str]) -> Wanted:
        """What a form says; what is left out is not minded. Raises `input.invalid`."""
        unknown = said.keys() - {"offset", "namespace", "since", "origin", "destination", "limit"}
        if unknown:
            raise _invalid(f"nothing is known about {', '.join(sorted(unknown))}")
        limit = _number(said, "limit")
        return cls(
            _number(said, "offset"),
            said.get("namespace") or None,
            _moment(said.get("since") or ""),
            _number(said, "origin"),
            said.get("destination") or None,
            50 if limit is None else max(1, min(limit, MESSAGES_MAX)),
        )


@dataclass(frozen=True, slots=True)
class Found:
    """A page of messages."""

    entries: list[Entry]
    next_offset: int | None
    """Where the next page begins; None at the end of the log."""
    problem: TailraceError | None = None
    """What kept from looking further, such as a damaged frame."""


def browse(directory: str, wanted: Wanted) -> Found:
    """The messages from a place on that are wanted. What is removed meanwhile is not among them."""
    reader = LogReader(directory)
    return reader.steadily(lambda: _browse(reader, wanted))


def _browse(reader: LogReader, wanted: Wanted) -> Found:
    start = max(reader.oldest, wanted.offset or 0)
    if wanted.since is not None:
        start = max(start, reader.offset_at(Micros(int(wanted.since.timestamp() * 1_000_000))))
    end = reader.next_offset
    if start >= end:
        return Found([], None)
    namespace = None if wanted.namespace is None else exactly(wanted.namespace)
    selection = Selection(namespace=namespace, destination=wanted.destination)
    entries: list[Entry] = []
    room_bytes = PAGE_BYTES_MAX
    over_s = time.monotonic() + LOOKED_S
    for place in range(start, end, STRETCH):
        stretch_end = min(place + STRETCH, end)
        try:
            for entry in reader.entries(Offset(place), Offset(stretch_end), selection):
                if wanted.origin is None or entry.message.origin == wanted.origin:
                    entries.append(entry)
                    room_bytes -= _size_of(entry.message)
                if len(entries) >= wanted.limit or room_bytes < 0 or time.monotonic() > over_s:
                    return Found(entries, entry.offset + 1 if entry.offset + 1 < end else None)
        except TailraceError as error:
            if error.code == "log.below_oldest":
                raise
            return Found(entries, None, error)
        if time.monotonic() > over_s:
            return Found(entries, stretch_end if stretch_end < end else None)
    return Found(entries, None)


class Compacted(TailraceError):
    """A message that compaction removed, with the nearest ones that are there; None where there is none."""

    def __init__(self, offset: int, before: int | None, after: int | None) -> None:
        near = " and ".join(str(each) for each in (before, after) if each is not None)
        what = f"message {offset} was compacted away" + (f"; the nearest that are there: {near}" if near else "")
        nearest = before if after is None else after
        super().__init__("log.compacted", what, hint="" if nearest is None else f"tailrace log show {nearest}")
        self.before = before
        self.after = after


def message_at(directory: str, offset: int) -> Entry:
    """One message. Raises `log.below_oldest`, `log.past_end`, or `Compacted`."""
    reader = LogReader(directory)
    reader.check_range(offset, max(offset, reader.oldest) + 1)
    return reader.steadily(lambda: _message_at(reader, offset))


def _message_at(reader: LogReader, offset: int) -> Entry:
    found = _first(reader, offset, offset + 1)
    if found is None:
        after = _first(reader, offset + 1, reader.next_offset)
        raise Compacted(offset, _last_before(reader, offset), None if after is None else after.offset)
    return found


def _first(reader: LogReader, start: int, end: int) -> Entry | None:
    return next(reader.entries(start, end), None) if start < end else None


def _last_before(reader: LogReader, end: int) -> int | None:
    """The last message before an offset. Between two places there is one or none, so that halves are looked at: what
    is gone may be millions of messages long, and what is before it as long."""
    found, low, high = None, int(reader.oldest), end
    while low < high:
        middle = (low + high) // 2
        entry = _first(reader, middle, end)
        if entry is None:
            high = middle
        else:
            found, low = int(entry.offset), int(entry.offset) + 1
    return found


def offset_of(said: str) -> int:
    """An offset in an address. Raises `input.invalid`."""
    found = _number({"offset": said}, "offset")
    if found is None:
        raise _invalid("no offset was said")
    return found


def moment_of(message: Message) -> str:
    """When it was, for people; a source may say anything."""
    try:
        return moment(message.timestamp).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{message.timestamp} µs since 1970"


def told(entry: Entry) -> dict[str, Any]:
    """A message as plain JSON."""
    message = entry.message
    return {
        "offset": entry.offset,
        "at": moment_of(message),
        "namespace": message.namespace,
        "op": str(message.op.name).lower(),
        "origin": str(message.origin),
        "lsn": str(message.lsn),
        "tx": message.tx,
        "destinations": list(message.destinations or ()),
        "data": _plain(message.data),
        "before": _plain(message.before),
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of a message: what it was and what it is, None where there was no such field."""

    name: str
    before: str | None
    after: str | None
    is_changed: bool
    """By the values: what is cut short, or is a text that looks like something else, may be shown alike."""


def differences(message: Message) -> Iterator[Difference]:
    """Field by field."""
    before = message.before if isinstance(message.before, dict) else {}
    data = message.data if isinstance(message.data, dict) else {}
    for name in islice({**before, **data}, FIELDS_MAX):
        was, now = before.get(name, _NOTHING), data.get(name, _NOTHING)
        is_changed = _exact(was) != _exact(now)
        show = _quoted if is_changed and shown(was) == shown(now) else shown
        yield Difference(
            name, None if was is _NOTHING else show(was), None if now is _NOTHING else show(now), is_changed
        )


def shown(value: Any) -> str:
    """A value for people."""
    return _cut(value if isinstance(value, str) else _as_json(value))


def _quoted(value: Any) -> str:
    """The same so that a text is not taken for something else."""
    return _cut(_as_json(value))


def _exact(value: Any) -> tuple[type, str]:
    """What is equal only for equal values of one type: 1 is not true, and what is no number is itself."""
    return type(value), "" if value is _NOTHING else _as_json(value)


def _as_json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}… ({len(text):,} letters)"


def _size_of(message: Message) -> int:
    """About how large it is as JSON; what is large are texts."""
    return sum(_size_of_value(each) for each in (message.data, message.before))


def _size_of_value(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(len(str(key)) + _size_of_value(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_size_of_value, value))
    if isinstance(value, str):
        return len(value)
    return 2 * len(value) if isinstance(value, bytes) else 8


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return {"$binary": value.hex()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)


def _number(said: dict[str, str], name: str) -> int | None:
    text = said.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise _invalid(f"{name}: {text[:40]!r} is no number")
    return int(text)


def _moment(text: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _invalid(f"since: {text[:40]!r} is no time such as 2026-11-18T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _invalid(what: str) -> TailraceError:
    return TailraceError("input.invalid", what, hint="correct what is asked for")
