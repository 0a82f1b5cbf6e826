"""Parquet files: pieces are runs of row groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tailrace.errors import Place, TailraceError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_BATCH_ROWS: Final = 1 << 16


def divide_row_groups(path: str, piece_bytes: int) -> list[dict[str, int]]:
    """Runs of row groups of about a size, `first_group` to before `end_group`; `row` is the first row's number."""
    with _opened(path) as file:
        groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
    runs: list[dict[str, int]] = []
    row = run_bytes = 0
    for at, group in enumerate(groups):
        if not runs or run_bytes + group.total_byte_size > piece_bytes:
            runs.append({"first_group": at, "end_group": at, "row": row})
            run_bytes = 0
        runs[-1]["end_group"] = at + 1
        run_bytes += group.total_byte_size
        row += group.num_rows
    return runs


def read_row_groups(path: str, first: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows of a run of row groups."""
    with _opened(path) as file:
        groups = list(range(first, end))
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, use_threads=False):
            yield _plain(batch)


def schema_of(path: str) -> pa.Schema:
    """The columns of a file."""
    with _opened(path) as file:
        empty = pa.RecordBatch.from_pylist([], schema=file.schema_arrow)
        return _plain(empty).schema


def is_complete(path: str) -> bool:
    """Whether the footer is there, which is written last."""
    try:
        _open(path).close()
    except pa.ArrowInvalid:
        return False
    return True


def _opened(path: str) -> closing[ParquetFile]:
    try:
        return closing(_open(path))
    except pa.ArrowInvalid as error:
        what = f"the file is not Parquet, or was never completed: {error}"
        hint = "put a whole file in its place, or move it away"
        raise TailraceError("source.malformed", what, place=Place(path), hint=hint) from error


def _open(path: str) -> ParquetFile:
    from pyarrow.parquet import ParquetFile  # most pipelines read none

    return ParquetFile(path)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns without dictionaries, which are a matter of storage."""
    columns: list[pa.Array[Any]] = [
        column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
