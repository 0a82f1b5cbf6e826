"""Applications in processes of their own, some of which die on purpose."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from tailrace.queues.answers import Ack, Answer
from tailrace.queues.desk import Desk, Patience
from tailrace.queues.incoming import Incoming
from tailrace.queues.receiving import Receiver

POISON: Final = b"poison"
QUICK: Final = Patience(attempts_max=3, wait_s=0.01, wait_s_max=0.05)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def receive_until_poison(connection: Connection[Any, Any], directory: str) -> None:
    """Say what comes and acknowledge it. Poison kills."""
    for message in Receiver(directory, "stock", patience=QUICK).messages(0.0):
        connection.send((message.payload.decode(), message.attempt))
        if message.payload == POISON:
            die()
        message.ack()


def apply_in(
    connection: Connection[Any, Any], directory: str, address: str, library: str, dies_before_answer: str
) -> None:
    """Apply messages in transactions of a database, until `last` is there. Killed after one was committed, if said."""
    stopping = threading.Event()
    settle = Desk.settle

    def settle_or_die(desk: Desk, message: Incoming, answer: Answer) -> None:
        text = message.payload.decode()
        if text == dies_before_answer:
            die()
        settle(desk, message, answer)
        connection.send(text)
        if text == "last":
            stopping.set()

    Desk.settle = settle_or_die  # type: ignore[assignment,method-assign]
    receiver = Receiver(directory, "stock", patience=QUICK)
    receiver.listen_in(lambda: connect(library, address), insert(library), stopping)


def connect(library: str, address: str) -> Any:
    """A connection to a database with a table `applied`. A first look has begun a transaction."""
    if library == "sqlite3":
        return sqlite3.connect(address, timeout=30)
    if library == "psycopg":
        import psycopg

        connection = psycopg.connect(address)
        connection.execute("SELECT 1")
        return connection
    from sqlalchemy import create_engine, text
    from sqlalchemy.pool import NullPool

    url = address.replace("postgresql://", "postgresql+psycopg://") if "://" in address else f"sqlite:///{address}"
    through_sqlalchemy = create_engine(url, poolclass=NullPool).connect()
    through_sqlalchemy.execute(text("SELECT 1"))
    return through_sqlalchemy


def insert(library: str) -> Callable[[Any, str, Incoming], Answer]:
    """A handler that notes each message that it applies."""

    def handler(connection: Any, source: str, message: Incoming) -> Answer:
        row = {"source": source, "said": message.payload.decode()}
        if library == "sqlite3":
            connection.execute("INSERT INTO applied (source, said) VALUES (:source, :said)", row)
        elif library == "psycopg":
            connection.execute("INSERT INTO applied (source, said) VALUES (%(source)s, %(said)s)", row)
        else:
            from sqlalchemy import text

            connection.execute(text("INSERT INTO applied (source, said) VALUES (:source, :said)"), row)
        return Ack()

    return handler
