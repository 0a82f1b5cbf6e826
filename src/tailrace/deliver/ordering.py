"""Ordering: messages of several namespaces in the order in which they happened in their source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.deliver.messages import Messages


def in_source_order(batches: Sequence[Messages]) -> Iterator[Messages]:
    """The same messages by `lsn`, which holds the source's order across namespaces; rows of a copy, which have none,
    first. As few batches as that allows: neighbours of one batch stay together."""
    if not batches:
        return
    lsns = np.concatenate([_lsns(messages) for messages in batches])
    batch_of = np.repeat(np.arange(len(batches)), [len(messages) for messages in batches])
    row_of = np.concatenate([np.arange(len(messages)) for messages in batches])
    order = np.argsort(lsns, kind="stable")
    batch_of, row_of = batch_of[order], row_of[order]
    borders = np.flatnonzero(np.diff(batch_of)) + 1
    for rows, owners in zip(np.split(row_of, borders), np.split(batch_of, borders), strict=True):
        messages = batches[int(owners[0])]
        yield messages.take(pa.array(rows, pa.int64()))


def _lsns(messages: Messages) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    column = messages.rows.column("lsn").cast(pa.int64())
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
