"""Packing: DataFrames of several namespaces as one, in log order, so that one task sees every message in its turn."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import ipc

from tailrace.deliver.frames import TypedFrame, messages_from
from tailrace.deliver.messages import Messages
from tailrace.deliver.originals import marks_of
from tailrace.deliver.redelivery import WriteSingly
from tailrace.deliver.spilling import described, restored
from tailrace.message import Offset
from tailrace.spark.tasks import telling_driver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.spark.tasks import Receipt

_PACKED: Final = "offset long, place int, messages binary"


def packed(frames: Sequence[TypedFrame]) -> DataFrame:
    """All messages of some frames in one partition, in log order; each is one binary value."""
    together = functools.reduce(lambda one, other: one.union(other), itertools.starmap(_pack, enumerate(frames)))
    return together.repartition(1).sortWithinPartitions("offset", "place")


def _pack(place: int, typed: TypedFrame) -> DataFrame:
    namespace, key, marks = typed.namespace, typed.key, marks_of(typed.frame.schema)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling_driver():
            for batch in batches:
                messages = messages_from(namespace, key, batch, marks)
                rows = [_serialized(messages.slice(at, 1)) for at in range(len(messages))]
                yield pa.RecordBatch.from_pydict(
                    {
                        "offset": messages.offsets(),
                        "place": pa.array([place] * len(messages), pa.int32()),
                        "messages": pa.array(rows, pa.binary()),
                    }
                )

    return typed.frame.mapInArrow(pack, _PACKED)


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Offset, Messages]]:
    """The inverse of `packed`. What functions have made of one message comes together, for it has one offset."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for (offset, _), same in itertools.groupby(rows, key=lambda row: (row["offset"], row["place"])):
        parts = [restored(_deserialized(row["messages"])) for row in same]
        concat: Any = pa
        whole = parts[0].rows if len(parts) == 1 else concat.concat_batches([part.rows for part in parts])
        yield Offset(offset), Messages(parts[0].namespace, whole, parts[0].key)


@dataclass(frozen=True, slots=True)
class RedeliverPacked:
    """Writes packed messages one by one."""

    write: WriteSingly

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Receipt:
        return self.write.run(unpacked(batches), lambda messages: messages)


def _serialized(messages: Messages) -> bytes:
    sink = pa.BufferOutputStream()
    rows = described(messages)
    with ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue().to_pybytes()


def _deserialized(packed: bytes) -> pa.RecordBatch:
    with ipc.open_stream(packed) as stream:
        return next(iter(stream))
