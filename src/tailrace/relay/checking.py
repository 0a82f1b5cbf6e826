"""Rows that came from a peer are looked at before anything is done with them: one that lies is refused (I10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, common_op, decode_body
from tailrace.log.frame import Head
from tailrace.relay.refusal import bad_group, malformed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def check_rows(frames: Sequence[tuple[Head, ReadableBuffer]]) -> None:
    """Refuse a group whose rows are not what its heads say: each of its numbers once, and all of them."""
    numbers = [_numbers(checked(head, body)) for head, body in frames]
    for (head, _), lsns in zip(frames, numbers, strict=True):
        if (int(lsns.min()), int(lsns.max())) != (head.first_lsn, head.last_lsn):
            raise bad_group(f"a frame says that it has lsn {head.first_lsn} to {head.last_lsn}, and has others")
    lsns = np.sort(np.concatenate(numbers))
    if not bool((np.diff(lsns) == 1).all()):
        raise bad_group("numbers of its messages come twice, or are left out")


def checked(head: Head, body: ReadableBuffer) -> Batch:
    """The rows of a frame, of which every value can be read."""
    try:
        rows = decode_body(body)
        rows.validate(full=True)
    except (pa.ArrowException, StopIteration, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise malformed(f"what a peer sent cannot be read: the rows of a frame are none: {said}") from error
    if not len(rows) or len(rows) != head.messages:
        raise malformed(f"what a peer sent cannot be read: a frame claims {head.messages} rows and has {len(rows)}")
    try:
        batch = Batch(head.namespace, rows, head.mode, head.origin)
        common_op(batch)
    except TailraceError as error:
        raise malformed(f"what a peer sent cannot be read: {error.what}") from error
    if any(rows.column(name).null_count for name in ("timestamp", "lsn")):
        raise malformed("what a peer sent cannot be read: a message has no time or no number")
    return batch


def _numbers(batch: Batch) -> Any:
    return batch.rows.column("lsn").to_numpy(zero_copy_only=False)
