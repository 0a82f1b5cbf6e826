"""The offset log of one consumer: append-only records of what it has acknowledged, in the seed's frame layout.

The key is a namespace (empty: the whole log). Transporter's data is the offset, 8 bytes; ours is
`offset u64 · kind u8 · first of its flush u8 · 2 zero bytes · CRC-32 of the record up to here u32`, and the op COMMAND
tells ours from its. The mode of the last record of a flush is SYNC, so that a torn flush can be told from damage and
counts as a whole or not at all. The file is compacted to the last word on each key.
I3: an offset never goes back except by an operator's command.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final

from tailrace.errors import Place, TailraceError
from tailrace.limits import KEY_BYTES_MAX, MIB
from tailrace.log.disk import DRAFT_SUFFIX, Disk, read_exactly
from tailrace.log.frame import crc32, encode_plain
from tailrace.log.segment import FrameFile, Located, segment_name
from tailrace.message import Mode, Offset, Op

NOTHING: Final = -1
"""The position of a consumer that has acknowledged nothing."""
WHOLE_LOG: Final = ""
"""The namespace under which a consumer acknowledges everything up to an offset."""

_TRANSPORTER: Final = Struct(">Q")
_RECORD: Final = Struct(">QBB2x")
_CRC: Final = Struct(">I")
_COMPACT_SLACK: Final = 1000
_FLUSH_BYTES_MAX: Final = MIB


class Kind(IntEnum):
    """What a record says about its namespace."""

    COMMIT = 0
    """Everything up to the offset is acknowledged."""
    REWIND = 1
    """An operator took the consumer back: from this offset on nothing is acknowledged."""
    ACK = 2
    """This one message is acknowledged."""


_KINDS: Final = frozenset(Kind)


@dataclass(slots=True)
class Positions:
    """How far a consumer has come."""

    by_namespace: dict[str, int] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    """Single messages acknowledged ahead of their turn."""

    def of(self, namespace: str) -> int:
        """Everything of the namespace up to this offset is acknowledged."""
        return max(self.by_namespace.get(WHOLE_LOG, NOTHING), self.by_namespace.get(namespace, NOTHING))

    def through(self, namespace: str) -> int:
        """Like `of`, with the single messages acknowledged right behind it."""
        position = self.of(namespace)
        while position + 1 in self.acknowledged:
            position += 1
        return position

    @property
    def furthest(self) -> int:
        """The last message that anything is said about."""
        return max((*self.by_namespace.values(), *self.acknowledged), default=NOTHING)

    def within(self, namespace: str, position: int, end: int) -> int:
        """How far a position moves through consecutive messages of one namespace that end before `end`."""
        position = max(position, min(self.of(namespace), end - 1))
        while position + 1 < end and position + 1 in self.acknowledged:
            position += 1
        return position

    def covers(self, namespace: str, offset: int) -> bool:
        return offset <= self.of(namespace) or offset in self.acknowledged

    def apply(self, kind: Kind, namespace: str, offset: int) -> None:
        if kind is Kind.ACK:
            self.acknowledged.add(offset)
        elif kind is Kind.COMMIT:
            self.by_namespace[namespace] = max(offset, self.by_namespace.get(namespace, NOTHING))
            if namespace == WHOLE_LOG and self.acknowledged:
                self.acknowledged = {single for single in self.acknowledged if single > offset}
        else:
            kept = {name: min(position, offset - 1) for name, position in self.by_namespace.items()}
            self.by_namespace = {name: position for name, position in kept.items() if position != NOTHING}
            self.acknowledged = {single for single in self.acknowledged if single < offset}


@dataclass(frozen=True, slots=True)
class Record:
    """One record of an offset log."""

    kind: Kind
    namespace: str
    offset: int

    def __post_init__(self) -> None:
        """Refuse a namespace that no log can hold: its record could be written but not read."""
        size = len(self.namespace.encode("utf-8", "replace"))
        if size > KEY_BYTES_MAX or not _is_text(self.namespace):
            raise TailraceError(
                "name.invalid",
                f"namespace {self.namespace[:40]!r} of {size} bytes cannot be in a log",
                hint="name a namespace of the log: tailrace log stat",
            )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_positions(directory: str) -> Positions:
    """What the offset log in a directory adds up to. Changes nothing; a torn last record does not count."""
    return _fold(_read(directory)[0])


def read_records(directory: str) -> list[Record]:
    """The records as they stand in the file."""
    return _read(directory)[0]


class OffsetLog:
    """A consumer's offset log open for writing. Its owner holds the consumer's lock."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._path = os.path.join(directory, segment_name(0))
        records, size = _read(directory)
        self.positions = _fold(records)
        self._records = len(records)
        self._size = size
        self._remove_drafts()
        is_new = not os.path.lexists(self._path)
        self._fd = disk.create(self._path) if is_new else disk.open(self._path)
        if not is_new:
            self._settle()
        for path in (directory, os.path.dirname(directory)):  # who made these entries may have died before their sync
            disk.sync_directory(path)

    def append(self, records: list[Record], now_s: int) -> None:
        """Write records and return when they are on disk."""
        raw = _encode_flush(self._records, records, now_s)
        try:
            self._disk.write(self._fd, [raw], self._size)
            self._disk.sync(self._fd)
        except OSError:
            with suppress(OSError):  # nobody shall count on it; the next owner settles it in any case
                self._disk.truncate(self._fd, self._size)
            raise
        self._size += len(raw)
        self._records += len(records)
        for record in records:
            self.positions.apply(record.kind, record.namespace, record.offset)
        live = len(self.positions.by_namespace) + len(self.positions.acknowledged)
        if self._records > 4 * live + _COMPACT_SLACK:
            self.compact(now_s)

    def compact(self, now_s: int) -> None:
        """Keep the last word on each namespace. The new file takes the old one's place in one step."""
        records = _compacted(self.positions)
        raw = _encode_flush(0, records, now_s)
        self._disk.replace_file(self._path, raw)
        self._disk.close(self._fd)
        self._fd = self._disk.open(self._path)
        self._size = len(raw)
        self._records = len(records)

    def close(self) -> None:
        self._disk.close(self._fd)

    def _settle(self) -> None:
        """Write what the last owner wrote once more, so that it is on disk even if that one died or failed before its
        sync, and cut a torn flush."""
        self._disk.truncate(self._fd, self._size)
        self._disk.write(self._fd, [read_exactly(self._fd, self._size, 0)], 0)
        self._disk.sync(self._fd)

    def _remove_drafts(self) -> None:
        for name in os.listdir(self._directory):
            if name.startswith(segment_name(0)) and name.endswith(DRAFT_SUFFIX):
                self._disk.remove(os.path.join(self._directory, name))


