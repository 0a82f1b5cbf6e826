"""Printing messages where the pipeline was started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import pyarrow as pa

from tailrace.adaptor.files.columns import is_json_text
from tailrace.adaptor.files.jsontext import lines_of
from tailrace.adaptor.files.rendering import envelopes, plain_texts
from tailrace.deliver.conforming import ops_of
from tailrace.deliver.contract import Target
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.message import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_AT_ONCE: Final = 1000


class ConsoleWriter:
    """Prints the messages of a frame in log order. At least once: nothing records what was printed."""

    def __init__(self, format: Literal["text", "json"], out: TextIO | None = None) -> None:
        self._render = plain_texts if format == "text" else envelopes
        self._out = out

    def applied(self, namespace: str) -> Offset | None:
        return None

    def write_frame(self, target: Target, frame: DataFrame, upto: Offset) -> None:
        out = self._out or sys.stdout
        try:
            for rows in frame.orderBy("offset").toArrow().to_batches(max_chunksize=_ROWS_AT_ONCE):
                out.write(str(lines_of(self._render(_messages(target, rows))), "utf-8"))
            out.flush()
        except BrokenPipeError as error:
            what = "nobody reads the standard output any more"
            raise TailraceError("destination.unreachable", what, hint="keep the reading program running") from error

    def close(self) -> None:
        """Standard output stays open."""


def _messages(target: Target, rows: pa.RecordBatch) -> Messages:
    """Rows of a DataFrame as messages again. Spark forgets which fields are kept as JSON text; the target knows."""
    fields = {field.name: field for field in target.schema if is_json_text(field)}
    columns: dict[str, pa.Array[Any]] = {
        "offset": rows.column("offset"),
        "op": ops_of(rows.column("op")),
        "timestamp": rows.column("timestamp"),
        "data": _with_fields(rows.column("data"), fields),
        "before": _with_fields(rows.column("before"), fields),
    }
    return Messages(target.namespace, pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)))


def _with_fields(column: Any, fields: dict[str, pa.Field[Any]]) -> pa.Array[Any]:
    kind = pa.struct([fields.get(field.name, field) for field in column.type])
    renewed: pa.Array[Any] = column.cast(kind)
    return renewed
