"""Rows that came from a peer are looked at before anything is done with them: one that lies is refused (I10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.limits import FRAME_UNPACKED_BYTES_MAX
from tailrace.log.batch import Batch, common_op, decode_body
from tailrace.log.frame import Head
from tailrace.log.unpacked import unpacked_bytes
from tailrace.relay.refusal import bad_group, malformed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def check_rows(frames: Sequence[tuple[Head, ReadableBuffer]]) -> None:
    """Refuse a group whose rows are not what its heads say: each of its numbers once, and all of them."""
    found: list[Any] = []
    for head, body in frames:
        lsns = checked(head, body).rows.column("lsn").to_numpy(zero_copy_only=False)
        if int(lsns.min()) != head.first_lsn or int(lsns.max()) != head.last_lsn:
            raise bad_group(f"a frame says that it has lsn {head.first_lsn} to {head.last_lsn}, and has others")
        found.append(lsns)
    if len(frames) > 1 or len(found[0]) > 1:
        lsns = np.sort(np.concatenate(found))
        if not bool((lsns[1:] == lsns[:-1] + 1).all()):
            raise bad_group("numbers of its messages come twice, or are left out")


def unpacked(body: ReadableBuffer) -> pa.RecordBatch:
    """The rows of a body. A few bytes can claim to be many, so it is looked at first how many."""
    try:
        size = unpacked_bytes(body)
        if size > FRAME_UNPACKED_BYTES_MAX:
            what = f"a frame has {size} bytes when it is unpacked, {FRAME_UNPACKED_BYTES_MAX} are allowed"
            raise malformed(f"what a peer sent cannot be read: {what}")
        rows = decode_body(body)
        rows.validate(full=True)
    except (pa.ArrowException, StopIteration, OSError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise malformed(f"what a peer sent cannot be read: the rows of a frame are none: {said}") from error
    if any(map(_has_other_form, rows.schema.types)):
        raise malformed("what a peer sent cannot be read: a column is of a form in which few values stand for many")
    return rows


def _has_other_form(kind: pa.DataType) -> bool:
    """Whether values are kept by reference, so that they could be many more than there is room for."""
    is_other = (
        pa.types.is_dictionary(kind)
        or pa.types.is_run_end_encoded(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
    return is_other or any(_has_other_form(kind.field(at).type) for at in range(kind.num_fields))


def checked(head: Head, body: ReadableBuffer) -> Batch:
    """The rows of a frame, of which every value can be read."""
    rows = unpacked(body)
    if not len(rows) or len(rows) != head.messages:
        raise malformed(f"what a peer sent cannot be read: a frame claims {head.messages} rows and has {len(rows)}")
    try:
        batch = Batch(head.namespace, rows, head.mode, head.origin)
        common_op(batch)
    except TailraceError as error:
        raise malformed(f"what a peer sent cannot be read: {error.what}") from error
    if rows.column("timestamp").null_count or rows.column("lsn").null_count:
        raise malformed("what a peer sent cannot be read: a message has no time or no number")
    return batch
