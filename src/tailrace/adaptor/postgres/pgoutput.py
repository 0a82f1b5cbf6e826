"""PostgreSQL's own stream of changes (plugin pgoutput, protocol 1, values as text), decoded column by column.

A slot gives one message per row. Whole columns of them are looked at with numpy, never one message by one, but for the
few that describe a table or empty it. So a change costs about a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import TailraceError

EPOCH_US: Final = 946_684_800_000_000
"""PostgreSQL counts from the year 2000."""
_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_BEGIN, _COMMIT, _RELATION, _TRUNCATE, _ORIGIN = ord("B"), ord("C"), ord("R"), ord("T"), ord("O")
_IGNORED: Final = frozenset(b"YM")
"""Types are looked up in the catalog; messages of other programs say nothing about rows."""
_NEW, _OLD = ord("N"), ord("O")
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_KNOWN: Final = frozenset((_INSERT, _UPDATE, _DELETE, _BEGIN, _COMMIT, _RELATION, _TRUNCATE, _ORIGIN)) | _IGNORED

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as the stream describes it."""

    name: str
    type_oid: int
    typmod: int
    is_identity: bool
    """Whether it is among the columns that identify a row in the stream."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it was when the changes that follow were made."""

    oid: int
    schema: str
    name: str
    identity: str
    """`d` the primary key, `i` an index, `f` the whole row, `n` nothing."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """The values of a column: where each one's text lies."""

    buffer: Bytes
    kinds: Bytes
    starts: Ints
    lengths: Ints

    def unchanged(self) -> Flags:
        """Which values are not told because they lie elsewhere (TOAST) and were not touched."""
        flags: Flags = self.kinds == _UNCHANGED
        return flags

    def instead(self, other: Cells, where: Flags) -> Cells:
        """The same, with the values of another column in some places."""
        return Cells(
            self.buffer,
            np.where(where, other.kinds, self.kinds),
            np.where(where, other.starts, self.starts),
            np.where(where, other.lengths, self.lengths),
        )

    def take(self, places: Ints) -> Cells:
        return Cells(self.buffer, self.kinds[places], self.starts[places], self.lengths[places])

    def text(self) -> pa.Array[Any]:
        """The values as text; null where there is none."""
        is_text = self.kinds == _TEXT
        lengths = np.where(is_text, self.lengths, 0)
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        if total > np.iinfo(np.int32).max:
            raise OverflowError("more than 2 GiB of text in one batch")
        offsets = np.zeros(len(lengths) + 1, np.int32)
        offsets[1:] = ends
        from_where = np.repeat(self.starts - offsets[:-1], lengths)
        content = self.buffer[from_where + np.arange(total)]
        validity = None if is_text.all() else np.packbits(is_text, bitorder="little")
        parts: list[Any] = [validity, offsets, content]
        buffers = [None if part is None else pa.py_buffer(part) for part in parts]
        array: pa.Array[Any] = pa.Array.from_buffers(pa.string(), len(lengths), buffers)
        return array


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive changes of one table, with one description of it."""

    relation: Relation
    ops: Bytes
    """`I`, `U` or `D`."""
    transactions: Ints
    """The number of each change's transaction in `Chunk.transactions`."""
    numbers: Ints
    """Where each change stands among all of the stream."""
    data: list[Cells]
    """By column: the new row, of deletes what is told of the old one."""
    before: list[Cells]
    """By column: the old row of updates that tell it."""
    has_before: Flags
    has_whole_before: Flags
    """Whether `before` is the whole row, not only what identifies it."""

    def take(self, places: Ints) -> Rows:
        """Only some of the changes."""
        return Rows(
            self.relation,
            self.ops[places],
            self.transactions[places],
            self.numbers[places],
            [cells.take(places) for cells in self.data],
            [cells.take(places) for cells in self.before],
            self.has_before[places],
            self.has_whole_before[places],
        )


@dataclass(frozen=True, slots=True)
class Truncation:
    """A table was emptied."""

    relation: Relation
    transaction: int
    number: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a stretch, in the order of their commits."""

    commit_lsn: Ints
    committed_us: Ints
    xid: Ints
    is_ours: Flags
    """Which are of the decoder's origin."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What some messages say."""

    transactions: Transactions
    parts: list[Rows | Truncation]
    """Those of one table in the stream's order."""
    changes: int


