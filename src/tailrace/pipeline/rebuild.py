"""Rebuilding: what a table was at some point, from the log alone: the last message of every key up to there."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tailrace.deliver.frames import FrameMaker, TypedFrame
from tailrace.deliver.stretch import Share, is_delivered, measure
from tailrace.errors import Place, TailraceError
from tailrace.log.reader import LogReader
from tailrace.log.selection import exactly
from tailrace.message import Micros, Offset, micros
from tailrace.pipeline.history import History, trace
from tailrace.pipeline.suggest import did_you_mean
from tailrace.pipeline.tableformat import TableFormat
from tailrace.spark.session import fold
from tailrace.spark.tasks import task_error
from tailrace.transform.chain import Chain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TASKS: Final = 2 * (os.cpu_count() or 2)
TRANSPORTER_KEY: Final = "_id"


@dataclass(frozen=True, slots=True)
class Point:
    """A table at an offset, checked: the log holds all that is needed."""

    log: str
    namespace: str
    at: Offset
    history: History

    @property
    def default_directory(self) -> str:
        """Where the table goes when nobody says; a name from outside is no path."""
        return os.path.abspath(f"rebuild-{quote(self.namespace, safe='')}-{self.at}")

    def check_free(self, directory: str) -> None:
        """Refuse to write where something is."""
        if os.path.lexists(directory):
            what = f"{self.namespace} at offset {self.at} needs a new directory, and there is something already"
            raise TailraceError("input.invalid", what, place=Place(directory), hint="choose another with --to")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was written."""

    namespace: str
    at: Offset
    rows: int
    directory: str


def find_point(log: str, namespace: str, at: str) -> Point:
    """The point that was asked for, as an offset or a time in ISO form. Raises when its state is not in the log."""
    reader = LogReader(log)
    _check_namespace(reader, namespace)
    offset = _offset(reader, at)
    history = trace(reader, namespace, offset)
    history.check(offset)
    return Point(reader.directory, namespace, offset, history)


def rebuild(point: Point, to: str, session: SparkSession, form: TableFormat = TableFormat.PARQUET) -> Rebuilt:
    """Write the table as it was into a new directory."""
    point.check_free(to)
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    observation = Observation()
    rows = _state(point, session).observe(observation, sql.count(sql.lit(1)).alias("rows"))
    address = f"file://{os.path.abspath(to)}"
    try:
        if form is TableFormat.PARQUET:
            rows.write.parquet(address)
        else:
            rows.write.option("ignoreNullFields", "false").json(address)
            _name_lines(to)
    except Exception as error:
        what = f"{point.namespace} at offset {point.at} was not written: {fold(error)}"
        hint = "look into spark.log; remove what was begun, or choose another --to"
        raise task_error(error) or TailraceError("spark.failed", what, place=Place(to), hint=hint) from error
    return Rebuilt(point.namespace, point.at, int(observation.get["rows"]), os.path.abspath(to))


def _name_lines(directory: str) -> None:
    """Spark calls its files .json, which say a line for each row."""
    for entry in list(os.scandir(directory)):
        if entry.name.endswith(".json"):
            os.rename(entry.path, f"{entry.path}l")
            with suppress(FileNotFoundError):  # a checksum goes by the name
                os.remove(os.path.join(directory, f".{entry.name}.crc"))


def _state(point: Point, session: SparkSession) -> DataFrame:
    """The rows that existed."""
    view = LogReader(point.log).view
    end = Offset(point.at + 1)
    stretch = measure(view, point.history.begin, exactly(point.namespace), 1 << 62, limit=end, with_schemas=True)
    share = stretch.shares.get(point.namespace)
    typed = _frame(point, share, session) if share is not None and share.frames else None
    if typed is None:
        what = f"{point.namespace} has no message up to offset {point.at}, so nobody knows its columns"
        raise TailraceError("input.invalid", what, place=Place(point.log), hint="choose a later point")
    key = typed.key or _documents_key(typed)
    emptied = max((clear.offset for clear in stretch.clears), default=-1)
    frame = typed.frame.where(typed.frame["offset"] > emptied) if stretch.clears else typed.frame
    if not key:
        return frame.where(frame["op"] == "insert").select("data.*")
    last = _last(frame, key)
    return last.where(last["op"] != "delete").select("data.*")


