"""The replication slot: a server's promise to keep its changes, and the publication that says of which tables."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import errors as pg_errors

from tailrace.adaptor.postgres import sql
from tailrace.adaptor.postgres.catalog import TableInfo
from tailrace.adaptor.postgres.server import Server
from tailrace.errors import TailraceError

_BUSY_S: Final = 30.0
"""How long another session may hold the slot: that of a task that was killed ends when the server notices."""
_BUSY_LOOK_S: Final = 0.2
_PAGE_HEADS: Final = (24, 40)
"""A record that would begin behind the head of a page follows one that ends before it."""
PLUGIN: Final = "pgoutput"


@dataclass(frozen=True, slots=True)
class SlotState:
    """What the server says about a slot."""

    plugin: str
    database: str
    kind: str
    is_active: bool
    pid: int
    wal_status: str | None
    """`reserved`, `extended`, `unreserved`, or `lost` when the server has removed what it promised to keep."""
    confirmed: int
    """Changes of transactions that committed before are not told again."""
    held_bytes: int | None
    """How much of the server's log it keeps from being removed."""

    @property
    def is_lost(self) -> bool:
        return self.wal_status == "lost"


class Snapshot:
    """One view of all tables, taken where the slot's changes begin. It lasts as long as its connection."""

    def __init__(self, connection: psycopg.Connection[Any], name: str, lsn: int) -> None:
        self.name = name
        self.lsn = lsn
        self._connection = connection

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True, slots=True)
class Published:
    """What the publications told so far."""

    unwanted: set[str] = field(default_factory=set)
    """Namespaces that they told and tell, although nobody wants them any more."""
    added: set[str] = field(default_factory=set)
    """Namespaces that they did not tell until now, although they told others."""


