"""JSON lines as columns, every value exactly as it was.

Arrow's own parser is fast but guesses: it takes text for timestamps and rounds numbers, and a line that is only `null`
can crash it. So it gets blocks that look plain, with the types of the documents before them, and its result is taken
only where nothing was rounded. Everything else is parsed line by line, and teaches the types for the next block.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from tailrace.adaptor.files.columns import EXACT_MAX, Document, batches_of_documents, is_json_text
from tailrace.adaptor.files.jsondocument import document_of, has_long_number
from tailrace.adaptor.files.lines import Block, malformed

_SAMPLE_BYTES: Final = 64 * 1024
_FAILURES_MAX: Final = 3
"""After so many blocks in a row for which the fast parser did not do, it is not tried any more."""

_log = logging.getLogger(__name__)


class JsonLines:
    """Parses blocks of one file, in order."""

    def __init__(self, path: str, *, keep_missing: bool, skip_malformed: bool) -> None:
        self._path = path
        self._keep_missing = keep_missing
        self._skip_malformed = skip_malformed
        self._types: pa.Schema | None = None
        self._failures = 0
        self.skipped = 0
        """How many lines were left out."""

    def batches(self, block: Block) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The documents of a block, each batch with the place where it begins."""
        if self._types is None and len(block.text) > 2 * _SAMPLE_BYTES:
            cut = block.text.find(b"\n", _SAMPLE_BYTES) + 1
            if 0 < cut < len(block.text):
                yield from self.batches(Block(block.start, block.text[:cut]))
                block = Block(block.start + cut, block.text[cut:])
        rows = self._parse_fast(block)
        if rows is not None:
            self._failures = 0
            yield block.start, rows
            return
        yield from self._parse_lines(block)

    def _parse_fast(self, block: Block) -> pa.RecordBatch | None:
        """The block by Arrow's parser; None when it cannot, or would not be exact."""
        if self._types is None or self._failures >= _FAILURES_MAX:
            return None
        self._failures += 1
        lines = _plain_lines(block.text)
        if lines is None:
            return None
        size = len(block.text) + 1
        source: Any = pa.BufferReader(block.text)
        try:
            table = arrow_json.read_json(
                source,
                arrow_json.ReadOptions(use_threads=False, block_size=size),
                arrow_json.ParseOptions(explicit_schema=self._types, unexpected_field_behavior="error"),
            )
            table.validate()  # lists of nothing but nulls come out too short
        except pa.ArrowInvalid:
            return None
        if table.num_rows != lines or not all(_is_exact(column) for column in table.columns):
            return None
        if self._keep_missing and not all(_is_full(column) for column in table.columns):
            return None
        return table.to_batches()[0]

    def _parse_lines(self, block: Block) -> Iterator[tuple[int, pa.RecordBatch]]:
        documents = list(self._documents(block))
        at = block.start
        for rows in batches_of_documents(documents, keep_missing=self._keep_missing):
            if rows.num_rows:
                self._learn(rows.schema)
                yield at, rows
                at += rows.num_rows

    def _documents(self, block: Block) -> Iterator[Document]:
        at = block.start
        may_round = has_long_number(block.text)
        for line in block.text.split(b"\n"):
            if line and not line.isspace():
                try:
                    yield document_of(line, may_round=may_round and has_long_number(line))
                except ValueError as error:
                    self._refuse(at, str(error), line)
            at += len(line) + 1

    def _refuse(self, at: int, why: str, line: bytes) -> None:
        error = malformed(self._path, at, why, line)
        if not self._skip_malformed:
            raise error
        self.skipped += 1
        _log.warning("left out, %d by now: %s", self.skipped, error)

    def _learn(self, schema: pa.Schema) -> None:
        """The types for the next block: those of this one, and of fields that it did not have."""
        known = {} if self._types is None else {field.name: field for field in self._types}
        for field in schema:
            if is_json_text(field):
                known.pop(field.name, None)
            else:
                known[field.name] = _merge(known.get(field.name), field)
        self._types = pa.schema(list(known.values()))


def _plain_lines(text: bytes) -> int | None:
    """How many documents there are if there is one on each line and nothing else; None when it is not so plain.

    A line that begins with { after one that ended with } cannot continue it, so each line holds whole documents; how
    many, the number of rows will tell.
    """
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return None
    octets = np.frombuffer(text, np.uint8)
    newlines = np.flatnonzero(octets == 10)
    if not len(newlines) or newlines[-1] != len(octets) - 1 or newlines[0] == 0:
        return None
    begins = np.concatenate(([0], newlines[:-1] + 1))
    ends = newlines - 1
    ends = np.where(octets[ends] == 13, np.maximum(ends - 1, 0), ends)
    if not (octets[begins] == ord("{")).all() or not (octets[ends] == ord("}")).all():
        return None
    return len(newlines)


def _is_full(column: pa.ChunkedArray[Any] | pa.Array[Any]) -> bool:
    """Whether there is a value everywhere, so that no field can be missing."""
    kind = column.type
    if column.null_count:
        return False
    if pa.types.is_struct(kind):
        return all(_is_full(pc.struct_field(column, [at])) for at in range(kind.num_fields))
    return not pa.types.is_list(kind) or _is_full(pc.list_flatten(column))


def _is_exact(column: pa.ChunkedArray[Any] | pa.Array[Any]) -> bool:
    """Whether no whole number can have been rounded, nor anything been taken that is no JSON number."""
    kind = column.type
    if pa.types.is_floating(kind):
        largest = pc.max(pc.abs(column)).as_py()
        has_nan = bool(pc.any(pc.is_nan(column)).as_py())
        return not has_nan and (largest is None or largest < EXACT_MAX)
    if pa.types.is_struct(kind):
        return all(_is_exact(pc.struct_field(column, [at])) for at in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _is_exact(pc.list_flatten(column))
    return True


def _merge(known: pa.Field[Any] | None, found: pa.Field[Any]) -> pa.Field[Any]:
    """A field that fits what was known and what was found; where they differ, what was found last."""
    if known is None or pa.types.is_null(known.type):
        return found
    if pa.types.is_null(found.type):
        return known
    if pa.types.is_floating(known.type) and pa.types.is_integer(found.type):
        return known
    if pa.types.is_struct(known.type) and pa.types.is_struct(found.type):
        fields = {field.name: field for field in known.type}
        for field in found.type:
            fields[field.name] = _merge(fields.get(field.name), field)
        return pa.field(found.name, pa.struct(list(fields.values())))
    if pa.types.is_list(known.type) and pa.types.is_list(found.type):
        return pa.field(found.name, pa.list_(_merge(known.type.value_field, found.type.value_field)))
    return found
