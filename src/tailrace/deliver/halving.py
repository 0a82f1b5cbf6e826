"""Halving: messages that only Spark or the destination can tell to be at fault, found in few jobs.

A range that fails is delivered in halves, down to the messages at fault. Each costs some twenty jobs, however long the
range is, so it is the last resort: for what could not be found one at a time inside one task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tailrace.deliver.passing import Passing
from tailrace.deliver.redelivery import OF_MESSAGES, Refusals
from tailrace.deliver.stretch import Stretch
from tailrace.deliver.task import DeliverItem, read_range
from tailrace.errors import TailraceError
from tailrace.message import Offset
from tailrace.pipeline.spec import OnError

if TYPE_CHECKING:
    from tailrace.spark.tasks import Receipt

HALVED_MAX: Final = 100
"""When so many messages of one range are found in this way it is not the messages that are at fault."""


class Halving:
    """Delivers a range, but for the messages at fault."""

    def __init__(
        self,
        log: str,
        on_error: OnError,
        passing: Passing,
        measure: Callable[[Offset, Offset, Passing], Stretch],
        deliver: Callable[[Stretch, Passing], Receipt],
    ) -> None:
        self._log = log
        self._passing = passing
        self._measure = measure
        self._try = deliver
        self.receipts: list[Receipt] = []
        """What was delivered, in order."""
        self.refusals = Refusals(on_error, HALVED_MAX)

    def deliver(self, start: Offset, end: Offset) -> bool:
        """Deliver from `start` up to, not including, `end`; False when a message on the way is the end."""
        stretch = self._measure(start, end, self._passing)
        if not stretch.written():
            return True
        try:
            receipt = self._try(stretch, self._passing)
        except TailraceError as error:
            if error.code not in OF_MESSAGES:
                raise
            if end - start > 1:
                middle = Offset((start + end) // 2)
                return self.deliver(start, middle) and self.deliver(middle, end)
            return self._refuse(stretch, error)
        self.receipts.append(receipt)
        return receipt["refused"] is None

    def _refuse(self, stretch: Stretch, error: TailraceError) -> bool:
        item = DeliverItem(stretch.start, stretch.end, tuple(stretch.written()))
        return all(
            self.refusals.note(item.start, error, messages)
            for messages in read_range(self._log, item, self._passing)
            if len(messages)
        )


def without(passing: Passing, refused: list[Receipt]) -> Passing:
    """Passing over messages that were refused, too."""
    return replace(passing, acknowledged=passing.acknowledged | {each["offset"] for each in refused})
