"""Parting: the messages of a namespace by the hash of their key, so that several tasks can write at the same time.

All changes of one row are in one part, in log order. A row that moves to another key is gone from the part of its old
key, and comes into that of the new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages
from tailrace.message import Op

Hashes = npt.NDArray[np.uint64]

_BASE: Final = 0x100000001B3
_MIX: Final = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Part:
    """One of so many."""

    number: int
    of: int


def part_of(messages: Messages, key: tuple[str, ...], part: Part) -> Messages:
    """The messages of one part; without a key all are in the first."""
    if not key or not set(key) <= set(messages.fields):
        return messages if part.number == 0 else messages.slice(0, 0)
    new = _places(messages.data, key, part.of)
    before = messages.before
    if before is None or not set(key) <= {field.name for field in before.type}:
        return messages.filter(pa.array(new == part.number))
    is_update = pc.equal(messages.ops(), pa.scalar(int(Op.UPDATE), pa.int8())).to_numpy(zero_copy_only=False)
    has_old = is_update & before.is_valid().to_numpy(zero_copy_only=False)
    for name in key:  # a row with NULL in its key was never written
        has_old &= pc.struct_field(before, [name]).is_valid().to_numpy(zero_copy_only=False)
    old = np.where(has_old, _places(before, key, part.of), new)
    if (old == new).all():
        return messages.filter(pa.array(new == part.number))
    return _with_moves(messages, before, new == part.number, old == part.number)


def _with_moves(messages: Messages, before: pa.StructArray, comes: npt.NDArray[Any], was: npt.NDArray[Any]) -> Messages:
    """Messages whose row comes into this part, and deletes of the rows that leave it, in log order."""
    arrived = messages.with_column("before", _masked(before, comes & ~was)).filter(pa.array(comes))
    leaving = pa.array(was & ~comes)
    left = messages.filter(leaving)
    gone = left.with_column("op", pa.repeat(pa.scalar(int(Op.DELETE), pa.int8()), len(left)))
    gone = gone.with_column("data", _shaped(before.filter(leaving), messages.data.type))
    gone = gone.with_column("before", pa.nulls(len(left), before.type))
    concat: Any = pa
    rows = concat.concat_batches([arrived.rows, gone.rows.select(arrived.rows.schema.names).cast(arrived.rows.schema)])
    order: Any = pc.sort_indices(rows.column("offset"))
    return replace(messages, rows=rows.take(order))


def _masked(column: pa.StructArray, hidden: npt.NDArray[Any]) -> pa.StructArray:
    """A struct column that is null where `hidden` is true."""
    mask = pa.array(hidden | column.is_null().to_numpy(zero_copy_only=False))
    return pa.StructArray.from_arrays(column.flatten(), fields=list(column.type), mask=mask)


def _shaped(rows: Any, kind: pa.StructType) -> pa.StructArray:
    """Rows as structs of another type; what they do not tell is null."""
    known = {field.name: at for at, field in enumerate(rows.type)}
    columns = [
        pc.struct_field(rows, [known[field.name]]).cast(field.type)
        if field.name in known
        else pa.nulls(len(rows), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _places(rows: pa.StructArray, key: tuple[str, ...], parts: int) -> npt.NDArray[np.uint64]:
    """The number of the part that each row belongs to."""
    mixed = np.zeros(len(rows), np.uint64)
    with np.errstate(over="ignore"):
        for name in key:
            column: Any = pc.struct_field(rows, [name])
            mixed = (mixed ^ _hashes(column)) * np.uint64(_MIX)
            mixed ^= mixed >> np.uint64(29)
    return mixed % np.uint64(parts)


def _hashes(column: pa.Array[Any]) -> Hashes:
    """A number for every value, the same for values that are written alike, whatever their types."""
    texts: Any = _bytes(column)
    begins = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = texts.buffers()[2]
    if content is None or begins[0] == begins[-1]:
        return np.zeros(len(texts), np.uint64)
    data = np.frombuffer(content, np.uint8)[begins[0] : begins[-1]].astype(np.uint64)
    lengths = np.diff(begins)
    places = np.arange(len(data)) - np.repeat(begins[:-1] - begins[0], lengths)
    powers = np.cumprod(np.full(int(lengths.max()), _BASE, np.uint64), dtype=np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((data + np.uint64(1)) * powers[places], dtype=np.uint64)])
    found: Hashes = sums[begins[1:] - begins[0]] - sums[begins[:-1] - begins[0]]
    return found


def _bytes(column: pa.Array[Any]) -> pa.Array[Any]:
    """Values as bytes; those that have no text are all alike, and go to one part."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_fixed_size_binary(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary())
    if pa.types.is_binary(column.type):
        return column.fill_null(b"")
    try:
        text: Any = column.cast(pa.string())
    except pa.ArrowException:
        return pa.repeat(pa.scalar(b"", pa.binary()), len(column))
    filled: pa.Array[Any] = text.fill_null("")
    return filled
