"""Parked messages: put aside because nobody could take them, kept until somebody decides.

They are in a SQLite file beside the log, with all that they carry, so that they can be read when the log has removed
them. What is parked is skipped by its listener, whether it was there already or not.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from tailrace.errors import Place, TailraceError
from tailrace.log import audit
from tailrace.log.disk import Disk
from tailrace.message import Micros, now
from tailrace.queues.discovery import listener_consumer
from tailrace.queues.entries import Kind, Received

NAME: Final = "parked.db"
_BUSY_S: Final = 30.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS parked (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    client TEXT NOT NULL,
    listener TEXT NOT NULL,
    source TEXT NOT NULL,
    place INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    payload BLOB,
    source_id INTEGER NOT NULL,
    tx TEXT NOT NULL,
    request TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    reason TEXT NOT NULL,
    parked_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    replay TEXT NOT NULL DEFAULT '',
    UNIQUE (client, listener, source, place)
)
"""
_COLUMNS: Final = (
    "id, client, listener, source, place, kind, payload, source_id, tx, request, sent_at,"
    " attempts, reason, parked_at, state, replay"
)


class ParkedState(StrEnum):
    """What is to become of a parked message."""

    PARKED = "parked"
    REPLAYING = "replaying"
    """Its listener gets it before the next new message of that source."""
    DISCARDED = "discarded"
    """Nobody gets it; it is forgotten when its listener has passed it."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked message."""

    id: int
    client: str
    listener: str
    source: str
    message: Received
    attempts: int
    reason: str
    at: Micros
    state: ParkedState
    replay: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What a listener has to know about a parked message while it reads."""

    id: int
    source: str
    offset: int
    state: ParkedState


class ParkingLot:
    """The parked messages of a log. Many processes may use it; one object of it is used by one thread at a time."""

    def __init__(self, log_directory: str) -> None:
        self._directory = os.path.abspath(log_directory)
        self._path = os.path.join(self._directory, NAME)
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def park(self, client: str, listener: str, source: str, message: Received, attempts: int, reason: str) -> int:
        """Put a message aside, durably; returns its number. One that is there already is not put aside twice."""
        row = (
            client, listener, source, message.offset, int(message.kind), message.payload, message.source_id,
            message.transaction, message.request, message.timestamp, attempts, reason, now(), ParkedState.PARKED,
        )  # fmt: skip
        names = _COLUMNS.removeprefix("id, ").removesuffix(", replay")
        with self._changing() as database:
            (number,) = database.execute(
                f"INSERT INTO parked ({names}) VALUES ({', '.join('?' * len(row))})"  # noqa: S608  names of ours
                " ON CONFLICT (client, listener, source, place) DO UPDATE SET"
                " attempts = excluded.attempts, reason = excluded.reason, state = excluded.state RETURNING id",
                row,
            ).fetchone()
        return int(number)

    def all(self, client: str | None = None, listener: str | None = None) -> list[Parked]:
        """Those of a client and a listener, or of all; the oldest first. Discarded ones are not shown."""
        rows = self._rows(
            "state <> ? AND (? IS NULL OR client = ?) AND (? IS NULL OR listener = ?) ORDER BY id",
            ParkedState.DISCARDED, client, client, listener, listener,
        )  # fmt: skip
        return [_parked(row) for row in rows]

    def get(self, number: int) -> Parked | None:
        """One of them; None when it is not there any more."""
        return next((_parked(row) for row in self._rows("id = ?", number)), None)

    def marks(self, client: str, listener: str) -> list[Mark]:
        """All that a listener has to know, the oldest first."""
        rows = self._select(
            "SELECT id, source, place, state FROM parked WHERE client = ? AND listener = ? ORDER BY place",
            (client, listener),
        )
        return [Mark(number, source, place, ParkedState(state)) for number, source, place, state in rows]

    def version(self) -> int:
        """Changes whenever somebody else changed something."""
        return int(next(iter(self._select("PRAGMA data_version")), (0,))[0])

    def replay(self, numbers: Sequence[int]) -> list[Parked]:
        """Their listeners get them again."""
        return self._decide(numbers, ParkedState.REPLAYING, "replay")

    def discard(self, numbers: Sequence[int]) -> list[Parked]:
        """Nobody gets them any more, and what they carried is thrown away."""
        return self._decide(numbers, ParkedState.DISCARDED, "discard")

    def begin_replay(self, number: int) -> int:
        """A message is handed out again; returns for the how manieth time since somebody asked for it."""
        with self._changing() as database:
            row = database.execute(
                "UPDATE parked SET attempts = attempts + 1 WHERE id = ? RETURNING attempts", (number,)
            ).fetchone()
        return int(row[0]) if row else 1

    def park_again(self, number: int, reason: str) -> None:
        """A replay did not help."""
        with self._changing() as database:
            database.execute(
                "UPDATE parked SET state = ?, reason = ? WHERE id = ?", (ParkedState.PARKED, reason, number)
            )

    def forget(self, numbers: Sequence[int]) -> None:
        """They are done with."""
        with self._changing() as database:
            database.executemany("DELETE FROM parked WHERE id = ?", [(number,) for number in numbers])

    def _decide(self, numbers: Sequence[int], state: ParkedState, action: str) -> list[Parked]:
        """1. All of them are there, or nothing happens. 2. It is in the audit trail. 3. It is done."""
        found = [each for each in map(self.get, dict.fromkeys(numbers)) if each and each.state != ParkedState.DISCARDED]
        missing = sorted(set(numbers) - {each.id for each in found})
        if missing:
            what = f"no message is parked under {', '.join(map(str, missing))}"
            raise TailraceError("input.invalid", what, place=Place(self._path), hint="tailrace queue parked DATA")
        for each in found:
            consumer = listener_consumer(each.client, each.listener)
            details = {"source": each.source, "offset": each.message.offset, "reason": each.reason}
            audit.record(Disk(), self._directory, action, consumer, **details)
        payload = "NULL" if state is ParkedState.DISCARDED else "payload"
        with self._changing() as database:
            database.executemany(
                f"UPDATE parked SET state = ?, attempts = 0, replay = ?, payload = {payload} WHERE id = ?",  # noqa: S608
                [(state, secrets.token_hex(8), each.id) for each in found],
            )
        return found

    def _rows(self, condition: str, *values: object) -> list[Any]:
        return self._select(f"SELECT {_COLUMNS} FROM parked WHERE {condition}", values)  # noqa: S608  names of ours

    def _select(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """Who only looks does not make the file."""
        if self._database is None and not os.path.exists(self._path):
            return []
        with self._using() as database:
            return database.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._using() as database, database:
            yield database

    @contextlib.contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._database is None:
                self._database = self._open()
            yield self._database
        except sqlite3.Error as error:
            what = f"the parked messages cannot be used: {error}"
            hint = "see that the file can be written, then start again"
            raise TailraceError("queue.parked_failed", what, place=Place(self._path), hint=hint) from error

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=_BUSY_S, check_same_thread=False)
        try:
            database.execute(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database


def _parked(row: Sequence[Any]) -> Parked:
    (number, client, listener, source, place, kind, payload, source_id, tx, request, sent_at) = row[:11]
    message = Received(place, Kind(kind), payload or b"", source_id, tx, request, Micros(sent_at))
    attempts, reason, parked_at, state, replay = row[11:]
    return Parked(
        number, client, listener, source, message, attempts, reason, Micros(parked_at), ParkedState(state), replay
    )
