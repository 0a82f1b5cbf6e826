"""Append a few orders to a log, follow them as a consumer, and see what is left to do. Run it twice: it goes on."""

from __future__ import annotations

import sys
import time

from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.session import ConsumerSession
from tailrace.message import Message, Micros, Op


def main(directory: str) -> None:
    now = Micros(time.time_ns() // 1000)
    with CommitLog.open(directory) as log:
        first = log.next_offset
        orders = [
            Message(Op.INSERT, now, "shop.orders", {"id": first + at, "city": city})
            for at, city in enumerate(("Zürich", "Bern", "Basel"))
        ]
        print("appended", log.append_messages(orders))

    consumers = Consumers(directory)
    consumers.register("printer", exist_ok=True)
    with ConsumerSession(consumers, "printer") as session:
        for entry in LogReader(directory).entries(session.resume_offset):
            print("delivered", entry.offset, entry.message.data)
            session.commit(entry.offset)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "orders-log")
