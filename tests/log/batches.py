"""Small batches to append, and what a reader gives back of them."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pyarrow as pa

from tailrace.log.batch import Batch, batch_of, encode_frame
from tailrace.log.frame import Codec, place_head
from tailrace.log.reader import LogReader
from tailrace.message import Entry, Message, Micros, Mode, NodeId, Op

NAMESPACE = "shop.orders"


def numbered(
    *numbers: int, namespace: str = NAMESPACE, timestamp: int = 1, origin: int = 0, first_lsn: int = 0
) -> Batch:
    """One message for each number."""
    data = pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})
    return batch_of(
        namespace, data, timestamp=Micros(timestamp), origin=NodeId(origin), first_lsn=first_lsn, mode=Mode.SYNC
    )


def bulky(number: int, size: int, namespace: str = NAMESPACE) -> Batch:
    """One message of about `size` bytes that no codec makes shorter."""
    data = pa.RecordBatch.from_pydict({"n": pa.array([number], pa.int64()), "noise": pa.array([os.urandom(size)])})
    return batch_of(namespace, data, timestamp=Micros(1))


def frame(
    batch: Batch, offset: int, *, closes: bool = True, batch_ids: tuple[str, ...] = (), timestamp: int | None = None
) -> bytes:
    """A batch as a frame at its place, written without a log."""
    head, body = encode_frame(batch, Codec.NONE)
    if timestamp is not None:
        head = head._replace(timestamp=Micros(timestamp))
    return place_head(head, offset=offset, closes_group=closes, batch_ids=batch_ids)[1] + body.to_pybytes()


def message(number: int, namespace: str = NAMESPACE, *destinations: str, lsn: int = 0) -> Message:
    return Message(Op.INSERT, Micros(1), namespace, {"n": number}, lsn=lsn, destinations=destinations)  # type: ignore[arg-type]


def number_of(entry: Entry) -> int:
    assert entry.message.data is not None
    number = entry.message.data["n"]
    assert isinstance(number, int)
    return number


def numbers(entries: Iterable[Entry]) -> list[tuple[int, int]]:
    """The offset and the number of each entry."""
    return [(entry.offset, number_of(entry)) for entry in entries]


def log_numbers(directory: str | os.PathLike[str]) -> list[int]:
    """The numbers of all messages that a fresh reader finds, after checking that their offsets follow each other."""
    reader = LogReader(directory)
    found = numbers(reader.entries())
    first = reader.oldest
    assert [offset for offset, _ in found] == list(range(first, first + len(found)))
    assert reader.next_offset == first + len(found)
    return [number for _, number in found]
