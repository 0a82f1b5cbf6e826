"""Server-sent events: an answer that goes on for as long as the connection lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class EventStream(StreamingResponse):
    """Events, and what is held while somebody listens: it is let go of however the connection ends."""

    def __init__(self, events: AsyncIterator[str], opened: ExitStack) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._opened:
            await super().__call__(scope, receive, send)