class Decoder:
    """Messages of one stream, chunk by chunk, in the order in which the slot gives them."""

    def __init__(self, origin: str = "") -> None:
        self._origin = origin
        self._relations: dict[int, Relation] = {}
        none = np.empty(0, np.int64)
        self._open = Transactions(none, none, none, np.empty(0, np.bool_))
        """The transaction that the last chunk ended in."""
        self._changes = 0

    def decode(self, messages: pa.BinaryArray) -> Chunk:
        """The next messages."""
        heap = _Heap(messages)
        kinds = heap.bytes_at(heap.starts)
        unknown = set(np.unique(kinds).tolist()) - _KNOWN
        if unknown:
            what = f"the stream has messages of an unknown kind: {bytes(sorted(unknown))!r}"
            raise TailraceError("source.malformed", what, hint="pip install --upgrade tailrace")
        transactions, numbers = self._transactions(heap, kinds)
        first = self._changes
        is_change = np.isin(kinds, (_INSERT, _UPDATE, _DELETE, _TRUNCATE))
        order = first + np.cumsum(is_change) - 1
        self._changes += int(np.count_nonzero(is_change))
        parts = list(self._parts(heap, kinds, numbers, order))
        return Chunk(transactions, parts, self._changes - first)

    def _transactions(self, heap: _Heap, kinds: Bytes) -> tuple[Transactions, Ints]:
        """The transactions there are, and the number of each message's."""
        begins = heap.starts[kinds == _BEGIN]
        carried = len(self._open.xid)
        found = Transactions(
            np.concatenate([self._open.commit_lsn, heap.u64_at(begins + 1)]),
            np.concatenate([self._open.committed_us, heap.u64_at(begins + 9) + EPOCH_US]),
            np.concatenate([self._open.xid, heap.u32_at(begins + 17)]),
            np.concatenate([self._open.is_ours, np.zeros(len(begins), np.bool_)]),
        )
        numbers = np.cumsum(kinds == _BEGIN) - 1 + carried
        for at in np.flatnonzero(kinds == _ORIGIN).tolist():
            found.is_ours[numbers[at]] = heap.origin(at) == self._origin
        last = slice(-1, None)
        self._open = Transactions(
            found.commit_lsn[last], found.committed_us[last], found.xid[last], found.is_ours[last]
        )
        return found, numbers

    def _parts(self, heap: _Heap, kinds: Bytes, numbers: Ints, order: Ints) -> Iterator[Rows | Truncation]:
        """Stretches between descriptions and truncations, each one table by table."""
        special = np.flatnonzero((kinds == _RELATION) | (kinds == _TRUNCATE))
        begin = 0
        for at in special.tolist():
            if kinds[at] == _RELATION:
                relation = heap.relation(at)
                if relation == self._relations.get(relation.oid, relation):
                    self._relations[relation.oid] = relation
                    continue
            yield from self._rows(heap, kinds, numbers, order, slice(begin, at))
            begin = at
            if kinds[at] == _RELATION:
                self._relations[relation.oid] = relation
            else:
                for oid in heap.truncated(at):
                    yield Truncation(self._relations[oid], int(numbers[at]), int(order[at]))
        yield from self._rows(heap, kinds, numbers, order, slice(begin, len(kinds)))

    def _rows(self, heap: _Heap, kinds: Bytes, numbers: Ints, order: Ints, where: slice) -> Iterator[Rows]:
        places = where.start + np.flatnonzero(np.isin(kinds[where], (_INSERT, _UPDATE, _DELETE)))
        if not len(places):
            return
        oids = heap.u32_at(heap.starts[places] + 1)
        for oid in np.unique(oids).tolist():
            those = places[oids == oid]
            yield self._rows_of(heap, self._relations[oid], kinds[those], numbers[those], order[those], those)

    def _rows_of(self, heap: _Heap, relation: Relation, ops: Bytes, numbers: Ints, order: Ints, places: Ints) -> Rows:
        starts = heap.starts[places]
        markers = heap.bytes_at(starts + 5)
        width = len(relation.columns)
        first, ends = heap.tuples(starts + 6, width)
        has_before = (ops == _UPDATE) & (markers != _NEW)
        two = np.flatnonzero(has_before)
        data = first
        if len(two):
            second, _ = heap.tuples(ends[two] + 1, width)
            data = [_scattered(cells, two, new) for cells, new in zip(first, second, strict=True)]
        return Rows(relation, ops, numbers, order, data, first, has_before, has_before & (markers == _OLD))


