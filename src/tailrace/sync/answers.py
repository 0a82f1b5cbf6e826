"""Answers: what a server says, as JSON or Arrow, packed if the caller can unpack it, and errors with their status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_PACKED_BYTES_MAX
from tailrace.sync.content import JSON, MORE, pack
from tailrace.sync.counts import header

STATUS: Final[Mapping[str, int]] = {
    "sync.malformed": 400,
    "sync.no_rights": 401,
    "sync.not_admitted": 403,
    "sync.unknown_table": 404,
    "sync.unknown_route": 404,
    "sync.slow": 408,
    "sync.bad_node": 409,
    "sync.too_large": 413,
    "sync.media_type": 415,
    "sync.busy": 503,
    "sync.unreachable": 503,
    "sync.left": 507,
}
"""By the code of an error; all others are faults of this side."""
_FAILED: Final = 500
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Vary": "Accept, Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said. It is made where there is time, and sent by the loop that serves all."""

    content: bytes
    media_type: str = JSON
    is_packed: bool = False
    status: int = 200
    count: int | None = None
    """How often this node has exchanged something with the caller."""
    has_more: bool = False
    """Whether rows were left only because they would have been too large together."""

    @classmethod
    def of(cls, request: Request, content: bytes, media_type: str = JSON, status: int = 200) -> Answer:
        packed = pack(content) if takes_gzip(request) else None
        if packed is None or len(packed) > SYNC_PACKED_BYTES_MAX:  # who unpacks reads no more
            return cls(content, media_type, False, status)
        return cls(packed, media_type, True, status)

    @classmethod
    def json(cls, request: Request, value: Any, status: int = 200) -> Answer:
        return cls.of(request, orjson.dumps(value), JSON, status)

    def response(self) -> Response:
        packed = {"Content-Encoding": "gzip"} if self.is_packed else {}
        more = {MORE: "true"} if self.has_more else {}
        headers = {**_HEADERS, **packed, **more, **header(self.count)}
        return Response(self.content, self.status, headers, self.media_type)


def nothing() -> Response:
    """It is done, and there is nothing to say."""
    return Response(status_code=204, headers=_HEADERS)


def failure(error: TailraceError, status: int | None = None, more: Mapping[str, str] | None = None) -> Response:
    """An error, as JSON."""
    found = status or STATUS.get(error.code, _FAILED)
    headers = {**_HEADERS, **(more or {})}
    if found == 401:
        headers["WWW-Authenticate"] = 'door-node realm="tailrace"'
    if found == 503:
        headers["Retry-After"] = "1"
    return Response(orjson.dumps(error_object(error)), found, headers, JSON)


def error_object(error: TailraceError) -> dict[str, dict[str, str]]:
    return {"error": {"code": error.code, "what": error.what, "hint": error.hint}}


def takes_gzip(request: Request) -> bool:
    return _names(request, "accept-encoding", "gzip")


def wants(request: Request, media_type: str) -> bool:
    """Whether the caller asks for a type by its name."""
    return _names(request, "accept", media_type)


def _names(request: Request, header: str, name: str) -> bool:
    for part in request.headers.get(header, "").split(","):
        found, _, parameters = part.partition(";")
        if found.strip().lower() == name:
            return parameters.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
