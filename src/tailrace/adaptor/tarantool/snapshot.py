"""The snapshot: all rows of a Tarantool as of one place in its changes, fetched into an image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tailrace.adaptor.tarantool import frames, iproto
from tailrace.adaptor.tarantool.catalog import INDEXES, SPACES, SYSTEM_MAX
from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.image import Image
from tailrace.adaptor.tarantool.iproto import PREFIX_BYTES, Key, Packet, Type, packed
from tailrace.adaptor.tarantool.vclock import Vclock, read_vclock

_GATHER_BYTES: Final = 4 << 20
"""So much is received before it is taken apart, unless the server makes a pause."""
CHUNK_BYTES: Final = 8 << 20
_KEPT: Final = (SPACES, INDEXES)
"""Spaces of the server's own whose rows matter."""


def fetch(connection: Connection, image: Image, chunk_rows: int, replica: str = "") -> Vclock:
    """Fill an image. Gives the place in the changes that it is as of.

    A `replica` takes a place in the server's replica set with that. Then the server also sends the changes that were
    made meanwhile; they are let go, for they come again.
    """
    filling = _Filling(image, chunk_rows)
    asked = (Type.JOIN, {Key.INSTANCE: replica}) if replica else (Type.FETCH_SNAPSHOT, None)
    start = read_vclock(connection.ask(*asked).body.get(Key.VCLOCK) or {})
    rest, oks = b"", 2 if replica else 1
    while filling.oks < oks:
        rest = filling.take(connection, rest + connection.receive_much(_GATHER_BYTES))
    filling.finish()
    return start


@dataclass(slots=True)
class _Gathered:
    """Rows of one space that wait to become a chunk."""

    number: int = 0
    rows: int = 0
    size: int = 0
    parts: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Filling:
    """Puts rows into an image, in chunks."""

    image: Image
    chunk_rows: int
    spaces: dict[int, _Gathered] = field(default_factory=dict)
    oks: int = 0
    """How many stages are over; only the first one has rows of the snapshot."""

    def take(self, connection: Connection, data: bytes) -> bytes:
        """Take whole packets; gives what is left."""
        starts, end = frames.starts_of(data)
        for run in frames.runs_of(data, starts, end):
            if run.space is not None:
                if self.oks == 0:
                    self._add(run.space, run.rows, data[run.start : run.end])
                continue
            packet = iproto.decode(data[run.start + PREFIX_BYTES : run.end])
            if packet.is_error:
                raise connection.server.error(packet)
            if packet.type == Type.OK:
                self.oks += 1
            elif self.oks == 0:
                self._take_row(packet)
        return data[end:]

    def _take_row(self, packet: Packet) -> None:
        """A row that does not look as rows of a snapshot do."""
        space, row = packet.body.get(Key.SPACE_ID), packet.body.get(Key.TUPLE)
        if packet.type != Type.INSERT or not isinstance(space, int) or not isinstance(row, list):
            raise iproto.malformed(f"a packet of type {packet.type} is in a snapshot")
        self._add(space, 1, frames.row_frame(space, packed(row)))

    def finish(self) -> None:
        for space in list(self.spaces):
            self._flush(space)

    def _add(self, space: int, rows: int, data: bytes) -> None:
        if space <= SYSTEM_MAX and space not in _KEPT:
            return
        waiting = self.spaces.setdefault(space, _Gathered())
        if waiting.rows and waiting.rows + rows > self.chunk_rows:
            self._flush(space)
        gathered = self.spaces[space]  # another one after that
        gathered.parts.append(data)
        gathered.rows += rows
        gathered.size += len(data)
        if gathered.rows >= self.chunk_rows or gathered.size >= CHUNK_BYTES:
            self._flush(space)

    def _flush(self, space: int) -> None:
        gathered = self.spaces[space]
        if gathered.rows:
            self.image.add_chunk(space, gathered.number, gathered.rows, b"".join(gathered.parts))
        self.spaces[space] = _Gathered(gathered.number + 1)
