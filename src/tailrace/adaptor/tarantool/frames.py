"""Frames of a snapshot: long runs of packets taken apart at once.

Rows of a snapshot all have the same header, and a space's number of four bytes, so where a tuple begins is known
without decoding anything. What looks otherwise is left to the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tailrace.adaptor.tarantool import iproto
from tailrace.adaptor.tarantool.iproto import PREFIX_BYTES, Key, Type

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
_STEP: Final = struct.Struct(">BI").unpack_from
_HEAD: Final = (0x82, 0x00, int(Type.INSERT), 0x01)
"""A header of type and sync, up to the sync's value."""
_BODY: Final = (0x82, int(Key.SPACE_ID), 0xCE)
"""A body up to the number of the space; four bytes later comes the key of the tuple."""


def walk(data: bytes | bytearray, at: int = 0) -> tuple[list[int], int]:
    """Where whole packets begin, from `at` on, and where the last of them ends."""
    starts: list[int] = []
    end = len(data)
    while at + PREFIX_BYTES <= end:
        mark, length = _STEP(data, at)
        if mark != 0xCE or length > iproto.PACKET_BYTES_MAX:
            iproto.packet_bytes(bytes(data[at : at + PREFIX_BYTES]))
        after = at + PREFIX_BYTES + length
        if after > end:
            break
        starts.append(at)
        at = after
    return starts, at


def starts_of(data: bytes) -> tuple[Ints, int]:
    """The same as `walk` from the beginning, for long runs of rows.

    Whatever looks like the beginning of a row is found at once. Where each of them ends at the next, and the first is
    one, all are; what only looks so breaks the chain there, and from there on it is walked.
    """
    octets = np.frombuffer(data, np.uint8)
    found = _candidates(octets)
    if not len(found) or found[0] != 0:
        starts, end = walk(data)
        return np.array(starts, np.int64), end
    lengths = _big_endian(octets, found + 1)
    ends = found + PREFIX_BYTES + lengths
    is_broken: Any = np.flatnonzero(found[1:] != ends[:-1])
    chained = int(is_broken[0]) + 1 if len(is_broken) else len(found)
    if ends[chained - 1] > len(data):
        chained -= 1
    rest, end = walk(data, int(ends[chained - 1]) if chained else 0)
    return np.append(found[:chained], np.array(rest, np.int64)), end


def _candidates(octets: Octets) -> Ints:
    """Places at which a row may begin: those with its header, and a sync of one byte."""
    count = len(octets) - _ROW_BYTES_MIN
    if count <= 0:
        return np.zeros(0, np.int64)
    looks = octets[PREFIX_BYTES + 2 :][:count] == _HEAD[2]
    for number in (0, 1, 3):
        looks &= octets[PREFIX_BYTES + number :][:count] == _HEAD[number]
    found: Ints = np.flatnonzero(looks)
    looks = octets[found] == 0xCE
    for number, expected in enumerate(_BODY):
        looks &= octets[found + PREFIX_BYTES + 5 + number] == expected
    chosen: Ints = found[looks]
    return chosen


def _big_endian(octets: Octets, at: Ints) -> Ints:
    number = np.zeros(len(at), np.int64)
    for place in range(4):
        number = number << 8 | octets[at + place]
    return number


def row_frame(space: int, encoded: bytes) -> bytes:
    """A tuple as a row of a snapshot."""
    body = bytes((*_HEAD, 0x01, *_BODY)) + struct.pack(">IB", space, Key.TUPLE) + encoded
    return struct.pack(">BI", 0xCE, len(body)) + body


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows of one space; or one packet that is no row, when `space` is None."""

    space: int | None
    start: int
    end: int
    rows: int


def runs_of(data: bytes, starts: Ints, end: int) -> Iterator[Run]:
    """The packets of some bytes by space."""
    if not len(starts):
        return
    spaces = _spaces(np.frombuffer(data, np.uint8), starts, end)
    edges: Any = np.flatnonzero(np.diff(spaces)) + 1
    borders = [0, *edges.tolist(), len(starts)]
    for first, last in pairwise(borders):
        upto = int(starts[last]) if last < len(starts) else end
        space = int(spaces[first])
        if space >= 0:
            yield Run(space, int(starts[first]), upto, last - first)
            continue
        for number in range(first, last):
            after = int(starts[number + 1]) if number + 1 < len(starts) else end
            yield Run(None, int(starts[number]), after, 1)


def tuples_of(data: bytes) -> tuple[Ints, Ints]:
    """Where the tuples of a run begin and end."""
    at, end = starts_of(data)
    return _bodies(np.frombuffer(data, np.uint8), at) + 8, np.append(at[1:], end)


def _bodies(octets: Octets, at: Ints) -> Ints:
    """Where the bodies begin: behind a sync of one to nine bytes."""
    sync = octets[np.minimum(at + PREFIX_BYTES + 4, len(octets) - 1)]
    return at + PREFIX_BYTES + 4 + _SYNC_BYTES[sync]


_ROW_BYTES_MIN: Final = PREFIX_BYTES + 13
_SYNC_BYTES: Final = np.zeros(256, np.int64)
_SYNC_BYTES[:0x80] = 1
_SYNC_BYTES[0xCC:0xD0] = (2, 3, 5, 9)


def _spaces(octets: Octets, at: Ints, end: int) -> Ints:
    """The space of each packet, -1 of one that is no row of a snapshot."""
    padded = np.append(octets[:end], np.zeros(40, np.uint8))
    is_row = np.ones(len(at), np.bool_)
    for number, expected in enumerate(_HEAD):
        is_row &= padded[at + PREFIX_BYTES + number] == expected
    sync = padded[at + PREFIX_BYTES + 4]
    is_row &= _SYNC_BYTES[sync] > 0
    body = at + PREFIX_BYTES + 4 + _SYNC_BYTES[sync]
    for number, expected in enumerate(_BODY):
        is_row &= padded[body + number] == expected
    is_row &= padded[body + 7] == int(Key.TUPLE)
    return np.where(is_row, _big_endian(padded, body + 3), -1)
