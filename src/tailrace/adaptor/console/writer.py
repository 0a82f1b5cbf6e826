"""Printing messages where the pipeline was started."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

import orjson

from tailrace.adaptor.files.columns import is_json_text
from tailrace.adaptor.files.jsontext import plain
from tailrace.deliver.contract import Target
from tailrace.errors import TailraceError
from tailrace.message import Offset, Op

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DUMP: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z


class ConsoleWriter:
    """Prints the messages of a frame in log order, of which only a part is in memory. At least once: nothing records
    what was printed."""

    def __init__(self, format: Literal["text", "json"], out: TextIO | None = None) -> None:
        self._format = format
        self._out = out

    def applied(self, namespace: str) -> Offset | None:
        return None

    def write_frame(self, target: Target, frame: DataFrame, upto: Offset) -> None:
        out = self._out or sys.stdout
        in_json = [field.name for field in target.schema if is_json_text(field)]
        try:
            for row in frame.orderBy("offset").toLocalIterator(prefetchPartitions=True):
                out.write(self._line(target.namespace, row.asDict(recursive=True), in_json))
            out.flush()
        except BrokenPipeError as error:
            what = "nobody reads the standard output any more"
            raise TailraceError("destination.unreachable", what, hint="keep the reading program running") from error

    def close(self) -> None:
        """Standard output stays open."""

    def _line(self, namespace: str, row: Mapping[str, Any], in_json: list[str]) -> str:
        op = row["op"] if isinstance(row["op"], str) else Op(row["op"]).name.lower()
        data, before = (_inlined(row.get(name), in_json) for name in ("data", "before"))
        if self._format == "text":
            return f"{op} {namespace} {row['offset']} {_dumps(data)}\n"
        envelope = {
            "op": op,
            "namespace": namespace,
            "timestamp": row["timestamp"],
            "offset": row["offset"],
            "data": data,
            "before": before,
        }
        return _dumps(envelope) + "\n"


def _inlined(data: dict[str, Any] | None, in_json: list[str]) -> dict[str, Any] | None:
    """The fields that are kept as JSON text as the JSON they are."""
    if data is None:
        return None
    kept = {name: orjson.Fragment(data[name]) for name in in_json if data.get(name) is not None}
    return {**data, **kept}


def _dumps(value: Any) -> str:
    return orjson.dumps(value, default=plain, option=_DUMP).decode()
