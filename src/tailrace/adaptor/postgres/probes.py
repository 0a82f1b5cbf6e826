"""What `tailrace doctor` asks a PostgreSQL server. Nothing is changed."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from tailrace.adaptor.options import Check
from tailrace.adaptor.postgres import catalog, probesql
from tailrace.adaptor.postgres.catalog import TableInfo
from tailrace.adaptor.postgres.server import Server
from tailrace.adaptor.postgres.slot import PLUGIN, Slot
from tailrace.adaptor.postgres.types import Choices
from tailrace.errors import TailraceError
from tailrace.source.held import HELD_BYTES
from tailrace.units import show_bytes

_VERSION_MIN: Final = 130_000
_SHOWN: Final = 5


def of_source(server: Server, slot: str | None) -> list[Check]:
    """Whether a database can be read, and its changes followed, through a slot if one is named, else by triggers."""
    try:
        with server.session() as connection:
            checks = [_version(connection), _may_create(connection)]
            if slot is not None:
                checks += [_wal_level(connection), _may_replicate(connection), *_slots(connection, Slot(server, slot))]
            return [*checks, *_tables(connection)]
    except TailraceError as error:
        return [Check(what="database answers", ok=False, found=error.what, cure=error.hint)]


def of_destination(server: Server, *, creates: bool, as_replica: bool) -> list[Check]:
    """Whether a database can be written."""
    try:
        with server.session() as connection:
            checks = [_version(connection)]
            (may_create, may_rest) = _one(connection, probesql.MAY_WRITE)
    except TailraceError as error:
        return [Check(what="database answers", ok=False, found=error.what, cure=error.hint)]
    if creates:
        cure = "" if may_create else "GRANT CREATE ON DATABASE … TO …, or say `create: false`"
        found = "allowed" if may_create else "not allowed"
        checks.append(Check(what="schemas and tables can be created", ok=may_create, found=found, cure=cure))
    if as_replica:
        cure = "" if may_rest else "GRANT SET ON PARAMETER session_replication_role TO …, or say `as_replica: false`"
        found = "allowed" if may_rest else "not allowed"
        checks.append(Check(what="triggers and foreign keys can rest", ok=may_rest, found=found, cure=cure))
    return checks


def _version(connection: psycopg.Connection[Any]) -> Check:
    number = connection.info.server_version
    cure = "" if number >= _VERSION_MIN else "use PostgreSQL 13 or later"
    found = f"PostgreSQL {number // 10_000}.{number % 10_000}"
    return Check(what="server's version", ok=number >= _VERSION_MIN, found=found, cure=cure)


def _wal_level(connection: psycopg.Connection[Any]) -> Check:
    (level,) = _one(connection, probesql.WAL_LEVEL)
    cure = "" if level == "logical" else "set wal_level = logical and restart the server, or say `changes: triggers`"
    return Check(what="changes can be decoded", ok=level == "logical", found=f"wal_level = {level}", cure=cure)


def _may_replicate(connection: psycopg.Connection[Any]) -> Check:
    (may, role) = _one(connection, probesql.MAY_REPLICATE)
    cure = "" if may else f"ALTER ROLE {role} REPLICATION"
    return Check(what="role may replicate", ok=may, found=role, cure=cure)


def _may_create(connection: psycopg.Connection[Any]) -> Check:
    (may,) = _one(connection, probesql.MAY_CREATE)
    cure = "" if may else "GRANT CREATE ON DATABASE … TO …"
    return Check(what="changes can be told", ok=may, found="allowed" if may else "not allowed", cure=cure)


def _slots(connection: psycopg.Connection[Any], slot: Slot) -> list[Check]:
    state = slot.state(connection)
    if state is None:
        used, room = _one(connection, probesql.SLOTS)
        cure = "" if used < room else "raise max_replication_slots, or drop a slot that nobody reads"
        found = f"{used} of {room} are in use"
        return [Check(what="a replication slot is free", ok=used < room, found=found, cure=cure)]
    what = f"slot {slot.name}"
    drop = "tailrace slot drop PIPELINE.yml"
    if state.is_lost:
        return [Check(what=what, ok=False, found="invalidated by the server", cure=f"{drop}, then copy again")]
    if state.plugin != PLUGIN:
        return [Check(what=what, ok=False, found=f"speaks {state.plugin}", cure="give another name with `slot`")]
    held = state.held_bytes or 0
    found = f"{'in use' if state.is_active else 'not in use'}, holds back {show_bytes(held)} of the server's log"
    cure = f"run the pipeline so that it catches up, or {drop} if it is no longer wanted" if held > HELD_BYTES else ""
    return [Check(what=what, ok=held <= HELD_BYTES, found=found, cure=cure)]


def _tables(connection: psycopg.Connection[Any]) -> list[Check]:
    tables = catalog.all_tables(connection, catalog.load_kinds(connection, Choices()))
    usable = [table for table in tables if not catalog.why_unusable(table)]
    checks = [Check(what="tables that can be followed", ok=True, found=str(len(usable)))]
    for table in tables:
        if why := catalog.why_unusable(table):
            cure = "leave it out with `namespace`"
            checks.append(Check(what=f"table {table.namespace}", ok=True, found=f"is left out: {why}", cure=cure))
    checks += _half_told([table for table in usable if not table.tells_all])
    if sequences := catalog.sequences(connection):
        found = f"{len(sequences)} are not replicated: {_listed(sequences)}"
        cure = "set them at the destination before it takes over (setval)"
        checks.append(Check(what="sequences", ok=True, found=found, cure=cure))
    return checks


def _half_told(tables: list[TableInfo]) -> list[Check]:
    if not tables:
        return []
    names = [table.namespace for table in tables]
    found = f"{len(names)} have no key, so only inserts are followed: {_listed(names)}"
    cure = "give them a primary key, or REPLICA IDENTITY FULL and, for writers that need one, a key with `key`"
    return [Check(what="updates and deletes", ok=True, found=found, cure=cure)]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _one(connection: psycopg.Connection[Any], query: str) -> tuple[Any, ...]:
    found: tuple[Any, ...] = connection.execute(query).fetchone() or ()
    return found
