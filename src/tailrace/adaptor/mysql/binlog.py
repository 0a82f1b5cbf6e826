"""The binary log as the server sends it to a replica: events, one after the other, from a place on to its end.

The driver `mysql-replication` reads the same; but its values have lost zero dates, empty sets and fractions of
negative times by the time one gets them, and its rows need the columns' names to be in the log.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pymysql

from tailrace.adaptor.mysql.server import Server
from tailrace.errors import TailraceError

QUERY, STOP, ROTATE, FORMAT, XID = 2, 3, 4, 15, 16
BEGIN_LOAD, EXECUTE_LOAD, TABLE_MAP = 17, 18, 19
GTID, ANONYMOUS_GTID, XA_PREPARE, MARIADB_GTID = 33, 34, 38, 162
WRITES: Final = (23, 30)
UPDATES: Final = (24, 31)
DELETES: Final = (25, 32)
WITH_EXTRA: Final = (30, 31, 32)
"""Rows of these kinds have more in their head."""
IGNORED: Final = frozenset((STOP, ROTATE, FORMAT, 1, 5, 13, 14, 26, 27, 28, 29, 35, 36, 37, 160, 161, 163, 164))
"""Starts and stops, variables of statements, the text of statements, heartbeats, lists of GTIDs, checkpoints."""
COMPRESSED: Final = {40: "binlog_transaction_compression", **dict.fromkeys(range(165, 172), "log_bin_compress")}
"""Kinds that are compressed, with the setting that makes them so."""
PARTIAL_JSON: Final = 39

_DUMP: Final = 0x12
_NON_BLOCKING: Final = 1
_HEAD: Final = struct.Struct("<IBIIIH")
_CHECKSUM_BYTES: Final = 4
_CRC32: Final = 1
_GONE: Final = 1236


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    kind: int
    time_s: int
    server_id: int
    file: str
    end: int
    """Where it ends in its file."""
    body: bytes


class PlaceGone(Exception):
    """The server does not have the binary log from this place on."""


def events(server: Server, server_id: int, file: str, at: int) -> Iterator[Event]:
    """What the log has after a place in it, to its end. Raises `PlaceGone`."""
    with closing(server.connect()) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET @master_binlog_checksum = @@GLOBAL.binlog_checksum")
            cursor.execute("SET @mariadb_slave_capability = 4")  # it sends GTIDs to those who know them
        request = struct.pack("<IHI", at, _NON_BLOCKING, server_id) + file.encode()
        connection._execute_command(_DUMP, request)  # type: ignore[attr-defined]  # it has no other name
        has_checksum, end = False, at
        while True:
            packet = _next_packet(connection)
            if packet is None:
                return
            content = memoryview(packet)[1:]
            time_s, kind, origin, _, told_end, _ = _HEAD.unpack_from(content)
            if kind == FORMAT:
                has_checksum = content[-_CHECKSUM_BYTES - 1] == _CRC32
            elif kind == ROTATE:
                file, end = _rotated(content)
                yield Event(kind, time_s, origin, file, end, b"")
                continue
            if told_end:
                end = _unwrapped(told_end, end)
            body = content[_HEAD.size : _checked_end(content, file, end) if has_checksum else len(content)]
            yield Event(kind, time_s, origin, file, end, bytes(body))


def _next_packet(connection: pymysql.Connection[Any]) -> bytes | None:
    try:
        packet = connection._read_packet()  # type: ignore[no-untyped-call]
    except pymysql.err.MySQLError as error:
        if error.args and error.args[0] == _GONE:
            raise PlaceGone(str(error.args[1])) from error
        raise
    if packet.is_eof_packet():
        return None
    content: bytes = packet.get_all_data()
    return content


def _rotated(content: memoryview) -> tuple[str, int]:
    """Where the log goes on. These events come before it is known whether events have checksums."""
    end = len(content)
    if _has_right_checksum(content):
        end -= _CHECKSUM_BYTES
    (place,) = struct.unpack_from("<Q", content, _HEAD.size)
    return bytes(content[_HEAD.size + 8 : end]).decode(), int(place)


def _has_right_checksum(content: memoryview) -> bool:
    return zlib.crc32(content[:-_CHECKSUM_BYTES]) == int.from_bytes(content[-_CHECKSUM_BYTES:], "little")


def _checked_end(content: memoryview, file: str, end: int) -> int:
    if not _has_right_checksum(content):
        what = f"the event of the binary log that ends at {file}:{end} has a wrong checksum"
        raise TailraceError("source.malformed", what, hint="see that the disk of the source is well; tailrace doctor")
    return len(content) - _CHECKSUM_BYTES


def _unwrapped(told: int, before: int) -> int:
    """Events tell their place in 32 bits, which a file with a huge transaction outgrows."""
    end = before & ~0xFFFFFFFF | told
    return end if end >= before else end + (1 << 32)