def end_of_log(connection: psycopg.Connection[Any]) -> int:
    """Where the last record of the server's log ends that is on disk.

    What is on disk may end inside a record. Whoever asks the slot for changes up to there waits for the rest of it, for
    seconds on a server with little to do. So this is where the newest record ends, which is brought to disk if need be.
    """
    end, flushed, page = connection.execute(sql.WAL_END).fetchone() or (0, 0, 1)
    if end > flushed:
        with connection.transaction():
            for statement in sql.FLUSH_WAL:
                connection.execute(statement)
    within = end % page
    return int(end - within if within in _PAGE_HEADS else end)


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot and its publications, all of one name."""

    server: Server
    name: str

    @property
    def publication(self) -> str:
        return self.name

    @property
    def origin(self) -> str:
        """The replication origin of what is written here for whoever reads the slot, and not told to them again."""
        return self.name

    @property
    def inserts(self) -> str:
        """The publication of tables whose updates and deletes cannot be told."""
        return f"{self.name}_inserts"

    @property
    def publications(self) -> str:
        return sql.listed([self.publication, self.inserts])

    def state(self, connection: psycopg.Connection[Any]) -> SlotState | None:
        found = connection.execute(sql.SLOT, (self.name,)).fetchone()
        return SlotState(*found) if found else None

    def create(self, *, is_temporary: bool = False, lock_ms: int | None = None) -> Snapshot:
        """A new slot, and the view of the tables that it begins with. A temporary one lasts as long as the view;
        `lock_ms` says how long each transaction that was there before is waited for."""
        connection = self.server.connect(replication=True)
        with self.server.errors():
            if lock_ms is not None:
                connection.pgconn.exec_(sql.lock_timeout(lock_ms).as_bytes(connection))
            command = sql.create_slot(self.name, is_temporary=is_temporary).as_bytes(connection)
            answer = connection.pgconn.exec_(command)
            if answer.status != psycopg.pq.ExecStatus.TUPLES_OK:
                connection.close()
                raise self._not_created(answer.error_message.decode(errors="replace").strip())
            values = [(answer.get_value(0, at) or b"").decode() for at in range(answer.nfields)]
        return Snapshot(connection, values[2], parse_lsn(values[1]))

    def publish(self, connection: psycopg.Connection[Any], tables: Iterable[TableInfo]) -> Published:
        """Make the publications, or add what they lack. Nothing is taken out, for what was changed before would be told
        all the same."""
        wanted = list(tables)
        before: dict[int, str] = {}
        is_new = True
        for publication, operations, those in (
            (self.publication, "insert, update, delete, truncate", [table for table in wanted if table.tells_all]),
            (self.inserts, "insert, truncate", [table for table in wanted if not table.tells_all]),
        ):
            if connection.execute(sql.PUBLISHED, (publication,)).fetchone() is not None:
                is_new = False
            else:
                version = connection.info.server_version
                connection.execute(sql.publish(publication, operations, version))
            known: dict[int, str] = dict(connection.execute(sql.PUBLISHED_TABLES, (publication,)).fetchall())
            before |= known
            missing = [(table.schema, table.name) for table in those if table.oid not in known]
            if missing:
                connection.execute(sql.add_to_publication(publication, missing))
        oids = {table.oid for table in wanted}
        unwanted = {name for oid, name in before.items() if oid not in oids}
        added = {table.namespace for table in wanted if table.oid not in before}
        return Published(unwanted, set() if is_new else added)

    def publish_one(self, connection: psycopg.Connection[Any], table: tuple[str, str], *, tells_all: bool) -> None:
        """Add a table that is new to the publications, if there are any yet."""
        publication = self.publication if tells_all else self.inserts
        if connection.execute(sql.PUBLISHED, (publication,)).fetchone() is not None:
            connection.execute(sql.add_to_publication(publication, [table]))

    def published(self, connection: psycopg.Connection[Any]) -> list[tuple[str, str]]:
        """The tables whose changes are told: schema and name of each."""
        return connection.execute(sql.PUBLISHED_PLACES, ([self.publication, self.inserts],)).fetchall()

    def advance(self, connection: psycopg.Connection[Any], lsn: int) -> None:
        """Let the server forget the transactions that committed before `lsn`; never goes back."""
        state = self.state(connection)
        if state is None or lsn <= state.confirmed:
            return
        self.when_free(connection, sql.ADVANCE, (self.name, lsn))

    def has_changes(self, connection: psycopg.Connection[Any], upto: int) -> bool:
        """Whether any transaction that is to be told committed before `upto`."""
        answer = self.when_free(connection, sql.ANY_CHANGE, (self.name, upto, self.publications))
        return answer.fetchone() is not None

    def drop(self, connection: psycopg.Connection[Any]) -> bool:
        """Remove slot and publications; False when there was no slot."""
        was_there = self.state(connection) is not None
        if was_there:
            self.when_free(connection, sql.DROP_SLOT, (self.name,))
        for publication in (self.publication, self.inserts):
            connection.execute(sql.drop_publication(publication))
        return was_there

    def when_free(
        self, connection: psycopg.Connection[Any], query: str, parameters: tuple[Any, ...]
    ) -> psycopg.Cursor[Any]:
        """Do something that only one session at a time may do with a slot."""
        give_up_s = time.monotonic() + _BUSY_S
        while True:
            try:
                return connection.execute(query, parameters)
            except pg_errors.ObjectInUse as error:
                if time.monotonic() > give_up_s:
                    what = f"slot {self.name} of {self.server.place} is used by another program: {error}"
                    hint = "end it, or give this pipeline a slot of its own with `slot`"
                    raise TailraceError("source.unreachable", what, hint=hint) from error
                time.sleep(_BUSY_LOOK_S)

    def _not_created(self, told: str) -> TailraceError:
        what = f"slot {self.name} of {self.server.place} cannot be created: {told}"
        if "wal_level" in told:
            hint = "set wal_level = logical and restart the server, or say `changes: triggers`"
            return TailraceError("source.unsupported", what, hint=hint)
        return TailraceError("source.unreachable", what, hint="tailrace doctor")


def all_slots(connection: psycopg.Connection[Any]) -> dict[str, SlotState]:
    """Every slot of the server, by name."""
    return {name: SlotState(*state) for name, *state in connection.execute(sql.ALL_SLOTS)}


def parse_lsn(text: str) -> int:
    """`16/B374D848` as a number."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """The inverse of `parse_lsn`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
