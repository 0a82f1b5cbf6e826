"""Devices that are simulated: each speaks the protocol over a connection of its own, and keeps no more than it needs to
check what it was given."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

TABLE_ID = 7
FIRST_NODE = 5_000_000_000_000_000_000
TEXT = "a note of some sixty characters, as people write them, no. "


@dataclass
class Device:
    """The rows with even numbers wait for it at the node; those with odd numbers it has made itself."""

    number: int
    rows: int
    sent: bool = False

    @property
    def node(self) -> int:
        return FIRST_NODE + self.number

    @property
    def keys(self) -> range:
        return range(self.number * self.rows, (self.number + 1) * self.rows)

    def round(self, url: str) -> float:
        """Everything once, as `tailrace.sync.round` does it; says how long it took."""
        began_s = time.perf_counter()
        link = _Link(url, self.node)
        try:
            about = link.ask("GET", "node")
            there = link.ask("GET", "pending")
            if TABLE_ID in there["tables"]:
                self._fetch(link)
            if not self.sent:
                self._send(link, about["time"])
                self.sent = True
        finally:
            link.close()
        return time.perf_counter() - began_s

    def _fetch(self, link: _Link) -> None:
        rows = link.ask("GET", f"pendingReplication?tableId={TABLE_ID}&limit={self.rows}")
        found = {row["id"]: row["body"] for row in rows}
        if found != {key: f"{TEXT}{key}" for key in self.keys if key % 2 == 0} or len(rows) != len(found):
            raise SystemExit(f"device {self.number} was given {len(rows)} rows, and not those that are its own")
        acks = [
            {"primaryKey": row["id"], "versionId": row["changed"], "changedBy": row["doorNode"], "refused": None}
            for row in rows
        ]
        link.ask("PUT", f"markReplicateTrackersAsProcessed?tableId={TABLE_ID}", acks)

    def _send(self, link: _Link, now_ms: int) -> None:
        keys = [key for key in self.keys if key % 2]
        asked = [{"primaryKey": key, "versionId": now_ms, "changedBy": self.node} for key in keys]
        if link.ask("POST", f"checkForEntitiesAlreadyReceived?tableId={TABLE_ID}", asked):
            raise SystemExit(f"the node claims to have rows that device {self.number} has just made")
        stamp = {"changed": now_ms, "doorTime": now_ms, "doorNode": self.node, "doorDeleted": False}
        rows = [{"id": key, "device": self.node, "body": f"{TEXT}{key}", **stamp} for key in keys]
        receipt = link.ask("PUT", f"receive?tableId={TABLE_ID}", rows)
        if receipt != {"refused": [], "older": []}:
            raise SystemExit(f"rows of device {self.number} were not taken: {receipt}")


class _Link:
    def __init__(self, url: str, node: int) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)
        self._headers = {"door-node": f"{node}/{node:032}", "content-type": "application/json"}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else orjson.dumps(body)
        self._connection.request(method, f"/replication/{path}", content, self._headers)
        response = self._connection.getresponse()
        told = response.read()
        if response.status not in (200, 204):
            raise SystemExit(f"{method} {path}: {response.status} {told[:300]!r}")
        return orjson.loads(told) if told else None

    def close(self) -> None:
        self._connection.close()


def rounds(url: str, devices: list[Device], at_once: int, each: Callable[[int], None]) -> list[float]:
    """A round of every device, some at a time; `each` is told how many are done. Says how long each one took."""
    lock, done = threading.Lock(), 0

    def one(device: Device) -> float:
        nonlocal done
        taken_s = device.round(url)
        with lock:
            done += 1
            each(done)
        return taken_s

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, devices))


def waiting_rows(devices: list[Device]) -> Iterator[tuple[int, int, str, int]]:
    """What waits for them at the node: key, device, body, version."""
    changed = int(time.time() * 1000)
    for device in devices:
        yield from ((key, device.node, f"{TEXT}{key}", changed) for key in device.keys if key % 2 == 0)
