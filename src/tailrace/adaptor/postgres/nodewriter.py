"""Writing into the PostgreSQL store of a node.

Its transactions are of an origin of their own, so they are not captured again. Users write at the same time, so what
they did to the same rows is looked for when these are written, and so locked: nothing is committed over a change that
is not in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import psycopg

from tailrace.adaptor.clashes import clashes, row_of
from tailrace.adaptor.postgres import conflicts, storesql, target
from tailrace.adaptor.postgres.server import Server
from tailrace.adaptor.postgres.slot import Slot
from tailrace.adaptor.postgres.types import Kinds
from tailrace.adaptor.postgres.versions import PostgresVersions
from tailrace.adaptor.postgres.writer import PostgresWriter
from tailrace.adaptor.rowkeys import key_text, keys_of
from tailrace.adaptor.versions import Judgement, VersionRow
from tailrace.deliver.contract import Target
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.message import Offset
from tailrace.node.conflict import Clash, Conflict, Keep
from tailrace.source.contract import Position

Touched = Mapping[str, set[str]]
"""The keys of rows that were written, by namespace."""
Collides = Callable[[Position, Touched], bool]
"""Whether others have changed some of these rows behind a position."""


class PostgresNodeWriter(PostgresWriter):
    """A writer with a connection that is lent to it, and goes back when it is closed."""

    def __init__(
        self,
        server: Server,
        consumer: str,
        keys: Mapping[str, tuple[str, ...]],
        *,
        lend: Callable[[], psycopg.Connection[Any]],
        give_back: Callable[[], None],
        collides: Collides,
        kinds: Callable[[], Kinds],
        slot: Slot,
        creates: bool,
        in_order: bool,
    ) -> None:
        super().__init__(server, consumer, keys, creates=creates, in_order=in_order, widens=False)
        self._lend = lend
        self._give_back = give_back
        self._collides = collides
        self._kinds = kinds
        self._slot = slot
        self._touched: dict[str, set[str]] = {}
        self._uniques: dict[str, list[tuple[str, ...]]] = {}
        """By namespace: the columns that rows with different keys must not share the values of."""

    def applied_last(self) -> Offset | None:
        with self._server.errors():
            (found,) = self._begin().execute(storesql.APPLIED_LAST, (self._consumer,)).fetchone() or (None,)
        return None if found is None else Offset(found)

    def has_rows(self, namespace: str) -> bool:
        schema, table = target.place_of(namespace)
        with self._server.errors():
            connection = self._begin()
            if target.find(connection, schema, table, ()) is None:
                return False
            return connection.execute(storesql.any_row(schema, table)).fetchone() is not None

    def prepare(self, target_: Target) -> None:
        if "." not in target_.namespace:
            what = f"{target_.namespace} names no schema, and would be captured under another name"
            raise TailraceError("destination.refused", what, hint="leave it out with `namespace`")
        super().prepare(target_)

    def _made(self, connection: psycopg.Connection[Any], table: tuple[str, str], key: tuple[str, ...]) -> None:
        """Users may write it as soon as they see it, and that is told."""
        self._slot.publish_one(connection, table, tells_all=bool(key))

    def clear(self, namespace: str) -> None:
        """Nobody else writes the table from now on."""
        schema, table = target.place_of(namespace)
        with self._server.errors():
            connection = self._begin()
            found = target.find(connection, schema, table, ())
            if found is not None and not found.is_view:
                connection.execute(storesql.only_ours(found.delete_from))
        super().clear(namespace)

    def write(self, messages: Messages) -> None:
        super().write(messages)
        key = self.key_of(messages.namespace, messages.key)
        if key and len(messages):
            for keys in keys_of(messages, key):
                self._touched.setdefault(messages.namespace, set()).update(keys)

    def is_captured(self, position: Position) -> bool:
        """What was written is locked now: whoever changed it before has committed, and whoever will, waits."""
        self._flush()
        return not self._touched or not self._collides(position, self._touched)

    def judge(self, messages: Messages) -> Judgement:
        with self._server.errors():
            return PostgresVersions(self._begin()).judge(messages, self.key_of(messages.namespace, messages.key))

    def beaten(self, messages: Messages, is_known: Callable[[int, int], bool]) -> list[bool]:
        with self._server.errors():
            return PostgresVersions(self._begin()).beaten(
                messages, self.key_of(messages.namespace, messages.key), is_known
            )

    def note_versions(self, messages: Messages, *, always: bool = False) -> None:
        with self._server.errors():
            PostgresVersions(self._begin()).note(messages, self.key_of(messages.namespace, messages.key), always=always)

    def clashes(self, messages: Messages, judged: Judgement) -> Iterator[Clash]:
        key = self.key_of(messages.namespace, messages.key)
        with self._server.errors():
            rows = conflicts.Rows(self._begin(), self._kinds(), *target.place_of(messages.namespace), key)
            yield from clashes(messages, judged, key, rows.look)

    def rivals(self, messages: Messages) -> Iterator[Clash]:
        namespace = messages.namespace
        key = self.key_of(namespace, messages.key)
        with self._server.errors():
            connection = self._begin()
            if namespace not in self._uniques:
                found = target.uniques(connection, *target.place_of(namespace))
                self._uniques[namespace] = [columns for columns in found if set(columns) != set(key)]
            if self._uniques[namespace]:
                self._flush()
                yield from conflicts.find_rivals(connection, self._kinds(), key, self._uniques[namespace], messages)

    def drop_rival(self, conflict: Conflict) -> None:
        with self._server.errors():
            conflicts.drop_rival(self._begin(), self._kinds(), conflict)
        self._touched.setdefault(conflict.namespace, set()).add(key_text(row_of(conflict.rival).values()))

    def quarantine(self, found: Iterable[Conflict]) -> None:
        with self._server.errors():
            conflicts.note(self._begin(), found)

    def decision(self, conflict: Conflict) -> Keep | None:
        with self._server.errors():
            return conflicts.decision(self._begin(), conflict)

    def remember(self, name: str, text: str) -> None:
        with self._server.errors():
            self._begin().execute(storesql.REMEMBER, (name, text))

    def recalled(self, name: str) -> str | None:
        with self._server.errors():
            found = self._begin().execute(storesql.RECALL, (name,)).fetchone()
        return None if found is None else str(found[0])

    def put_versions(self, rows: Iterable[VersionRow]) -> None:
        with self._server.errors():
            PostgresVersions(self._begin()).put(rows)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        super().close()
        if connection is not None:
            with suppress(psycopg.Error):
                connection.rollback()
            self._give_back()

    def _connect(self) -> psycopg.Connection[Any]:
        return self._lend()
