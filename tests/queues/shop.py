"""An application that sells, in several threads, and tells another site in the same transactions. It supplies
snapshots, too. It may be killed at any moment, and goes on where its database is."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg

from tailrace.queues import RoutingQueue, SnapshotContext

CLIENT, SOURCE, SINK = "inventory", "plant", "office"
SELLERS = 3
RUN = "import sys; from tests.queues.shop import sell; sell(sys.argv[1])"
NEVER = b"never"


def connecting(url: str) -> Callable[[], Any]:
    if url.startswith("postgresql://"):
        return lambda: psycopg.connect(url)
    return lambda: sqlite3.connect(url, timeout=60)


def sales(url: str) -> list[str]:
    """All that were committed."""
    with closing(connecting(url)()) as connection:
        found = connection.execute("SELECT seller, number FROM sales ORDER BY seller, number").fetchall()
    return [f"{seller}:{number}" for seller, number in found]


def sell(url: str) -> None:
    """Says `ready`, and `end` when it was told to stop and has; it goes on supplying snapshots then."""
    connect, queue, stopping = connecting(url), RoutingQueue(CLIENT), threading.Event()

    def everything(context: SnapshotContext) -> None:
        for sale in sales(url):
            context.transmit(sale.encode())

    with queue.provide_snapshots(connect, everything, lease_s=2.0):
        sellers = [threading.Thread(target=_sell, args=(connect, queue, each, stopping)) for each in range(SELLERS)]
        for seller in sellers:
            seller.start()
        say("ready")
        sys.stdin.readline()
        stopping.set()
        for seller in sellers:
            seller.join()
        say("end")
        threading.Event().wait()


def _sell(connect: Callable[[], Any], queue: RoutingQueue, seller: int, stopping: threading.Event) -> None:
    with closing(connect()) as connection:
        last = connection.execute(f"SELECT coalesce(max(number), -1) FROM sales WHERE seller = {seller}").fetchone()[0]
        connection.rollback()
        while not stopping.wait(0.005):
            last += 1
            connection.execute(f"INSERT INTO sales VALUES ({seller}, {last})")
            connection.execute("SAVEPOINT doubt")
            if last % 3 == 0:
                queue.transmit(connection, NEVER, [SINK])
                connection.execute("ROLLBACK TO SAVEPOINT doubt")
            queue.transmit(connection, f"{seller}:{last}".encode(), [SINK])
            connection.execute("RELEASE SAVEPOINT doubt")
            connection.commit()
            if last % 4 == 0:
                queue.transmit(connection, NEVER, [SINK])
                connection.rollback()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
