"""A PostgreSQL database as the store of a node. A view of it is a snapshot that a transaction keeps open."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import psycopg

from tailrace.adaptor.postgres import sql, storesql
from tailrace.adaptor.postgres.catalog import TableInfo, all_tables, load_kinds
from tailrace.adaptor.postgres.conflicts import all_conflicts, drop_rival, note, resolve
from tailrace.adaptor.postgres.copying import is_gone, view_lost
from tailrace.adaptor.postgres.nodewriter import PostgresNodeWriter, Touched
from tailrace.adaptor.postgres.origin import take_origin
from tailrace.adaptor.postgres.reader import PostgresReader
from tailrace.adaptor.postgres.server import Server
from tailrace.adaptor.postgres.slot import Slot, Snapshot
from tailrace.adaptor.postgres.types import Choices, Kinds
from tailrace.adaptor.postgres.versions import all_versions
from tailrace.adaptor.rowkeys import keys_of
from tailrace.adaptor.versions import VersionRow
from tailrace.deliver.messages import DELIVERED, Messages
from tailrace.log.batch import Batch, key_of
from tailrace.node.conflict import Conflict, Keep
from tailrace.source.contract import Position, Table

if TYPE_CHECKING:
    from tailrace.adaptor.postgres.options import PostgresReaderOptions

_LOCK_MS: Final = 500
"""How long a lock is waited for: less than the second after which PostgreSQL looks for deadlocks, so that it is always
the node that gives way, and not a user."""
_SHAPE_S: Final = 1.0
_VIEW_LOCK_MS: Final = 5_000
"""How long a view waits for a transaction that was there before."""


class PostgresView:
    """A snapshot, for as long as the transaction that holds it."""

    def __init__(
        self, reading: PostgresReaderOptions, holder: psycopg.Connection[Any], snapshot: str, position: Position
    ) -> None:
        self.position = position
        self._reading = reading
        self._holder = holder
        self._snapshot = snapshot

    def reader(self) -> PostgresReader:
        return self._reading.open_view(self._snapshot)

    def versions(self) -> Iterator[list[VersionRow]]:
        server = self._reading.server()
        with server.session() as connection:
            connection.execute(storesql.BEGIN_VIEW)
            try:
                connection.execute(sql.set_snapshot(self._snapshot))
            except psycopg.Error as error:
                raise (view_lost() if is_gone(error) else server.error(error)) from error
            yield from all_versions(connection)
            connection.execute("COMMIT")

    def close(self) -> None:
        self._holder.close()


@dataclass(slots=True)
class PostgresStorage:
    """One database. The connection that writes is kept: it has the origin, and takes time to make."""

    server: Server
    reading: PostgresReaderOptions
    consumer: str
    keys: Mapping[str, tuple[str, ...]]
    creates: bool
    as_replica: bool
    in_order: bool
    _turn: threading.Lock = field(default_factory=threading.Lock)
    """Whoever has it has the connection that writes."""
    _writing: psycopg.Connection[Any] | None = None
    _looking: PostgresReader | None = None
    _kinds: Kinds | None = None
    shape_s: ClassVar = _SHAPE_S

    @property
    def _slot(self) -> Slot:
        return Slot(self.reading.server(), self.reading.slot_name)

    def open_unnoted(self) -> PostgresNodeWriter:
        return PostgresNodeWriter(
            self.server,
            self.consumer,
            self.keys,
            lend=self._lent,
            give_back=self._turn.release,
            collides=self._collides,
            kinds=self._all_kinds,
            slot=self._slot,
            creates=self.creates,
            in_order=self.in_order,
        )

    def key_of(self, namespace: str, key: tuple[str, ...]) -> tuple[str, ...]:
        return self.keys.get(namespace, key)

    def conflicts(self) -> list[Conflict]:
        with self.server.session() as connection:
            return all_conflicts(connection)

    def resolve(self, conflict: Conflict, keep: Keep) -> None:
        with self.server.session() as connection, connection.transaction():
            resolve(connection, conflict.id, keep, load_kinds(connection, Choices()))

    def give_way(self, conflicts: Collection[Conflict]) -> int:
        with self.server.session() as connection, connection.transaction():
            connection.execute(storesql.IS_NODE)
            connection.execute(sql.lock_timeout(_LOCK_MS))
            note(connection, conflicts)
            kinds = load_kinds(connection, Choices())
            return sum(drop_rival(connection, kinds, each) for each in conflicts)

    def forbid_untold(self, namespaces: Collection[str]) -> None:
        """`TRUNCATE` is refused: its rows are told nowhere, so other nodes would keep them."""
        with self.server.session() as connection:
            missing = _without(connection, namespaces, storesql.NO_TRUNCATE)
            if missing:
                connection.execute(sql.lock_timeout(_LOCK_MS))
                for statement in (*storesql.PREPARE_STORE, storesql.FORBID_TRUNCATE):
                    connection.execute(statement)
            for table in missing:
                connection.execute(storesql.forbid_truncate(table.schema, table.name))

    def shape(self) -> object:
        with self.server.session() as connection:
            return connection.execute(storesql.SHAPE).fetchone()

    def noted(self, tables: Sequence[Table]) -> set[str]:
        """The stream tells all columns, also new ones."""
        with self.server.session() as connection:
            told = {f"{schema}.{name}" for schema, name in self._slot.published(connection)}
        return {table.namespace for table in tables if table.namespace in told}

    @contextmanager
    def adopting(self, tables: Sequence[Table]) -> Iterator[Collection[str]]:
        """1. Nobody writes the tables that are new until the end, and all that was written can be seen. 2. They are
        told from here on."""
        wanted = {table.namespace for table in tables}
        news = wanted - self.noted(tables)
        with self.server.session() as connection:
            found = all_tables(connection, load_kinds(connection, Choices()))
            known = [table for table in found if table.namespace in wanted]
            with connection.transaction():
                connection.execute(sql.lock_timeout(_LOCK_MS))
                places = [(table.schema, table.name) for table in known if table.namespace in news]
                if places:
                    connection.execute(storesql.keep_rows(places))  # 1.
                self._slot.publish(connection, known)  # 2.
                yield news

    def close_to_users(self, namespaces: Collection[str]) -> None:
        with self.server.session() as connection, connection.transaction():
            for statement in (*storesql.PREPARE_STORE, *storesql.GATE):
                connection.execute(statement)
            for table in _without(connection, namespaces, storesql.READ_ONLY):
                connection.execute(storesql.close_table(table.schema, table.name))
            connection.execute(storesql.SET_GATE, (True, True))

    def open_to_users(self) -> None:
        with self.server.session() as connection:
            if connection.execute(storesql.HAS_GATE).fetchone() == (True,):
                connection.execute(storesql.SET_GATE, (False, False))

    def view(self, _directory: str) -> PostgresView:
        """1. Keep the tables as they are, 2. take a snapshot whose place among the changes is known, 3. hold it without
        the slot that made it, which would keep the server's log."""
        server, slot = self.reading.server(), self._slot
        with ExitStack() as opening, server.errors():
            holder = server.connect()
            opening.callback(holder.close)
            for statement in storesql.settings(holder.info.server_version):
                holder.execute(statement)
            holder.execute(sql.lock_timeout(_VIEW_LOCK_MS))
            published = slot.published(holder)
            holder.execute(storesql.BEGIN_VIEW)
            if published:
                holder.execute(storesql.keep_tables(published))  # 1.
            made = self._snapshot()  # 2.
            opening.callback(made.close)
            holder.execute(sql.set_snapshot(made.name))
            (name,) = holder.execute(storesql.EXPORT_SNAPSHOT).fetchone() or ("",)
            made.close()  # 3.
            opening.pop_all()
        return PostgresView(self.reading, holder, name, {"slot": slot.name, "lsn": made.lsn})

    def close(self) -> None:
        if self._writing is not None:
            self._writing.close()
            self._writing = None
        if self._looking is not None:
            self._looking.close()
            self._looking = None

    def _snapshot(self) -> Snapshot:
        """The view that a slot begins with, which lives only as long as its connection."""
        name = f"{self.reading.slot_name[:40]}_view_{secrets.token_hex(4)}"
        return Slot(self.reading.server(), name).create(is_temporary=True, lock_ms=_VIEW_LOCK_MS)

    def _lent(self) -> psycopg.Connection[Any]:
        """The connection that writes, for one writer at a time."""
        self._turn.acquire()
        try:
            return self._ready()
        except BaseException:
            self._turn.release()
            raise

    def _ready(self) -> psycopg.Connection[Any]:
        """Made ready when it is new."""
        if self._writing is None or self._writing.closed:
            self._writing = self._kinds = None
            made = self.server.connect()
            try:
                with self.server.errors():
                    for statement in storesql.PREPARE_STORE:
                        made.execute(statement)
                    made.execute(sql.lock_timeout(_LOCK_MS))
                    made.execute(storesql.IS_NODE)
                    if self.as_replica:
                        made.execute("SET session_replication_role = replica")
                    take_origin(made, self.reading.slot_name)
            except BaseException:
                with suppress(psycopg.Error):
                    made.close()
                raise
            self._writing = made
        return self._writing

    def _all_kinds(self) -> Kinds:
        """The types of the database, as they were when the connection was made."""
        if self._kinds is None:
            self._kinds = load_kinds(self._ready(), Choices())
        return self._kinds

    def _collides(self, position: Position, touched: Touched) -> bool:
        if self._looking is None:
            self._looking = self.reading.open()
        looking = self._looking
        end = looking.position()
        pieces = looking.plan_changes(position, end)
        if any(self._touches(batch, touched) for piece in pieces for batch in looking.read_changes(piece)):
            return True
        reached = looking.reached() if pieces else None
        return reached is not None and reached["lsn"] < end["lsn"]  # there is more than was looked at

    def _touches(self, batch: Batch, touched: Touched) -> bool:
        known = touched.get(batch.namespace)
        if known is None:
            return False
        messages = Messages(batch.namespace, batch.rows, key_of(batch.rows.schema))
        key = self.key_of(messages.namespace, messages.key)
        if not key or not set(messages.ops().to_pylist()) <= {int(op) for op in DELIVERED}:
            return True
        return any(not known.isdisjoint(keys) for keys in keys_of(messages, key))


def _without(connection: psycopg.Connection[Any], namespaces: Collection[str], trigger: str) -> list[TableInfo]:
    """The tables of these namespaces that lack one of our triggers."""
    found = all_tables(connection, load_kinds(connection, Choices()))
    known = {oid for (oid,) in connection.execute(storesql.TRIGGERS, (trigger,))}
    return [table for table in found if table.namespace in namespaces and table.oid not in known]
