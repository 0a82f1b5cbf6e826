"""A server that answers as a node does, except where a test says otherwise: with any bytes, headers and status."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from tailrace.sync import arrowform
from tailrace.sync.meeting import wall_clock_ms
from tests.sync.threaded import ThreadedServer
from tests.sync.todo import TABLE_ID

NODE: Final = 7_000_000_000_000_000_009
JSON: Final = "application/json"
ENDPOINTS: Final = (
    "node",
    "pending",
    "pendingtrackers",
    "pendingReplication",
    "checkForEntitiesAlreadyReceived",
    "receive",
    "markReplicateTrackersAsProcessed",
)


@dataclass(frozen=True)
class Said:
    """An answer."""

    body: bytes = b""
    kind: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    has_length: bool = True
    """Without a length it ends with the connection."""


def said(value: Any) -> Said:
    return Said(orjson.dumps(value))


def as_a_node() -> dict[str, Said]:
    """What a node says that has something in its table, of which nothing is left when it is asked."""
    formats = [JSON, arrowform.MEDIA_TYPE]
    tables = {str(TABLE_ID): {"table": "todo", "batch": 100}}
    return {
        "node": said({"nodeId": NODE, "time": wall_clock_ms(), "keyNode": 5, "formats": formats, "tables": tables}),
        "pending": said({"tables": [TABLE_ID], "empty": []}),
        "pendingtrackers": said([]),
        "pendingReplication": said([]),
        "checkForEntitiesAlreadyReceived": said([]),
        "receive": said({"refused": [], "older": []}),
        "markReplicateTrackersAsProcessed": Said(status=204),
        "subscribe": Said(f"event: INIT\ndata: {NODE}\n\n".encode(), "text/event-stream", has_length=False),
    }


class HostileServer(ThreadedServer):
    """`with HostileServer() as server`: `server.answers` may be changed at any time."""

    def __init__(self) -> None:
        self.answers = as_a_node()
        self.asked: list[str] = []
        super().__init__(self._handler())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with suppress(ConnectionError):  # who has heard enough hangs up
                    super().handle_one_request()

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                name = urlsplit(self.path).path.rpartition("/")[2]
                outer.asked.append(name)
                told = outer.answers[name]
                self.send_response(told.status)
                self.send_header("content-type", told.kind)
                for key, value in told.headers.items():
                    self.send_header(key, value)
                if told.status != 204 and told.has_length:
                    self.send_header("content-length", str(len(told.body)))
                elif told.status != 204:
                    self.close_connection = True
                self.end_headers()
                self.wfile.write(told.body)

            do_PUT = do_POST = do_GET  # noqa: N815  the names are those of http.server

            def log_message(self, *_: object) -> None:
                return

        return Handler
