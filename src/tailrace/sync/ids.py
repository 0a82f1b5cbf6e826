"""Keys that no other node makes: 31 bits of seconds since 2020, 20 bits of the node, 12 bits of a number in the second.

Each table of a node has one numbering, which is kept in its database: whatever takes from it, here or in SQL, in this
process or another, gets a key that nobody else gets. A clock that is set back changes nothing about that. When all
4,096 numbers of a second are used up, who wants one waits for the next second.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tailrace.errors import TailraceError
from tailrace.sync import keysql
from tailrace.sync.database import Database
from tailrace.sync.names import Dialect

SECOND_MAX: Final = (1 << keysql.SECOND_BITS) - 1
NODE_MAX: Final = (1 << keysql.NODE_BITS) - 1
SEQUENCE_MAX: Final = (1 << keysql.SEQUENCE_BITS) - 1
KEYS_AT_ONCE_MAX: Final = 256
"""So many are taken from the database at a time, when they are wanted in quick succession."""
_FRESH_S: Final = 1.0
"""Keys that were taken before are not given out later than this: they should tell when they were made."""
_PAUSE_MIN_S: Final = 0.001

Clock = Callable[[], float]
"""Seconds since 1970."""
Wait = Callable[[float], None]


class KeyParts(NamedTuple):
    """What a key is made of."""

    second: int
    """Since 2020-01-01."""
    node: int
    sequence: int


def encode(parts: KeyParts) -> int:
    """The key, which is never negative."""
    for name, value, most in zip(KeyParts._fields, parts, (SECOND_MAX, NODE_MAX, SEQUENCE_MAX), strict=True):
        if not 0 <= value <= most:
            what = f"a key with the {name} {value} cannot be made; the greatest is {most}"
            raise TailraceError("sync.malformed", what, hint="look at the clock of this machine")
    return (parts.second << keysql.NODE_BITS | parts.node) << keysql.SEQUENCE_BITS | parts.sequence


def decode(key: int) -> KeyParts:
    """The inverse of `encode`."""
    if not 0 <= key < 1 << 63:
        raise TailraceError("sync.malformed", f"{key} is no key of 63 bits", hint="give one that was made here")
    upper, sequence = key >> keysql.SEQUENCE_BITS, key & SEQUENCE_MAX
    return KeyParts(upper >> keysql.NODE_BITS, upper & NODE_MAX, sequence)


@dataclass(slots=True)
class _Supply:
    """Keys of one table that were taken from its numbering and not given out yet."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    keys: list[int] = field(default_factory=list)
    """The next one is the last."""
    taken_at: float = 0.0
    size: int = 1


class KeyMaker:
    """Makes keys for the entities of a database. Any number of threads may use it.

    With SQLite it writes to the database over a connection of its own. Inside a transaction of yours that has written
    already it would wait for you: take the keys before, or use `add_key_function`.
    """

    def __init__(self, database: Database, clock: Clock = time.time, wait: Wait = time.sleep) -> None:
        self._database = database
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._supplies: dict[int, _Supply] = {}

    def next(self, table_id: int) -> int:
        """A new key. Raises `sync.unknown_table` when no such entity is installed."""
        with self._lock:
            supply = self._supplies.setdefault(table_id, _Supply())
        with supply.lock:
            now = self._clock()
            is_fresh = now < supply.taken_at + _FRESH_S
            if not (supply.keys and is_fresh):
                supply.size = min(supply.size * 2, KEYS_AT_ONCE_MAX) if is_fresh else 1
                supply.keys = self.take(table_id, supply.size)[::-1]
                supply.taken_at = self._clock()
            return supply.keys.pop()

    def take(self, table_id: int, count: int) -> list[int]:
        """So many new keys, in the order of their numbers."""
        if self._database.dialect is Dialect.POSTGRES:
            return self._take_postgres(table_id, count)
        found: list[int] = []
        while len(found) < count:
            wanted = count - len(found)
            found += _take_sqlite(self._rows, table_id, wanted, self._clock, self._wait)
        return found

    def _take_postgres(self, table_id: int, count: int) -> list[int]:
        """The server waits, if need be."""
        known = "SELECT to_regclass($1) IS NOT NULL"
        if not self._database.read(lambda link: link.value(known, (f"door_{table_id:d}_keys",))):
            raise _unknown(table_id)
        rows = self._database.write(lambda link: link.rows(keysql.POSTGRES_TAKE, (table_id, count)))
        return [key for (key,) in rows]

    def _rows(self, statement: str, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
        return self._database.write(lambda link: link.rows(statement, values))


def add_key_function(connection: sqlite3.Connection, clock: Clock = time.time, wait: Wait = time.sleep) -> None:
    """Give a connection to SQLite the function `door_next_key(tableId)`, as PostgreSQL has it.

    It is part of the connection's own transaction, and waits inside it when a second's numbers are used up.
    """

    def rows(statement: str, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor.execute(statement, values).fetchall()

    def next_key(table_id: int) -> int:
        return next(iter(_take_sqlite(rows, table_id, 1, clock, wait)))

    connection.create_function("door_next_key", 1, next_key)


def _take_sqlite(
    rows: Callable[[str, tuple[int, ...]], list[tuple[Any, ...]]], table_id: int, count: int, clock: Clock, wait: Wait
) -> Iterable[int]:
    """Keys of one second: as many as wanted, or what is left of it."""
    while True:
        now = clock() - keysql.EPOCH_S
        found = rows(keysql.SQLITE_TAKE, (table_id, int(now), count))
        if found:
            first, last, node = found[0]
            return [encode(KeyParts(tick >> 12, node, tick & SEQUENCE_MAX)) for tick in range(first, last + 1)]
        if not rows("SELECT 1 FROM DoorKey WHERE tableId = ?1", (table_id,)):
            raise _unknown(table_id)
        wait(max(int(now) + 1 - now, _PAUSE_MIN_S))


def _unknown(table_id: int) -> TailraceError:
    what = f"there is no entity with tableId {table_id} in the database"
    return TailraceError("sync.unknown_table", what, hint="tailrace sync install")
