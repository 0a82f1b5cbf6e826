"""Gathering: many small frames of a namespace become few large ones, for writers work by the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tailrace.deliver.messages import Messages
from tailrace.limits import MIB

ROWS_MAX: Final = 65_536
BYTES_MAX: Final = 32 * MIB


@dataclass(slots=True)
class _Heap:
    first: Messages
    rows: list[pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    size: int = 0

    def add(self, messages: Messages) -> None:
        self.rows.append(messages.rows)
        self.count += len(messages)
        self.size += messages.rows.nbytes

    def fits(self, messages: Messages) -> bool:
        return (
            self.first.rows.schema.equals(messages.rows.schema, check_metadata=True)
            and (self.first.mode, self.first.origin) == (messages.mode, messages.origin)
            and self.count + len(messages) <= ROWS_MAX
            and self.size + messages.rows.nbytes <= BYTES_MAX
        )

    def messages(self) -> Messages:
        concat: Any = pa
        rows = self.rows[0] if len(self.rows) == 1 else concat.concat_batches(self.rows)
        first = self.first
        return Messages(first.namespace, rows, first.key, first.mode, first.origin)


def gathered(stream: Iterable[Messages]) -> Iterator[Messages]:
    """The same messages, in the same order within each namespace, in larger pieces. Holds a bounded amount."""
    heaps: dict[str, _Heap] = {}
    for messages in stream:
        if not len(messages):
            continue
        heap = heaps.get(messages.namespace)
        if heap is not None and not heap.fits(messages):
            yield heap.messages()
            heap = None
        if heap is None:
            heap = heaps[messages.namespace] = _Heap(messages)
        heap.add(messages)
        if sum(heap.size for heap in heaps.values()) > 2 * BYTES_MAX:
            for full in heaps.values():
                yield full.messages()
            heaps.clear()
    for heap in heaps.values():
        yield heap.messages()
