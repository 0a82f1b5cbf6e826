"""What `tailrace doctor` asks a MySQL or MariaDB server. Nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pymysql

from tailrace.adaptor.mysql import catalog, sql
from tailrace.adaptor.mysql.reader import NEEDED, settings, wrong_settings
from tailrace.adaptor.mysql.server import Server, full_version, is_mariadb, rows, version
from tailrace.adaptor.options import Check
from tailrace.errors import TailraceError

_VERSIONS_MIN: Final = {True: (10, 3), False: (5, 7)}
_KEPT_S_MIN: Final = 24 * 3600
_SHOWN: Final = 5
_REPLICATE: Final = ("REPLICATION SLAVE", "REPLICATION REPLICA", "ALL PRIVILEGES")
_MONITOR: Final = ("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER", "ALL PRIVILEGES")
_LOCK: Final = ("RELOAD", "ALL PRIVILEGES")
_CREATE: Final = ("CREATE", "ALL PRIVILEGES")


def of_source(server: Server, server_id: int) -> list[Check]:
    """Whether a server can be read, and its changes followed."""
    try:
        with server.session() as connection:
            found = settings(connection)
            return [
                _version(connection),
                *_log_settings(found),
                _metadata(found),
                _server_id(found, server_id),
                *_grants(connection),
                _gtids(connection, found),
                _kept(found),
                *_tables(connection, server.database),
            ]
    except TailraceError as error:
        return [Check(what="server answers", ok=False, found=error.what, cure=error.hint)]


def of_destination(server: Server, *, creates: bool) -> list[Check]:
    """Whether a server can be written."""
    try:
        with server.session() as connection:
            checks = [_version(connection)]
            if creates:
                cure = "GRANT CREATE, ALTER, SELECT, INSERT, UPDATE, DELETE ON *.* TO …, or say `create: false`"
                checks.append(_granted(connection, "databases and tables can be created", _CREATE, cure))
            return checks
    except TailraceError as error:
        return [Check(what="server answers", ok=False, found=error.what, cure=error.hint)]


def _version(connection: pymysql.Connection[Any]) -> Check:
    mariadb = is_mariadb(connection)
    name, least = "MariaDB" if mariadb else "MySQL", _VERSIONS_MIN[mariadb]
    ok = version(connection) >= least
    cure = "" if ok else f"use {name} {'.'.join(map(str, least))} or later"
    return Check(what="server's version", ok=ok, found=f"{name} {full_version(connection)}", cure=cure)


def _log_settings(found: Mapping[str, str]) -> list[Check]:
    wrong = wrong_settings(found)
    names = dict.fromkeys([*NEEDED, *wrong])
    return [
        Check(
            what="changes can be followed" if name == "log_bin" else f"{name}",
            ok=name not in wrong,
            found=f"{name} = {found.get(name, '')}",
            cure=f"set {name} = {wrong[name][1]}" + (" and restart the server" if name == "log_bin" else "")
            if name in wrong
            else "",
        )
        for name in names
        if name in found
    ]


def _metadata(found: Mapping[str, str]) -> Check:
    value = found.get("binlog_row_metadata", "not there")
    cure = (
        "" if value == "FULL" else "set binlog_row_metadata = FULL, so that tables can be altered while they are read"
    )
    return Check(what="rows tell their columns", ok=True, found=f"binlog_row_metadata = {value}", cure=cure)


def _server_id(found: Mapping[str, str], server_id: int) -> Check:
    own = found.get("server_id", "0")
    if own == "0":
        return Check(what="server has an id", ok=False, found="server_id = 0", cure="set server_id = 1")
    ok = own != str(server_id)
    cure = "" if ok else "give another `server_id`"
    return Check(what="replica's id is its own", ok=ok, found=f"{server_id}; that of the server is {own}", cure=cure)


def _grants(connection: pymysql.Connection[Any]) -> list[Check]:
    checks = [
        _granted(connection, "user may replicate", _REPLICATE, "GRANT REPLICATION SLAVE ON *.* TO …"),
        _granted(connection, "user may ask for the log's end", _MONITOR, "GRANT REPLICATION CLIENT ON *.* TO …"),
    ]
    if not is_mariadb(connection):
        cure = "GRANT RELOAD ON *.* TO …"
        checks.append(_granted(connection, "user may hold writes for a moment while tables are copied", _LOCK, cure))
    return checks


def _granted(connection: pymysql.Connection[Any], what: str, any_of: tuple[str, ...], cure: str) -> Check:
    told = [grant for (grant,) in rows(connection, sql.GRANTS)]
    heads = [grant.partition(" ON ")[0].removeprefix("GRANT ").upper() for grant in told]
    granted = {part.strip() for head in heads for part in head.split(",")}
    ok = not granted.isdisjoint(any_of) or any("`@`" not in grant and " ON " not in grant for grant in told)
    return Check(what=what, ok=ok, found="allowed" if ok else "not allowed", cure="" if ok else cure)


def _gtids(connection: pymysql.Connection[Any], found: Mapping[str, str]) -> Check:
    on = is_mariadb(connection) or found.get("gtid_mode", "OFF") == "ON"
    cure = "" if on else "set gtid_mode = ON: then it is noticed when the binary log was reset"
    return Check(what="transactions have ids", ok=True, found="yes" if on else "no", cure=cure)


def _kept(found: Mapping[str, str]) -> Check:
    seconds = int(float(found.get("binlog_expire_logs_seconds") or 0))
    seconds = seconds or int(float(found.get("expire_logs_days") or 0) * 24 * 3600)
    what = "binary log is kept"
    if not seconds:
        return Check(what=what, ok=True, found="until somebody removes it")
    ok = seconds >= _KEPT_S_MIN
    cure = "" if ok else "set binlog_expire_logs_seconds higher: a pipeline that stands longer must copy again"
    return Check(what=what, ok=ok, found=f"for {seconds / 3600:.0f} hours", cure=cure)


def _tables(connection: pymysql.Connection[Any], database: str) -> list[Check]:
    tables = catalog.all_tables(connection, database)
    usable = [table for table in tables if not catalog.why_unusable(table)]
    checks = [Check(what="tables that can be followed", ok=True, found=str(len(usable)))]
    for table in tables:
        if why := catalog.why_unusable(table):
            cure = "leave it out with `namespace`"
            checks.append(Check(what=f"table {table.namespace}", ok=True, found=f"is left out: {why}", cure=cure))
    keyless = [table.namespace for table in usable if not table.key]
    if keyless:
        more = f" and {len(keyless) - _SHOWN} more" if len(keyless) > _SHOWN else ""
        found = (
            f"{len(keyless)} have no key, so destinations can only add their rows: {', '.join(keyless[:_SHOWN])}{more}"
        )
        checks.append(Check(what="updates and deletes", ok=True, found=found, cure="give them a primary key"))
    return checks
