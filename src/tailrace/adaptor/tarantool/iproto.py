"""IPROTO: requests, answers and rows as bytes. Every length from outside is checked before anything is kept for it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any, Final

import msgpack

from tailrace.errors import TailraceError
from tailrace.limits import MIB

PACKET_BYTES_MAX: Final = 256 * MIB
"""One packet; a tuple has 1 MiB unless the server is set to more."""
PREFIX_BYTES: Final = 5
_PREFIX: Final = struct.Struct(">BI")
_UINT32: Final = 0xCE
ERROR_BIT: Final = 0x8000


class Type(IntEnum):
    """What a packet is."""

    OK = 0
    SELECT = 1
    INSERT = 2
    REPLACE = 3
    UPDATE = 4
    DELETE = 5
    AUTH = 7
    UPSERT = 9
    NOP = 12
    RAFT = 30
    PROMOTE = 31
    DEMOTE = 32
    CONFIRM = 40
    ROLLBACK = 41
    PING = 64
    JOIN = 65
    SUBSCRIBE = 66
    VOTE = 68
    FETCH_SNAPSHOT = 69


class Head(IntEnum):
    """Keys of a header."""

    TYPE = 0
    SYNC = 1
    REPLICA_ID = 2
    LSN = 3
    TIMESTAMP = 4
    TSN = 8
    FLAGS = 9


class Key(IntEnum):
    """Keys of a body."""

    SERVER_VERSION = 0x06
    SPACE_ID = 0x10
    INDEX_ID = 0x11
    LIMIT = 0x12
    OFFSET = 0x13
    ITERATOR = 0x14
    INDEX_BASE = 0x15
    KEY = 0x20
    TUPLE = 0x21
    USER = 0x23
    INSTANCE = 0x24
    CLUSTER = 0x25
    VCLOCK = 0x26
    OPS = 0x28
    BALLOT = 0x29
    DATA = 0x30
    ERROR_TEXT = 0x31
    ANONYMOUS = 0x50
    ERROR = 0x52


class Ballot(IntEnum):
    """Keys of the answer to a vote."""

    IS_READ_ONLY = 1
    VCLOCK = 2
    GC_VCLOCK = 3
    IS_LOADING = 4


COMMIT: Final = 1
"""The flag of the last row of a transaction."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet."""

    header: Mapping[int, Any]
    body: Mapping[int, Any]

    @property
    def type(self) -> int:
        return int(self.header.get(Head.TYPE, 0))

    @property
    def is_error(self) -> bool:
        return bool(self.type & ERROR_BIT)


def packed(value: Any) -> bytes:
    """A value as msgpack. Texts that are no UTF-8 come out as they came in."""
    made: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors="surrogateescape")
    return made


def unpacked(data: bytes | memoryview) -> Any:
    """The value of some msgpack; the inverse of `packed`."""
    return msgpack.unpackb(data, raw=False, strict_map_key=False, unicode_errors="surrogateescape")


def encode(header: Mapping[int, Any], body: Mapping[int, Any] | None = None) -> bytes:
    """A packet as bytes, with its length in front."""
    content = packed({int(key): value for key, value in header.items()})
    if body is not None:
        content += packed({int(key): value for key, value in body.items()})
    return _PREFIX.pack(_UINT32, len(content)) + content


def packet_bytes(prefix: bytes | bytearray | memoryview, at: int = 0) -> int:
    """How long the packet is that begins with these five bytes, without them."""
    mark, length = _PREFIX.unpack_from(prefix, at)
    if mark != _UINT32:
        raise malformed("a packet does not begin with its length")
    if length > PACKET_BYTES_MAX:
        raise malformed(f"a packet says that it has {length} bytes, more than {PACKET_BYTES_MAX}")
    return int(length)


def decode(content: bytes | memoryview) -> Packet:
    """A packet without its length."""
    unpacker = _unpacker()
    unpacker.feed(content)
    try:
        found = list(unpacker)
    except (ValueError, RecursionError) as error:
        raise malformed(f"a packet is not of msgpack: {error}") from error
    if not 1 <= len(found) <= 2 or not all(isinstance(each, dict) for each in found):
        raise malformed("a packet is not a header and a body")
    if unpacker.tell() != len(content):
        raise malformed("a packet ends in the middle of a value")
    return Packet(found[0], found[1] if len(found) > 1 else {})


def decode_all(data: bytes, starts: Sequence[int], end: int) -> Iterator[Packet]:
    """Packets that follow each other, with their lengths, which are msgpack too."""
    unpacker = _unpacker()
    unpacker.feed(data[:end])
    try:
        for start, after in pairwise([*starts, end]):
            if unpacker.tell() != start:
                raise malformed("a packet ends in the middle of a value")
            unpacker.skip()
            header = unpacker.unpack() if unpacker.tell() < after else None
            body = unpacker.unpack() if unpacker.tell() < after else {}
            if not isinstance(header, dict) or not isinstance(body, dict):
                raise malformed("a packet is not a header and a body")
            yield Packet(header, body)
    except (ValueError, RecursionError, msgpack.OutOfData) as error:
        raise malformed(f"a packet is not of msgpack: {error}") from error


def _unpacker() -> msgpack.Unpacker:
    return msgpack.Unpacker(
        raw=False, strict_map_key=False, unicode_errors="surrogateescape", max_buffer_size=PACKET_BYTES_MAX
    )


def malformed(why: str) -> TailraceError:
    return TailraceError("source.malformed", f"Tarantool: {why}", hint="see that the address is that of a Tarantool")
