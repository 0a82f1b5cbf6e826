"""Places in the binary log: a file and where in it. A position has one, and which transactions come before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pymysql

from tailrace.adaptor.mysql import sql
from tailrace.adaptor.mysql.server import execute, is_mariadb, rows
from tailrace.errors import TailraceError
from tailrace.source.contract import Position

_SYNTAX: Final = 1064


def order(place: Mapping[str, Any]) -> tuple[int, int]:
    """Something that grows from place to place; files are numbered."""
    return int(place["file"].rpartition(".")[2]), int(place["pos"])


def current(connection: pymysql.Connection[Any], *, is_settled: bool) -> Position:
    """Where the log ends. When settled, every transaction before is seen by whoever reads afterwards: a transaction is
    in the log a moment before others see its rows."""
    if not is_settled and not is_mariadb(connection):
        return status(connection)
    place = begin_view(connection)
    execute(connection, sql.END)
    return place


def begin_view(connection: pymysql.Connection[Any]) -> Position:
    """See the tables as they are now, whatever happens meanwhile. Says which place in the log that belongs to."""
    return _of_snapshot(connection) if is_mariadb(connection) else _under_lock(connection)


def view_of(namespace: str) -> str:
    """Where a position has the place as of which a table was copied."""
    return f"view of {namespace}"


def status(connection: pymysql.Connection[Any]) -> Position:
    """Where the log ends."""
    for question in sql.PLACE:
        try:
            found = rows(connection, question)
        except pymysql.err.MySQLError as error:
            if error.args[0] != _SYNTAX:
                raise
            continue
        if found:
            return {"file": found[0][0], "pos": int(found[0][1])}
    what = "the server writes no binary log, so its changes cannot be followed"
    raise TailraceError("source.unsupported", what, hint="set log_bin and restart the server; tailrace doctor")


def _of_snapshot(connection: pymysql.Connection[Any]) -> Position:
    """MariaDB knows the place that belongs to a view."""
    execute(connection, sql.SNAPSHOT)
    found = dict(rows(connection, sql.SNAPSHOT_PLACE))
    if not found.get("Binlog_snapshot_file"):
        return status(connection)
    return {"file": found["Binlog_snapshot_file"], "pos": int(found["Binlog_snapshot_position"])}


def _under_lock(connection: pymysql.Connection[Any]) -> Position:
    """While nobody can commit, what is in the log is what is seen."""
    execute(connection, sql.LOCK)
    try:
        execute(connection, sql.SNAPSHOT)
        return status(connection)
    finally:
        execute(connection, sql.UNLOCK)


def gone(connection: pymysql.Connection[Any], place: Position) -> str:
    """Why a place cannot be read from, empty when it can."""
    sizes = {file: int(size) for file, size, *_ in rows(connection, sql.LOGS)}
    if place["file"] not in sizes:
        return f"the server has removed {place['file']}; the oldest that it has is {min(sizes, default='none')}"
    if place["pos"] > sizes[place["file"]]:
        return f"{place['file']} ends at {sizes[place['file']]}, before {place['pos']}; was the binary log reset?"
    return ""


def gtids_lost(connection: pymysql.Connection[Any], place: Position) -> str:
    """Why the transactions before a place are not those that were read, empty when they are or nobody knows."""
    known: Mapping[str, str] = place.get("gtids", {})
    if not known:
        return ""
    if not is_mariadb(connection):
        had = ",".join(f"{source}:{number}" for source, number in known.items())
        ((has_all,),) = rows(connection, sql.has_gtids(had))
        return "" if has_all == "1" else "the server has not had all transactions that were read; is it another one?"
    ((found,),) = rows(connection, sql.gtid_at(place["file"], place["pos"]))
    there = {gtid.partition("-")[0]: gtid for gtid in (found or "").split(",") if gtid}
    if all(domain in there and _number(there[domain]) >= _number(gtid) for domain, gtid in known.items()):
        return ""  # the place may be further, behind transactions that nobody wanted
    had = ",".join(known.values())
    return f"{place['file']}:{place['pos']} is not the place after {had} any more; was the binary log reset?"


def _number(gtid: str) -> int:
    return int(gtid.rpartition("-")[2])
