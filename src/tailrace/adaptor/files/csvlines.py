"""CSV as columns.

A column gets a type only if nothing is lost by it: `007` stays text. The types of a file's first lines hold for all of
it; a block that does not fit them has text in those columns.
"""

from __future__ import annotations

import csv as python_csv
import logging
from collections.abc import Callable
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tailrace.adaptor.files.guessing import as_type, exact_type
from tailrace.adaptor.files.lines import Block, malformed, record_end
from tailrace.adaptor.files.options import CsvOptions
from tailrace.errors import Place, TailraceError

_TYPES: Final[dict[str, pa.DataType]] = {
    "text": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

Verdict = Literal["skip", "error"]

_log = logging.getLogger(__name__)


class CsvLines:
    """Parses blocks of one file. `sample` is how the file begins; it has the header and tells the types."""

    def __init__(self, path: str, options: CsvOptions, sample: bytes, *, skip_malformed: bool) -> None:
        self._path = path
        self._options = options
        self._delimiter = options.delimiter or ("\t" if ".tsv" in path.lower() else ",")
        self._skip_malformed = skip_malformed
        self.skipped = 0
        """How many lines were left out."""
        self.header_bytes = 0
        self._names = self._columns(sample)
        self._types = self._guess(sample[self.header_bytes :])

    def rows(self, block: Block) -> pa.RecordBatch:
        """The rows of a block of whole lines."""
        refused: list[TailraceError] = []
        try:
            text = self._parse(block, lambda row: self._refuse(block, row, refused))
        except TailraceError as error:
            raise next(iter(refused), error) from None
        columns = [self._typed(name, column, block) for name, column in zip(self._names, text.columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=self._names)

    def _refuse(self, block: Block, row: csv.InvalidRow, refused: list[TailraceError]) -> Verdict:
        """Called by Arrow, through which no error of ours finds its way."""
        line = row.text.encode()
        at = block.start + max(0, block.text.find(line))
        why = f"a row has {row.actual_columns} fields instead of {row.expected_columns}"
        error = malformed(self._path, at, why, line)
        if not self._skip_malformed:
            refused.append(error)
            return "error"
        self.skipped += 1
        _log.warning("left out, %d by now: %s", self.skipped, error)
        return "skip"

    def _columns(self, sample: bytes) -> list[str]:
        line, newline, _ = sample.partition(b"\n")
        try:
            text = line.decode().rstrip("\r")
        except UnicodeDecodeError:
            raise malformed(self._path, 0, "the header is not UTF-8", line) from None
        fields = next(python_csv.reader([text], delimiter=self._delimiter, quotechar=self._options.quote), [])
        if self._options.header:
            self.header_bytes = len(line) + len(newline)
            names = fields
        else:
            names = list(self._options.columns) or [f"column{at}" for at in range(1, len(fields) + 1)]
        if not names or len(set(names)) != len(names) or "" in names:
            what = f"two columns have the same name, or one has none: {', '.join(names)[:200]!r}"
            hint = "mend the header, or set csv.header: false and csv.columns"
            raise TailraceError("source.malformed", what, place=Place(self._path, byte=0), hint=hint)
        return names

    def _guess(self, sample: bytes) -> dict[str, pa.DataType]:
        """The types that the first rows have. Lines that cannot be read are left to whoever reads them."""
        types = {name: _TYPES[kind] for name, kind in self._options.types.items()}
        if self._options.infer and sample:
            quote = self._options.quote.encode()
            text = self._parse(
                Block(self.header_bytes, sample[: record_end(quote)(sample)] or sample), lambda row: "skip"
            )
            for name, column in zip(self._names, text.columns, strict=True):
                types.setdefault(name, exact_type(column))
        return types

    def _parse(self, block: Block, on_invalid: Callable[[csv.InvalidRow], Verdict]) -> pa.RecordBatch:
        """The fields as text. Blocks are cut at line ends, which is wrong inside quotes; an odd quote tells."""
        if block.text.count(self._options.quote.encode()) % 2:
            what = "a quoted field has a line end in it, or a quote is missing"
            hint = "set csv.quoted_newlines: true, or mend the file"
            raise TailraceError("source.malformed", what, place=Place(self._path, byte=block.start), hint=hint)
        source: Any = pa.BufferReader(block.text)
        try:
            table = csv.read_csv(
                source,
                csv.ReadOptions(use_threads=False, column_names=self._names, block_size=len(block.text) + 1),
                csv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char=self._options.quote,
                    newlines_in_values=True,
                    invalid_row_handler=on_invalid,
                ),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(self._names, pa.string()),
                    null_values=list(self._options.null_values),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            raise malformed(
                self._path, block.start, f"the rows from here on are not CSV ({error})", block.text
            ) from error
        return table.combine_chunks().to_batches()[0] if table.num_rows else _empty(self._names)

    def _typed(self, name: str, column: pa.Array[Any], block: Block) -> pa.Array[Any]:
        kind = self._types.get(name, pa.string())
        if name not in self._options.types:
            return as_type(column, kind) or column
        try:
            return pc.cast(column, kind)
        except pa.ArrowInvalid as error:
            what = f"column {name!r} is not {self._options.types[name]} everywhere: {error}"
            place = Place(self._path, byte=block.start)
            raise TailraceError("source.malformed", what, place=place, hint="change csv.types, or mend it") from error


def _empty(names: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], pa.string()) for _ in names], names=names)
