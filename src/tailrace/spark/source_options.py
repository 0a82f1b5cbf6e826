"""What a reader of `format("tailrace")` may ask for. Unknown options are refused (I10)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

from tailrace.errors import TailraceError
from tailrace.log.reader import LogReader
from tailrace.message import Micros, Offset, micros
from tailrace.namespace import check_file_name, namespace_pattern
from tailrace.pipeline.suggest import did_you_mean
from tailrace.units import parse_bytes

NAMES: Final = (
    "path",
    "namespace",
    "namespaces",
    "columns",
    "startingOffset",
    "endingOffset",
    "startingTimestamp",
    "endingTimestamp",
    "maxBytesPerTrigger",
    "includeInternal",
    "includeNoop",
    "failOnDataLoss",
    "onNewField",
    "filterPushdown",
    "consumer",
)
_BOOLEANS: Final = {"true": True, "false": False}

Value = TypeVar("Value")


class OnNewField(StrEnum):
    """What becomes of a field that the schema lacks."""

    FAIL = "fail"
    IGNORE = "ignore"


class Edge(StrEnum):
    """An end of the log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a range begins or ends: an end of the log, an offset, or the first message of a moment."""

    at: Edge | Offset | Micros
    is_moment: bool = False

    def offset_in(self, reader: LogReader) -> Offset:
        """The offset in a log, as it is now."""
        if self.at is Edge.EARLIEST:
            return reader.oldest
        if self.at is Edge.LATEST:
            return reader.next_offset
        number = int(self.at)
        return reader.offset_at(Micros(number)) if self.is_moment else Offset(number)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What was asked for."""

    path: str
    namespace: str | None = None
    """The one namespace of the typed form."""
    namespaces: re.Pattern[str] | None = None
    columns: tuple[str, ...] = ()
    """None named: all."""
    start: Bound = Bound(Edge.EARLIEST)
    end: Bound | None = None
    trigger_bytes_max: int | None = None
    include_internal: bool = False
    include_noop: bool = False
    fail_on_data_loss: bool = True
    on_new_field: OnNewField = OnNewField.FAIL
    filter_pushdown: bool = False
    consumer: str | None = None
    """For which the log is kept while a stream follows it."""


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options as Spark hands them over; the case of their names does not matter."""
    by_folded = {name.lower(): name for name in NAMES}
    values: dict[str, str] = {}
    for written, value in given.items():
        name = by_folded.get(written.lower())
        if name is None:
            what = f"there is no option {written!r}{did_you_mean(written, NAMES)}"
            raise TailraceError("input.invalid", what, hint=f"use some of {', '.join(NAMES)}")
        values[name] = value
    if not values.get("path"):
        raise TailraceError("input.invalid", "no log is named", hint='name its directory: .load("shop-log")')
    _refuse_both(values, "namespace", "namespaces")
    start = _bound(values, "startingOffset", "startingTimestamp")
    return ReadOptions(
        path=_directory(values["path"]),
        namespace=values.get("namespace"),
        namespaces=_parsed(values, "namespaces", namespace_pattern),
        columns=tuple(name.strip() for name in values.get("columns", "").split(",") if name.strip()),
        start=start or Bound(Edge.EARLIEST),
        end=_bound(values, "endingOffset", "endingTimestamp"),
        trigger_bytes_max=_parsed(values, "maxBytesPerTrigger", parse_bytes),
        include_internal=_choice(values, "includeInternal", _BOOLEANS, default=False),
        include_noop=_choice(values, "includeNoop", _BOOLEANS, default=False),
        fail_on_data_loss=_choice(values, "failOnDataLoss", _BOOLEANS, default=True),
        on_new_field=_choice(values, "onNewField", {way.value: way for way in OnNewField}, default=OnNewField.FAIL),
        filter_pushdown=_choice(values, "filterPushdown", _BOOLEANS, default=False),
        consumer=_parsed(values, "consumer", lambda name: check_file_name(name, "consumer")),
    )


def _directory(path: str) -> str:
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    if "://" in path or "\0" in path:
        what = f"option path: {path!r} is not a directory that this machine sees"
        raise TailraceError("input.invalid", what, hint="name a directory, mounted on every executor")
    return os.path.abspath(os.path.expanduser(path))


def _bound(values: Mapping[str, str], by_offset: str, by_moment: str) -> Bound | None:
    _refuse_both(values, by_offset, by_moment)
    if by_moment in values:
        return Bound(_moment(by_moment, values[by_moment]), is_moment=True)
    if by_offset not in values:
        return None
    text = values[by_offset].strip().lower()
    if text in tuple(Edge):
        return Bound(Edge(text))
    if not text.isdecimal():
        raise _wrong(by_offset, values[by_offset], "a number, earliest or latest")
    return Bound(Offset(int(text)))


def _moment(name: str, text: str) -> Micros:
    if text.strip().isdecimal():
        return Micros(int(text))
    try:
        return micros(datetime.fromisoformat(text.strip()))
    except ValueError:
        wanted = "a moment such as 2026-01-31T12:00:00Z, or microseconds since 1970"
        raise _wrong(name, text, wanted) from None


def _choice(values: Mapping[str, str], name: str, choices: Mapping[str, Value], *, default: Value) -> Value:
    if name not in values:
        return default
    chosen = values[name].strip().lower()
    if chosen not in choices:
        raise _wrong(name, values[name], " or ".join(choices))
    return choices[chosen]


def _parsed(values: Mapping[str, str], name: str, parse: Callable[[str], Value]) -> Value | None:
    if name not in values:
        return None
    try:
        return parse(values[name])
    except TailraceError as error:
        raise TailraceError(error.code, f"option {name}: {error.what}", hint=error.hint) from error


def _refuse_both(values: Mapping[str, str], one: str, other: str) -> None:
    if one in values and other in values:
        what = f"options {one} and {other} say the same in two ways"
        raise TailraceError("input.invalid", what, hint=f"leave out {one} or {other}")


def _wrong(name: str, text: str, wanted: str) -> TailraceError:
    return TailraceError("input.invalid", f"option {name}: {text!r} is not {wanted}", hint="correct the value")
