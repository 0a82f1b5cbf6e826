"""Values as Arrow columns, exactly: what has no common type is kept as JSON text, as in `tailrace.log.documents`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from tailrace.log.documents import JSON, TYPE_METADATA

Document = dict[str, Any]

EXACT_MAX: Final = 2**53
"""Every whole number up to here is a double too."""
_INT64: Final = range(-(2**63), 2**63)
_DEPTH_MAX: Final = 16
_FIELDS_MAX: Final = 1000
"""Documents with more different fields than this do not share a batch: most cells would be empty."""


def batches_of_documents(documents: Sequence[Document], *, keep_missing: bool) -> Iterator[pa.RecordBatch]:
    """Documents as columns, in order. A field that a document lacks is null, or, to `keep_missing`, ends the batch."""
    if keep_missing:
        for run in _runs(documents):
            yield _batch(run, list(run[0]), keep_missing=True)
        return
    names = list(dict.fromkeys(chain.from_iterable(documents)))
    if len(names) > _FIELDS_MAX and len(documents) > 1:
        half = len(documents) // 2
        yield from batches_of_documents(documents[:half], keep_missing=False)
        yield from batches_of_documents(documents[half:], keep_missing=False)
    else:
        yield _batch(documents, names, keep_missing=False)


def is_json_text(field: pa.Field[Any]) -> bool:
    return (field.metadata or {}).get(TYPE_METADATA) == JSON


def _runs(documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
    start = 0
    for at in range(1, len(documents) + 1):
        if at == len(documents) or documents[at].keys() != documents[start].keys():
            yield documents[start:at]
            start = at


def _batch(documents: Sequence[Document], names: list[str], *, keep_missing: bool) -> pa.RecordBatch:
    columns: list[pa.Array[Any]] = []
    fields: list[pa.Field[Any]] = []
    for name in names:
        values = [document.get(name) for document in documents]
        kind = _type_of(values, keep_missing, depth=1)
        if kind is None or not _is_text(name):
            values = [None if value is None else json.dumps(value) for value in values]
            fields.append(pa.field(name, pa.string(), metadata={TYPE_METADATA: JSON}))
        else:
            fields.append(pa.field(name, kind))
        columns.append(pa.array(values, fields[-1].type))
    if not columns:
        nothing: Any = pa.array([{}] * len(documents), pa.struct([]))
        return pa.RecordBatch.from_struct_array(nothing)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _type_of(values: Sequence[Any], keep_missing: bool, depth: int) -> pa.DataType | None:
    """The type in which all values come back as they are, but that a whole number may become a double of the same
    value; None when there is none."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.null()
    if kinds == {int}:
        present = [value for value in values if value is not None]
        return pa.int64() if min(present) in _INT64 and max(present) in _INT64 else None
    if kinds == {float}:
        return pa.float64()
    if kinds == {int, float}:
        return pa.float64() if all(abs(value) <= EXACT_MAX for value in values if type(value) is int) else None
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {str}:
        return pa.string() if all(map(_is_text, values)) else None
    if kinds == {list} and depth < _DEPTH_MAX:
        items = list(chain.from_iterable(value for value in values if value is not None))
        item = _type_of(items, keep_missing, depth + 1)
        return None if item is None else pa.list_(item)
    if kinds == {dict} and depth < _DEPTH_MAX:
        return _struct_of([value for value in values if value is not None], keep_missing, depth)
    return None


def _struct_of(values: list[Document], keep_missing: bool, depth: int) -> pa.DataType | None:
    names = list(dict.fromkeys(chain.from_iterable(values)))
    if len(names) > _FIELDS_MAX or not all(map(_is_text, names)):
        return None
    if keep_missing and any(len(value) != len(names) for value in values):
        return None
    fields: list[pa.Field[Any]] = []
    for name in names:
        kind = _type_of([value.get(name) for value in values], keep_missing, depth + 1)
        if kind is None:
            return None
        fields.append(pa.field(name, kind))
    return pa.struct(fields)


def _is_text(value: str | None) -> bool:
    """Whether UTF-8 can hold it: JSON allows half a surrogate pair, Unicode does not."""
    if value is None or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
