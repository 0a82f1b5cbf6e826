"""What a pipeline is once everything said about it has been checked. The file and the Python form both end here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tailrace.limits import MIB, SEGMENT_BYTES_DEFAULT
from tailrace.log.agreement import Hold

if TYPE_CHECKING:
    from tailrace.adaptor.options import ReaderOptions, WriterOptions
    from tailrace.transform.options import FunctionOptions

EVERYTHING: Final = re.compile(".*")
BATCH_BYTES_DEFAULT: Final = 256 * MIB
"""A writer gets at most about this much of the log at once."""
SHUTDOWN_S_DEFAULT: Final = 30.0
PATIENCE_S_DEFAULT: Final = 300.0
POLL_S_DEFAULT: Final = 0.05


class OnError(StrEnum):
    """What a writer does with a message that its destination refuses."""

    STOP = "stop"
    DEAD_LETTER = "dead_letter"
    SKIP = "skip"


class SchemaPolicy(StrEnum):
    """What a writer does when the fields of a namespace change."""

    EVOLVE = "evolve"
    """The destination follows."""
    FREEZE = "freeze"
    """The writer stops."""
    DISCARD = "discard"
    """What is new is left out, and reported."""


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The source of a pipeline."""

    adaptor: str
    options: ReaderOptions
    namespace: re.Pattern[str] = EVERYTHING
    """A namespace in which this is found is read."""
    parallel: int | None = None
    """How many tasks read at the same time, None for as many as there are cores."""


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """A destination of a pipeline, and the way there."""

    name: str
    """Also the name of its consumer in the log."""
    adaptor: str
    options: WriterOptions
    namespace: re.Pattern[str] = EVERYTHING
    """A namespace in which this is found is written."""
    through: tuple[FunctionOptions, ...] = ()
    on_error: OnError = OnError.STOP
    on_schema_change: SchemaPolicy = SchemaPolicy.EVOLVE
    batch_bytes: int = BATCH_BYTES_DEFAULT
    every_s: float | None = None
    """How long to gather messages, None for what suits the adaptor."""
    hold: Hold = field(default_factory=Hold)


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """One reader, a log, one or more writers."""

    name: str
    log: str
    """The log's directory, an absolute path."""
    read: ReadSpec
    writes: tuple[WriteSpec, ...]
    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    sync_every_s: float = 0.0
    keep_bytes: int | None = None
    keep_s: float | None = None
    shutdown_s: float = SHUTDOWN_S_DEFAULT
    patience_s: float = PATIENCE_S_DEFAULT
    poll_s: float = POLL_S_DEFAULT
    spark: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the Spark session."""
    master: str | None = None
