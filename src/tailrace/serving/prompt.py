"""A connection that takes its time is closed: one that says nothing for long, only bits of a request, more than anybody
wants to hear, or that does not take its answer. It would take another one's place."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from tailrace.serving.bounds import Bounds

_LOGGER: Final = logging.getLogger(__name__)


class BoundedConfig(uvicorn.Config):
    """What the server knows, with its bounds."""

    def __init__(self, app: ASGIApp, bounds: Bounds, **named: Any) -> None:
        super().__init__(app, http=PromptProtocol, **named)
        self.bounds = bounds
        self.waiting: dict[PromptProtocol, None] = {}
        """The connections that have asked for nothing, or have their answer; who waits longest comes first."""


class PromptProtocol(H11Protocol):
    """One connection."""

    config: BoundedConfig

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.logger = _LOGGER  # what is wrong is told where all of Tailrace is told of, in its form
        self._bounds = self.config.bounds
        self._limit: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unwanted_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.config.waiting[self] = None
        self._begin()
        if len(self.connections) > self._bounds.connections_max:
            longest = next(iter(self.config.waiting))  # there is one: this
            del self.config.waiting[longest]
            longest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering:
            self._end()
            self.config.waiting.pop(self, None)
            return
        self._unwanted_bytes += len(data)  # of a body that was refused already
        if self._unwanted_bytes > self._bounds.unwanted_bytes_max:
            self.transport.close()
        elif self._limit is None and not self.transport.is_closing():
            self._begin()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_answering and not self.transport.is_closing():
            self.config.waiting[self] = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self._bounds.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._flows()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._flows()
        self.config.waiting.pop(self, None)
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _begin(self) -> None:
        self._limit = self.loop.call_later(self._bounds.head_s, self.transport.abort)

    def _end(self) -> None:
        self._unwanted_bytes = 0
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _flows(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
