"""Changes: what a stretch of the server's log did to the rows, as batches, in the order of the log."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.tarantool import stream, tuples
from tailrace.adaptor.tarantool.applying import Applying, Effect
from tailrace.adaptor.tarantool.catalog import Space
from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.image import Image, open_image
from tailrace.adaptor.tarantool.server import Server
from tailrace.adaptor.tarantool.stream import Change, Stream, Transaction
from tailrace.adaptor.tarantool.types import Numbers
from tailrace.adaptor.tarantool.vclock import Vclock, covers, plain, read_vclock, text
from tailrace.deliver.clearing import COMMAND
from tailrace.log.batch import TIMESTAMP, Batch, batches_of, with_key
from tailrace.message import Lsn, Message, Micros, Mode, Op
from tailrace.source.contract import Piece, Position

CHANGES_MAX: Final = 200_000
"""A piece ends with the transaction in which it comes to so many changes."""
_BATCH_ROWS: Final = 10_000


@dataclass(slots=True)
class _Rows:
    """Changes of one space that wait to be given on."""

    space: Space
    op: list[int] = field(default_factory=list)
    time_us: list[int] = field(default_factory=list)
    lsn: list[int] = field(default_factory=list)
    tx: list[str] = field(default_factory=list)
    data: list[tuples.Row | None] = field(default_factory=list)
    before: list[tuples.Row | None] = field(default_factory=list)


@dataclass(slots=True)
class ChangeReader:
    """The changes of one piece. Afterwards `reached` says where it ended."""

    server: Server
    directory: str
    numbers: Numbers
    reached: Position | None = None
    _wanted: Collection[str] | None = None
    _waiting: dict[str, _Rows] = field(default_factory=dict)
    _seq: int = 0

    def read(self, piece: Piece) -> Iterator[Batch]:
        """Whole transactions, each given on as it is read. The image moves with them."""
        start, upto = read_vclock(piece["vclock"]), read_vclock(piece["upto"])
        self._wanted = None if piece["namespaces"] is None else frozenset(piece["namespaces"])
        self._seq = first = int(piece["seq"])
        image = open_image(self.directory)
        if image is None:
            raise self.server.lost(f"the image of its rows in {self.directory} is gone")
        with image, image.changing():
            begin_at(image, start, self.server)
            applying = Applying(image, image.catalog())
            with Connection(self.server) as connection:
                stream.subscribe(connection, piece["cluster"], image.vclock)
                with Stream(connection, image.vclock, image.vclock) as coming:
                    _catch_up(coming, applying, start)
                    image.begin_stretch(start)
                    for transaction in coming.transactions(upto):
                        for change in transaction.changes:
                            for effect in applying.apply(change):
                                yield from self._told(effect, change, transaction)
                        if self._seq - first >= piece["changes_max"]:
                            break
            image.moved(coming.vclock)
            yield from self._flush()
        self.reached = {"vclock": plain(coming.vclock), "seq": self._seq}

    def _told(self, effect: Effect, change: Change, transaction: Transaction) -> Iterator[Batch]:
        space = effect.space
        if self._wanted is not None and space.namespace not in self._wanted:
            return
        self._seq += 1
        if effect.op is Op.COMMAND:
            yield from self._flush(space.namespace)
            at, lsn = Micros(change.time_us), Lsn(self._seq)
            command = Message(Op.COMMAND, at, space.namespace, dict(COMMAND), lsn=lsn, tx=transaction.name)
            yield from batches_of([command], Mode.SYNC)
            return
        if self._waiting.get(space.namespace, _Rows(space)).space is not space:
            yield from self._flush(space.namespace)
        waiting = self._waiting.setdefault(space.namespace, _Rows(space))
        waiting.op.append(effect.op)
        waiting.time_us.append(change.time_us)
        waiting.lsn.append(self._seq)
        waiting.tx.append(transaction.name)
        waiting.data.append(effect.row)
        waiting.before.append(effect.before)
        if len(waiting.op) >= _BATCH_ROWS:
            yield from self._flush()

    def _flush(self, namespace: str | None = None) -> Iterator[Batch]:
        """What waits, of one namespace or of all."""
        for name in [namespace] if namespace is not None else list(self._waiting):
            waiting = self._waiting.pop(name, None)
            if waiting is not None and waiting.op:
                yield _batch(waiting, self.numbers)


def _catch_up(coming: Stream, applying: Applying, start: Vclock) -> None:
    """An image that is older than what the log has moves up to there, without a word."""
    for transaction in coming.transactions(start):
        for change in transaction.changes:
            for _ in applying.apply(change):
                pass


def begin_at(image: Image, start: Vclock, server: Server) -> None:
    """Bring an image to where changes are to be read on, or to before that."""
    if image.vclock == start or not covers(image.vclock, start):
        return
    if image.vclock_before == start:  # what was read last did not get into the log
        image.go_back()
        return
    why = f"the image of its rows is as of {text(image.vclock)}, and the log ends at {text(start)}"
    raise server.lost(why)


def _batch(waiting: _Rows, numbers: Numbers) -> Batch:
    fields = max(len(row) for row in (*waiting.data, *waiting.before) if row is not None)
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.array(waiting.op, pa.int8()),
        "timestamp": pa.array(waiting.time_us, pa.int64()).cast(TIMESTAMP),
        "lsn": pa.array(waiting.lsn, pa.int64()),
        "tx": pa.array(waiting.tx, pa.string()),
        "data": tuples.of_rows(waiting.space, numbers, waiting.data, fields),
    }
    if any(row is not None for row in waiting.before):
        columns["before"] = tuples.of_rows(waiting.space, numbers, waiting.before, fields)
    made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Batch(waiting.space.namespace, with_key(made, waiting.space.key), Mode.SYNC)
