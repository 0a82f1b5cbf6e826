"""Receive what other sites have sent to a client, and put aside what cannot be used. Run it beside a site.

python receive.py DATA CLIENT
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from tailrace.queues.answers import Ack, Answer, Park
from tailrace.queues.incoming import Incoming
from tailrace.queues.receiving import Receiver


class Stock:
    """What each source has, by item, as `item=amount` in UTF-8."""

    def __init__(self) -> None:
        self.amounts: dict[str, dict[str, int]] = {}

    def on_snapshot_start(self, source: str, request: str) -> Answer:
        self.amounts[source] = {}
        return Ack()

    def on_snapshot_message(self, source: str, message: Incoming) -> Answer:
        return self._take(source, message)

    def on_snapshot_end(self, source: str, request: str) -> Answer:
        print(f"{source}: {len(self.amounts.get(source, {}))} items")
        return Ack()

    def on_log_entry(self, source: str, message: Incoming) -> Answer:
        return self._take(source, message)

    def on_error(self, source: str, error: Exception) -> None:
        print(f"{source}: {error}; it is tried again", file=sys.stderr)

    def _take(self, source: str, message: Incoming) -> Answer:
        item, found, amount = message.payload.decode(errors="replace").partition("=")
        if not found or not amount.isdecimal():
            return Park("it is not item=amount")
        self.amounts.setdefault(source, {})[item] = int(amount)
        print(f"{source}: {item} {amount}")
        return Ack()


def main(data: str, client: str) -> None:
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    Receiver(Path(data) / "queues", client).listen(Stock(), stopping)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
