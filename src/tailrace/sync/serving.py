"""Serving: other nodes reach a store over HTTP."""

from __future__ import annotations

from typing import Final

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_BODY_BYTES_MAX, SYNC_HEAD_S, SYNC_REQUESTS_MAX, SYNC_STALLED_S
from tailrace.serving.bounds import Bounds
from tailrace.serving.server import HttpServer, Tls
from tailrace.sync.server import ServerOptions, app
from tailrace.sync.store import SyncStore

__all__ = ["SyncServer", "Tls"]

_CLOSING_S: Final = 10


class SyncServer(HttpServer):
    """Serves a store to other nodes: `with SyncServer(store, "127.0.0.1:0") as server: server.url`."""

    def __init__(
        self,
        store: SyncStore,
        listen: str = "127.0.0.1:0",
        options: ServerOptions | None = None,
        tls: Tls | None = None,
    ) -> None:
        served = app(store, options)
        bounds = Bounds(
            connections_max=SYNC_REQUESTS_MAX,
            head_s=SYNC_HEAD_S,
            stalled_s=SYNC_STALLED_S,
            unwanted_bytes_max=SYNC_BODY_BYTES_MAX,
            closing_s=_CLOSING_S,
        )
        super().__init__(served, listen, bounds, tls, has_lifespan=True)
        self._service = served.state.service

    @property
    def fault(self) -> TailraceError | None:
        """Why requests have failed lately, if that was because of this side."""
        found: TailraceError | None = self._service.faults.latest
        return found

    def stop(self) -> None:
        """Serve nobody any more. What is being done is done to its end."""
        if self.is_serving:
            self._service.hang_up()
        super().stop()