def _compacted(positions: Positions) -> list[Record]:
    commits = [Record(Kind.COMMIT, name, position) for name, position in positions.by_namespace.items()]
    return commits + [Record(Kind.ACK, WHOLE_LOG, offset) for offset in sorted(positions.acknowledged)]


def _fold(records: list[Record]) -> Positions:
    positions = Positions()
    for record in records:
        positions.apply(record.kind, record.namespace, record.offset)
    return positions


def _read(directory: str) -> tuple[list[Record], int]:
    """The records of whole flushes, and how many bytes of the file they are."""
    records: list[Record] = []
    flush: list[Record] = []
    size = 0
    try:
        file = FrameFile(os.path.join(directory, segment_name(0)))
    except FileNotFoundError:
        return records, size
    with file:
        try:
            for located in file.frames():
                flush.append(_decode(file, located))
                if _ends_flush(located):
                    records += flush
                    flush.clear()
                    size = located.end
        except TailraceError as problem:
            if not _is_torn(file, size):
                raise TailraceError(
                    "log.corrupt",
                    f"a consumer's offsets are damaged: {problem.what}",
                    place=Place(file.path, size),
                    hint="tailrace offset delete the consumer, and register it again where it should go on",
                ) from problem
    return records, size


def _is_torn(file: FrameFile, start: int) -> bool:
    """Whether what follows can be one flush that was never confirmed. A record of a later flush proves damage."""
    if file.size() - start > _FLUSH_BYTES_MAX:
        return False
    position = start + 1
    while position < file.size():
        try:
            located = file.head_at(position)
            located = located._replace(body=file.body_of(located))
            _decode(file, located)
        except TailraceError:
            position += 1
            continue
        if _starts_flush(located):
            return False
        position = located.end
    return True


def _starts_flush(located: Located) -> bool:
    return located.head.body_bytes == _TRANSPORTER.size or bool(_RECORD.unpack_from(located.body)[2])


def _ends_flush(located: Located) -> bool:
    return located.head.mode is Mode.SYNC or located.head.body_bytes == _TRANSPORTER.size


def _encode_flush(first: int, records: list[Record], now_s: int) -> bytes:
    last = len(records) - 1
    modes = (Mode.SYNC if at == last else Mode.COPY for at in range(len(records)))
    return b"".join(
        _encode(first + at, record, mode, now_s, is_first=at == 0)
        for at, (record, mode) in enumerate(zip(records, modes, strict=True))
    )


def _encode(sequence: int, record: Record, mode: Mode, now_s: int, *, is_first: bool) -> bytes:
    raw = encode_plain(
        offset=sequence,
        timestamp_s=now_s,
        mode=mode,
        op=Op.COMMAND,
        key=record.namespace.encode(),
        data=_RECORD.pack(record.offset, record.kind, is_first) + bytes(_CRC.size),
    )
    unsigned = raw[: -_CRC.size]
    return unsigned + _CRC.pack(crc32(unsigned))


def _decode(file: FrameFile, located: Located) -> Record:
    head, data = located.head, bytes(located.body)
    if len(data) == _TRANSPORTER.size and head.op is Op.INSERT:
        return Record(Kind.COMMIT, head.namespace, _TRANSPORTER.unpack(data)[0])
    if len(data) == _RECORD.size + _CRC.size and head.op is Op.COMMAND:
        raw = file.bytes_at(located.position, head.frame_bytes)
        offset, kind, _ = _RECORD.unpack_from(data)
        if _CRC.unpack(raw[-_CRC.size :])[0] == crc32(raw[: -_CRC.size]) and kind in _KINDS:
            return Record(Kind(kind), head.namespace, offset)
    raise TailraceError(
        "log.corrupt",
        "an offset record's checksum differs",
        place=file.place(located.position),
        hint="tailrace log verify",
    )


def position_of(positions: Positions, namespaces: dict[str, int], end: Offset) -> int:
    """The last offset up to which everything is acknowledged.

    `namespaces` says where each namespace of the log has its last message. A namespace whose last message is
    acknowledged holds nothing back, so the position is the lowest of those that are behind, never the highest of all.
    """
    behind = [positions.of(name) for name, last in namespaces.items() if positions.of(name) < last]
    position = min(behind, default=end - 1)
    while position + 1 < end and position + 1 in positions.acknowledged:
        position += 1
    return position
