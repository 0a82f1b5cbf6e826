"""What pipelines ask of a node that they read, and what it answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tailrace.relay.paper import Clock, Paper, SessionName

ConsumerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
LogId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
LogOffset = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]
Names = Annotated[list[Annotated[str, Field(max_length=255)]], Field(max_length=100_000)]


class Inquiry(StrEnum):
    """What a pipeline can ask for that is answered at once. Rows come through tickets."""

    TABLES = "tables"
    CHECK = "check"
    HOLD = "hold"
    RELEASE = "release"
    WHERE = "where"
    COPY = "copy"
    COPIED = "copied"
    PLAN = "plan"
    FORGET = "forget"


class Reading(Paper):
    """A pipeline asks something for which its name is enough."""

    consumer: ConsumerName


class Spot(Paper):
    """A place in a log, at the end of a transaction; the clock says where that is in the log of another node."""

    log: LogId
    offset: LogOffset
    """Of the first message behind it."""
    vclock: Clock


class Hold(Paper):
    """A pipeline will read the log, from a place on or from now."""

    consumer: ConsumerName
    since: Spot | None = None


class TableInfo(Paper):
    """A table of the node's store."""

    namespace: str
    columns: str
    """Arrow's own form of a schema, in base64."""
    key: tuple[str, ...]
    rows: int | None = None


class Tables(Paper):
    """The answer: the tables that can be copied."""

    tables: list[TableInfo]


class Copy(Paper):
    """The answer to a pipeline that wants a copy: by namespace, the numbers of its first chunk and of the one behind
    its last."""

    session: SessionName
    tables: dict[str, tuple[int, int]]


class Plan(Paper):
    """What of the log between two places is there for these namespaces, for all unless they are named?"""

    since: Spot
    upto: Spot
    namespaces: Names | None = None


class Span(Paper):
    """Whole transactions."""

    start: LogOffset
    end: LogOffset
    vclock: Clock
    """At the start."""


class Planned(Paper):
    """The answer: parts that can be read at the same time, and where they end, if that is before what was asked for."""

    log: LogId
    spans: list[Span]
    reached: Spot | None = None


class Range(Paper):
    """The changes of a part of the log are wanted."""

    log: LogId
    start: LogOffset
    end: LogOffset
    namespaces: Names | None = None
    vclock: Clock
    """What of it is known."""


class Forget(Paper):
    """A pipeline has everything up to a place, durably (I2)."""

    consumer: ConsumerName
    upto: Spot
