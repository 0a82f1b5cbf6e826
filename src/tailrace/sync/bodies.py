"""Bodies of requests, as they come to a server: how much of them is read. Every length is checked before it is
believed, and what a body takes while it is worked on is counted against what all of them may take."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_BODIES_BYTES_MAX, SYNC_BODY_BYTES_MAX, SYNC_BODY_S, SYNC_PACKED_BYTES_MAX
from tailrace.sync.content import JSON, more_than, unpack

_LENGTH_DIGITS_MAX: Final = 18


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
        raise more_than(bytes_max)
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
    content = bytearray()  # a list would take more than the body if that comes byte by byte
    try:
        async with asyncio.timeout(SYNC_BODY_S):
            async for part in request.stream():
                if len(content) + len(part) > bytes_max:
                    raise more_than(bytes_max)
                held.take(len(part))
                content += part
    except TimeoutError:
        what = f"the body did not come within {SYNC_BODY_S:g} s"
        raise TailraceError("sync.slow", what, hint="send fewer rows at a time") from None
    return bytes(content)
