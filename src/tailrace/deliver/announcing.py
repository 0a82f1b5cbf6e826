"""Announcing: a table without rows is made in the destination, too.

The mark of a complete copy says what rows would look like when there were none. No message is at stake, so what a
function or a destination refuses is told, and is no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.deliver.contract import Target
from tailrace.deliver.messages import Messages
from tailrace.deliver.redelivery import OF_MESSAGES
from tailrace.deliver.task import open_writer
from tailrace.errors import TailraceError
from tailrace.message import Offset

if TYPE_CHECKING:
    from tailrace.adaptor.options import WriterOptions
    from tailrace.spark.tasks import Receipt


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Lets a destination that is written in tasks prepare for namespaces without rows, each by itself."""

    options: WriterOptions
    upto: Offset

    def __call__(self, empties: tuple[Messages, ...]) -> Receipt:
        news: list[str] = []
        for messages in empties:
            with refusals_told(messages.namespace, news):
                writer = open_writer(self.options)
                try:
                    writer.prepare(Target(messages.namespace, pa.schema(list(messages.data.type)), messages.key))
                    writer.commit(self.upto)
                finally:
                    writer.close()
        return {"news": news}


@dataclass(frozen=True, slots=True)
class Prepare:
    """Makes tables ready for what will come, before any message is written."""

    options: WriterOptions

    def __call__(self, targets: tuple[Target, ...]) -> Receipt:
        writer = open_writer(self.options)
        try:
            for target in targets:
                writer.prepare(target)
            writer.commit(Offset(0))
        finally:
            writer.close()
        return {}


@contextmanager
def refusals_told(namespace: str, news: list[str]) -> Iterator[None]:
    """What is refused in the body becomes news."""
    try:
        yield
    except TailraceError as error:
        if error.code not in OF_MESSAGES:
            raise
        news.append(f"{namespace} has no rows, and no table was made for it: {error.what}")
