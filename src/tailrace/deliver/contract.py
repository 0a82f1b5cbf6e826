"""What a destination must offer to be written. `tests/adaptor/contract.py` holds every promise as a test.

There are two kinds. A `Writer` works inside a task and gets columns; a `FrameWriter` works on the driver and gets one
DataFrame per namespace, for destinations that Spark itself writes or merges.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from tailrace.message import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.deliver.frames import RowRanges
    from tailrace.deliver.messages import Messages
    from tailrace.deliver.parting import Part


class Spread(StrEnum):
    """How a batch may be divided among tasks that write at the same time."""

    NONE = "none"
    """One task writes everything, in log order."""
    NAMESPACE = "namespace"
    """A task writes all messages of its namespaces, in log order."""
    KEY = "key"
    """A task writes all messages of its part of the keys, in log order; the writer is a `PartedWriter`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A namespace as a writer is to have it."""

    namespace: str
    schema: pa.Schema
    """The fields of `data`: all that ever came, each with a type that holds its values."""
    key: tuple[str, ...]
    copy: Offset | None = None
    """When all that comes now are rows of one copy: where that copy begins. No key comes twice within one copy."""


class Writer(Protocol):
    """A destination inside one task: `open`, then any number of `write`, then `commit` or `close` without it.

    Until `commit` returns nothing need be there; when it has returned everything is, durably. A batch that was cut
    off comes again, perhaps with other borders: the same messages written twice must leave the same state. After a
    failure messages come one at a time, each followed by `commit`.
    """

    spread: Spread

    def applied(self, namespace: str) -> Offset | None:
        """Up to where the destination itself knows that it has the messages of a namespace, None when it does not
        know. What is at or below is not written again."""

    def prepare(self, target: Target) -> None:
        """Make room for what will come: create the table, add columns, widen types. Called before the first `write`
        of a namespace, when its fields have changed, and, before `commit` alone, for one that has no rows. Never drops
        a column or a row."""

    def write(self, messages: Messages) -> None:
        """Write messages of one namespace. Raises when any of them cannot be written."""

    def commit(self, upto: Offset) -> None:
        """Make everything written so far durable, together with the fact that the namespaces written since `open` have
        everything up to `upto` (I3). Says nothing about other namespaces: another task may be at them."""

    def close(self) -> None:
        """Let go; what was not committed must not stay visible where the destination can help it."""


@runtime_checkable
class PartedWriter(Protocol):
    """A `Writer` that can be one of several that write at the same time, each the rows of its part of the keys.

    Tables are made ready by another one before. One without a part writes all rows: what it commits holds for all
    parts."""

    parts: int
    """How many write at the same time, at most."""

    def take(self, part: Part) -> None:
        """From now on `applied` and `commit` are about one part."""

    def key_of(self, namespace: str, key: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that tell rows apart, when the source says that they are `key`."""


@runtime_checkable
class Clearing(Protocol):
    """A `Writer` whose tables can be emptied."""

    def clear(self, namespace: str) -> None:
        """Empty the table of a namespace, as its source did, if there is one. `commit` follows."""


@runtime_checkable
class ClearingFrames(Protocol):
    """A `FrameWriter` whose tables can be emptied."""

    def clear(self, namespace: str, upto: Offset) -> bool:
        """Empty the table of a namespace, if there is one, together with the fact that all up to `upto` was written.
        False when it keeps what was."""


@runtime_checkable
class LoadingFrames(Protocol):
    """A `FrameWriter` that can take rows in tasks, without Spark's SQL engine."""

    def load(self, target: Target, frame: DataFrame, ranges: RowRanges, upto: Offset) -> bool:
        """Like `write_frame`, for rows of one copy, which need not be looked at beside others. False when it cannot be
        done in this way; then nothing was done at all."""


class FrameWriter(Protocol):
    """A destination that Spark writes. Whoever uses it asks `applied` first and leaves out the messages that are there,
    unless an operator wants them sent again: then the same messages must leave the same state, and a history may have
    them twice, each with its offset. After a crash a batch comes again, perhaps with other borders.
    """

    def applied(self, namespace: str) -> Offset | None:
        """As in `Writer`. What a crash has left half done is finished here, or as if it had never begun."""

    def write_frame(self, target: Target, frame: DataFrame, upto: Offset) -> None:
        """Write the messages of one namespace (columns as for functions), all or nothing, durably, together with the
        fact that all up to `upto` was (I3). Without any, the table is made.

        The rows come in no order: `offset` is their order. The table has the fields of the target, those that it had
        before, and for each a type that holds the values of both. An update leaves a field that the frame lacks as it
        is. Raises `destination.unreachable` when no message is at fault."""

    def close(self) -> None:
        """Let go of everything."""