def _frame(point: Point, share: Share, session: SparkSession) -> TypedFrame | None:
    label = f"rebuild {point.namespace}"
    return FrameMaker(session, point.log, label, Chain(), spill="").frame(point.namespace, share, TASKS)


def _last(frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """The last message of every key; a row that moved to another key is gone from the one it had."""
    from pyspark.sql import functions as sql

    rows = frame.select(*_parts(frame["data"], key), "offset", "op", "data")
    if set(key) <= {entry.name for entry in _fields(frame, "before")}:
        moved = frame.where((frame["op"] == "update") & frame["before"].isNotNull())
        gone = moved.select(*_parts(moved["before"], key), "offset", sql.lit("delete").alias("op"), "data")
        others = gone.where(~_is_key_of_data(gone, key))
        rows = rows.unionByName(others)
    numbered = [f"_{number}" for number in range(len(key))]
    best = sql.max_by(sql.struct("op", "data"), sql.col("offset")).alias("best")
    return rows.groupBy(*numbered).agg(best).select("best.op", "best.data")


def _parts(data: Column, key: tuple[str, ...]) -> list[Column]:
    return [data.getField(name).alias(f"_{number}") for number, name in enumerate(key)]


def _is_key_of_data(rows: DataFrame, key: tuple[str, ...]) -> Column:
    from pyspark.sql import functions as sql

    same = sql.lit(True)
    for number, name in enumerate(key):
        same = same & rows[f"_{number}"].eqNullSafe(rows["data"].getField(name))
    return same


def _fields(frame: DataFrame, column: str) -> list[Any]:
    kind: Any = frame.schema[column].dataType
    return list(kind.fields)


def _documents_key(typed: TypedFrame) -> tuple[str, ...]:
    """Transporter's documents have their key in `_id`, and say so nowhere."""
    return (TRANSPORTER_KEY,) if TRANSPORTER_KEY in {entry.name for entry in _fields(typed.frame, "data")} else ()


def _offset(reader: LogReader, at: str) -> Offset:
    """The last offset that belongs to a point."""
    end = reader.next_offset
    if at.isascii() and at.isdigit():
        offset = int(at)
    else:
        offset = reader.offset_at(Micros(_moment(at) + 1)) - 1
        if offset < reader.oldest:
            what = f"the log has no message up to {at}; it begins at offset {reader.oldest}"
            raise TailraceError("log.below_oldest", what, place=Place(reader.directory), hint="choose a later point")
    if offset >= end:
        what = f"offset {offset} is past the end of the log, the newest is {end - 1}"
        raise TailraceError("log.past_end", what, place=Place(reader.directory), hint=f"--at {end - 1}")
    return Offset(offset)


def _moment(at: str) -> Micros:
    try:
        return micros(datetime.fromisoformat(at))
    except ValueError:
        hint = "--at 120, or --at 2026-03-01T12:00:00Z; a time without a zone is UTC"
        raise TailraceError("input.invalid", f"{at!r} is neither an offset nor a time", hint=hint) from None


def _check_namespace(reader: LogReader, namespace: str) -> None:
    known = sorted(name for name in reader.view.last_offsets() if is_delivered(name))
    if namespace not in known:
        what = f"the log has no namespace {namespace!r}{did_you_mean(namespace, known)}"
        hint = f"there are: {', '.join(known)}" if known else "there is none yet; run the pipeline first"
        raise TailraceError("input.invalid", what, place=Place(reader.directory), hint=hint)
