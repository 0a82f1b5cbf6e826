"""Supplying snapshots in the process of a site, without an outbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.queues.entries import Kind
from tailrace.queues.payload import check_payload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.queues.requests import Request
    from tailrace.queues.site import Site

Provider = Callable[["Supply"], None]
"""Supplies all data of a client, as payloads."""
_SUPPLY_BYTES: Final = 8 << 20


class Supply:
    """A snapshot that a provider in this process supplies."""

    def __init__(self, site: Site, request: Request, attempt: str) -> None:
        self.request = request.id
        self.sites = tuple(request.sites)
        self._site = site
        self._client = request.client
        self._attempt = attempt
        self._waiting: list[bytes] = []
        self._size = 0

    def transmit(self, payload: bytes) -> None:
        """One message of the snapshot."""
        self._waiting.append(check_payload(payload))
        self._size += len(payload)
        if self._size >= _SUPPLY_BYTES:
            self.flush()

    def transmit_frame(self, frame: DataFrame, column: str = "payload") -> None:
        """A DataFrame of Spark as messages: one for each value of a column of bytes, in the order of the partitions.
        The tasks write them beside the site's log, whose directory all executors must see."""
        from tailrace.queues.staged import Stage, stage_frame

        self.flush()
        stage = Stage(self._site.directory, self._client, self._attempt, self.sites)
        for part in stage_frame(frame, column, stage):
            self._site.publish(part)

    def flush(self, *, is_end: bool = False) -> None:
        """What was transmitted is on its way."""
        if self._waiting:
            self._site.supply(self._client, self._attempt, self._waiting, self.sites)
            self._waiting, self._size = [], 0
        if is_end:
            self._site.supply(self._client, self._attempt, [b""], self.sites, Kind.SNAPSHOT_END)