class _Heap:
    """The bytes of some messages, and where each message starts."""

    def __init__(self, messages: pa.BinaryArray) -> None:
        buffers: Any = messages.buffers()
        offsets = np.frombuffer(buffers[1], np.int32)[messages.offset : messages.offset + len(messages) + 1]
        self.starts: Ints = offsets[:-1].astype(np.int64)
        self.ends: Ints = offsets[1:].astype(np.int64)
        raw = np.frombuffer(buffers[2], np.uint8)[: int(offsets[-1])] if len(messages) else np.empty(0, np.uint8)
        self.buffer: Bytes = np.concatenate([raw, np.zeros(8, np.uint8)])  # so that every place can be looked at
        self._u16 = _windows(self.buffer, ">u2")
        self._u32 = _windows(self.buffer, ">u4")
        self._u64 = _windows(self.buffer, ">i8")

    def bytes_at(self, places: Ints) -> Bytes:
        return self.buffer[places]

    def u32_at(self, places: Ints) -> Ints:
        return self._u32[places].astype(np.int64)

    def u64_at(self, places: Ints) -> Ints:
        return self._u64[places].astype(np.int64)

    def tuples(self, places: Ints, width: int) -> tuple[list[Cells], Ints]:
        """Rows that begin at these places, by column, and where each row ends."""
        if len(places) and (self._u16[places] != width).any():
            what = f"a row of the stream has another number of columns than its table's {width}"
            raise TailraceError("source.malformed", what, hint="tailrace doctor")
        at = places + 2
        columns: list[Cells] = []
        for _ in range(width):
            kinds = self.buffer[at]
            is_text = kinds == _TEXT
            lengths = np.where(is_text, self._u32[np.minimum(at + 1, len(self._u32) - 1)], 0).astype(np.int64)
            columns.append(Cells(self.buffer, kinds, at + 5, lengths))
            at = at + 1 + np.where(is_text, 4 + lengths, 0)
            if len(at) and at.max() > len(self.buffer):
                raise TailraceError("source.malformed", "a message of the stream is cut off", hint="tailrace doctor")
        return columns, at

    def relation(self, number: int) -> Relation:
        """The message that describes a table."""
        message = _Message(self._bytes(number), 1)
        oid = message.number(4)
        schema, name = message.text() or "pg_catalog", message.text()
        identity = chr(message.number(1))
        columns = []
        for _ in range(message.number(2)):
            flags = message.number(1)
            column, type_oid, typmod = message.text(), message.number(4), message.number(4, signed=True)
            columns.append(RelationColumn(column, type_oid, typmod, bool(flags & 1)))
        return Relation(oid, schema, name, identity, tuple(columns))

    def origin(self, number: int) -> str:
        """Where a message says that its transaction came from."""
        return _Message(self._bytes(number), 9).text()

    def truncated(self, number: int) -> list[int]:
        """The tables that a message empties."""
        message = _Message(self._bytes(number), 1)
        count = message.number(4)
        message.number(1)  # whether others or sequences go along: others are listed, sequences are not followed
        return [message.number(4) for _ in range(count)]

    def _bytes(self, number: int) -> bytes:
        return bytes(self.buffer[self.starts[number] : self.ends[number]])


@dataclass(slots=True)
class _Message:
    """One message, read from its begin to its end."""

    content: bytes
    at: int

    def number(self, size: int, *, signed: bool = False) -> int:
        begin, self.at = self.at, self.at + size
        return int.from_bytes(self.content[begin : self.at], "big", signed=signed)

    def text(self) -> str:
        begin, end = self.at, self.content.index(0, self.at)
        self.at = end + 1
        return self.content[begin:end].decode()


def text_cells(cells: Cells, places: Sequence[int], values: Sequence[str | None]) -> Cells:
    """A column with other values in some places."""
    contents = [b"" if value is None else value.encode() for value in values]
    lengths = np.array([len(content) for content in contents], np.int64)
    starts = len(cells.buffer) + np.cumsum(lengths) - lengths
    kinds = np.array([_NULL if value is None else _TEXT for value in values], np.uint8)
    buffer = np.concatenate([cells.buffer, np.frombuffer(b"".join(contents), np.uint8)])
    new = Cells(buffer, kinds, starts, lengths)
    return _scattered(Cells(buffer, cells.kinds, cells.starts, cells.lengths), np.array(places, np.int64), new)


def _scattered(cells: Cells, places: Ints, new: Cells) -> Cells:
    kinds, starts, lengths = cells.kinds.copy(), cells.starts.copy(), cells.lengths.copy()
    kinds[places], starts[places], lengths[places] = new.kinds, new.starts, new.lengths
    return Cells(cells.buffer, kinds, starts, lengths)


def _windows(buffer: Bytes, kind: str) -> npt.NDArray[Any]:
    """At every place the number that begins there."""
    size = np.dtype(kind).itemsize
    return np.ndarray((len(buffer) - size + 1,), kind, buffer, strides=(1,))
