"""Bodies of requests: how much of them is read, unpacked and made into values. Every length is checked before it is
believed, and what a body takes while it is worked on is counted against what all of them may take."""

from __future__ import annotations

import asyncio
import gzip
import re
import threading
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.requests import Request

from tailrace.errors import TailraceError
from tailrace.limits import (
    MIB,
    SYNC_BODIES_BYTES_MAX,
    SYNC_BODY_BYTES_MAX,
    SYNC_BODY_S,
    SYNC_DEPTH_MAX,
    SYNC_PACKED_BYTES_MAX,
    SYNC_ROWS_MAX,
    SYNC_VALUES_MAX,
)
from tailrace.sync.halfcharacters import read_half_characters
from tailrace.sync.wire import malformed

JSON: Final = "application/json"
_GZIP_WINDOW: Final = 31
"""What zlib calls gzip."""
_TEXTS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LENGTH_DIGITS_MAX: Final = 18
_PACK_BYTES_MIN: Final = 1024
_PACK_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class Body:
    """What came, as it came."""

    content: bytes
    media_type: str
    is_packed: bool

    def unpacked(self) -> bytes:
        """Takes long; not for the loop that serves all."""
        return unpack(self.content) if self.is_packed else self.content


class Room:
    """How much all bodies may take together."""

    def __init__(self, bytes_max: int = SYNC_BODIES_BYTES_MAX) -> None:
        self._left = bytes_max
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        with self._lock:
            if size > self._left:
                what = "too many large requests are worked on at the same time"
                raise TailraceError("sync.busy", what, hint="try again in a moment")
            self._left -= size

    def give(self, size: int) -> None:
        with self._lock:
            self._left += size


@asynccontextmanager
async def received(request: Request, room: Room, media_types: tuple[str, ...] = (JSON,)) -> AsyncIterator[Body]:
    """The body of a request; it has its room while it is used."""
    media_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if media_type not in media_types:
        what = f"a body of the type {media_type[:100]!r} is not read here"
        raise TailraceError("sync.media_type", what, hint=f"send {' or '.join(media_types)}")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("gzip", "identity"):
        what = f"a body with the encoding {coding[:100]!r} is not read here"
        raise TailraceError("sync.media_type", what, hint="send it with gzip, or as it is")
    bytes_max = SYNC_PACKED_BYTES_MAX if coding == "gzip" else SYNC_BODY_BYTES_MAX
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > _LENGTH_DIGITS_MAX or int(declared) > bytes_max:
        raise _too_large(bytes_max)
    held = _Held(room)
    try:
        if coding == "gzip":
            held.take(SYNC_BODY_BYTES_MAX)
        yield Body(await _read(request, held, bytes_max), media_type, coding == "gzip")
    finally:
        room.give(held.size)


class _Held:
    """What one body takes."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.size = 0

    def take(self, size: int) -> None:
        self._room.take(size)
        self.size += size


async def _read(request: Request, held: _Held, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(SYNC_BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > bytes_max:
                    raise _too_large(bytes_max)
                held.take(len(part))
                parts.append(part)
    except TimeoutError:
        what = f"the body did not come within {SYNC_BODY_S:g} s"
        raise TailraceError("sync.slow", what, hint="send fewer rows at a time") from None
    return b"".join(parts)


def unpack(content: bytes) -> bytes:
    """What gzip has packed, if that is not too much."""
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    parts, left, rest = [], SYNC_BODY_BYTES_MAX, content
    try:
        while not unpacker.eof:
            part = unpacker.decompress(rest, min(left + 1, MIB))
            left -= len(part)
            if left < 0:
                raise _too_large(SYNC_BODY_BYTES_MAX)
            rest = unpacker.unconsumed_tail
            if not part and not rest and not unpacker.eof:
                raise malformed("the body ends before its compression does")
            parts.append(part)
    except zlib.error:
        raise malformed("the body is not what gzip makes") from None
    if unpacker.unused_data:
        raise malformed("something stands behind the compressed body")
    return b"".join(parts)


def pack(content: bytes) -> bytes | None:
    """The content as gzip has it; None when that is not worth it."""
    return None if len(content) < _PACK_BYTES_MIN else gzip.compress(content, _PACK_LEVEL, mtime=0)


def read_json(content: bytes) -> list[Any]:
    """An array, if it is not too long nor too deep."""
    _check_count(content)
    try:
        told = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        told = read_half_characters(content)
        if told is None:
            raise malformed(f"the body is no JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    if type(told) is not list:
        raise malformed("the body is no array")
    if len(told) > SYNC_ROWS_MAX:
        what = f"the body has {len(told)} rows, and {SYNC_ROWS_MAX} are read at a time"
        raise TailraceError("sync.too_large", what, hint="send fewer rows at a time")
    if content.count(b"[") + content.count(b"{") > 1 + len(told):  # otherwise no row has anything inside
        _check_depth(told)
    return told


def _check_count(content: bytes) -> None:
    """Commas and brackets say how many values there are, at most. Only if these are many it matters where they are."""
    if _count(content) > SYNC_VALUES_MAX and _count(_TEXTS.sub(b"", content)) > SYNC_VALUES_MAX:
        what = f"the body has more than {SYNC_VALUES_MAX} values"
        raise TailraceError("sync.too_large", what, hint="send fewer rows at a time")


def _count(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")


def _check_depth(told: list[Any]) -> None:
    level: list[Any] = [told]
    for _ in range(SYNC_DEPTH_MAX):
        inner = []
        for each in level:
            values = each.values() if type(each) is dict else each
            inner += [value for value in values if type(value) is dict or type(value) is list]
        if not inner:
            return
        level = inner
    what = f"the body has arrays and objects that are more than {SYNC_DEPTH_MAX} deep"
    raise TailraceError("sync.malformed", what, hint="send rows and trackers as GET /openapi.json says")


def _too_large(bytes_max: int) -> TailraceError:
    what = f"the body has more than {bytes_max // MIB} MB"
    return TailraceError("sync.too_large", what, hint="send fewer rows at a time")
