"""What a task does for delivery: read a range of the log, apply the functions, write, commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.deliver.contract import PartedWriter, Target, Writer
from tailrace.deliver.evolution import Evolution, decode_schemas, encode_schemas
from tailrace.deliver.gathering import gathered
from tailrace.deliver.messages import Messages, messages_of
from tailrace.deliver.parting import Part, part_of
from tailrace.deliver.passing import Passing
from tailrace.errors import TailraceError
from tailrace.log.reader import LogReader
from tailrace.log.selection import Selection, exactly
from tailrace.message import Offset
from tailrace.pipeline.spec import SchemaPolicy

if TYPE_CHECKING:
    from tailrace.adaptor.options import WriterOptions
    from tailrace.spark.tasks import Receipt
    from tailrace.transform.chain import Chain


@dataclass(frozen=True, slots=True)
class DeliverItem:
    """A range of the log, and which of its namespaces."""

    start: Offset
    end: Offset
    namespaces: tuple[str, ...]
    part: Part | None = None
    """Only the messages of these keys."""


@dataclass(frozen=True, slots=True)
class DeliverRange:
    """Writes what becomes of ranges of the log to one destination."""

    read: Callable[[DeliverItem], Iterator[Messages]]
    """Gives the messages of a range after the functions."""
    options: WriterOptions
    policy: SchemaPolicy
    schemas: dict[str, str] = field(default_factory=dict)
    passing: Passing = field(default_factory=Passing)

    def __call__(self, item: DeliverItem) -> Receipt:
        evolution = Evolution(self.policy, decode_schemas(self.schemas))
        written: Counter[str] = Counter()
        writer = open_writer(self.options)
        try:
            if item.part is not None and isinstance(writer, PartedWriter):
                writer.take(item.part)
            for messages in gathered(self._stream(writer, item)):
                admitted = evolution.admit(messages)
                write(writer, evolution.known[messages.namespace], admitted)
                written[messages.namespace] += len(admitted)
            writer.commit(Offset(item.end - 1))
        finally:
            writer.close()
        return {"written": dict(written), "schemas": encode_schemas(evolution.known), "news": evolution.news}

    def _stream(self, writer: Writer, item: DeliverItem) -> Iterator[Messages]:
        """What the destination has is asked for by the name that the functions have left."""
        applied = cache(writer.applied)
        for messages in self.read(item):
            ours = messages
            if item.part is not None and isinstance(writer, PartedWriter):
                ours = part_of(messages, writer.key_of(messages.namespace, messages.key), item.part)
            yield self.passing.unwritten(ours, applied)


@dataclass(frozen=True, slots=True)
class ApplyRange:
    """Reads a range of the log and applies functions."""

    log: str
    chain: Chain
    passing: Passing

    def __call__(self, item: DeliverItem) -> Iterator[Messages]:
        return (self.chain.apply(messages) for messages in read_range(self.log, item, self.passing))


def read_range(log: str, item: DeliverItem, passing: Passing) -> Iterator[Messages]:
    """The messages of a range of the log, but for those that need not be sent."""
    for frame in LogReader(log).frames(item.start, item.end, Selection(namespace=exactly(*item.namespaces))):
        yield passing.wanted(messages_of(frame))


def write(writer: Writer, known: pa.Schema, messages: Messages) -> None:
    """Let a writer have messages, and know their fields first. What it raises names the messages."""
    first, last = messages.offsets()[0].as_py(), messages.offsets()[-1].as_py()
    try:
        writer.prepare(Target(messages.namespace, known, messages.key))
        writer.write(messages)
    except TailraceError:
        raise
    except Exception as error:
        what = f"offsets {first} to {last} of {messages.namespace} were refused: {type(error).__name__}: {error}"
        raise TailraceError("destination.refused", what, hint=f"tailrace log show {first}") from error


def open_writer(options: WriterOptions) -> Writer:
    """The writer of a destination that is written in tasks."""
    writer: Any = options.open()
    found: Writer = writer
    return found
