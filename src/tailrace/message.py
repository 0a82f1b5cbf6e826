"""What flows: messages, and the entries they become once the log has given them an offset."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, Final, NewType

Offset = NewType("Offset", int)
"""A message's place in the log."""

Lsn = NewType("Lsn", int)
"""A message's place in its origin's own order; 0 when the origin has none."""

NodeId = NewType("NodeId", int)
"""Where a message was first written; 0 when nobody said."""

Micros = NewType("Micros", int)
"""Microseconds since 1970-01-01 UTC."""

Row = Mapping[str, Any]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_MAX: Final = 253_402_300_799
"""The last second of the year 9999."""


class Op(IntEnum):
    """What happened to a row. The numbers are Transporter's."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    COMMAND = 3
    NOOP = 4


class Mode(IntEnum):
    """The phase of its namespace in which a message was read."""

    COPY = 0
    SYNC = 1
    COMPLETE = 2


@dataclass(frozen=True, slots=True)
class Message:
    """One change."""

    op: Op
    timestamp: Micros
    namespace: str
    data: Row | None
    before: Row | None = None
    origin: NodeId = NodeId(0)
    lsn: Lsn = Lsn(0)
    tx: str | None = None
    destinations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in the log."""

    offset: Offset
    mode: Mode
    message: Message


def now() -> Micros:
    """This moment."""
    return Micros(time.time_ns() // 1000)


def micros(moment: datetime) -> Micros:
    """A moment as the log writes it; one without a zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Micros((aware - EPOCH) // timedelta(microseconds=1))


def moment(at: Micros) -> datetime:
    """The inverse of `micros`."""
    return EPOCH + timedelta(microseconds=at)
