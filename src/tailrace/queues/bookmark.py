"""A bookmark: one value that is kept in the log, in the same group as what it is about.

So a crash cannot part the two. A consumer keeps the last one from being removed (I6).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tailrace.log.batch import Batch, batches_of
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.session import ConsumerSession
from tailrace.message import Message, Micros, Offset, Op, now


class Bookmark:
    """Of one namespace of its own."""

    def __init__(self, log: CommitLog, namespace: str, consumer: str) -> None:
        self._log = log
        self._namespace = namespace
        consumers = Consumers(log.directory)
        consumers.register(consumer, exist_ok=True)
        self._session = ConsumerSession(consumers, consumer)
        self._reader = LogReader(log.directory)
        self._place = self._reader.view.last_offsets().get(namespace)
        self.value: Any = self._load()
        """As it was kept last; None when there is none."""

    def batches(self, value: Any, at: Micros) -> Iterator[Batch]:
        """What the group must end with for a value to be found."""
        return batches_of([Message(Op.COMMAND, at, self._namespace, {"json": json.dumps(value)})])

    def moved(self, value: Any, end: int) -> None:
        """A group that ends with the value is durable."""
        self.value, self._place = value, end - 1
        if self._place > 0:
            self._session.commit(self._place - 1)

    def renew(self) -> None:
        """Say it again, if only this keeps sealed segments from being removed."""
        base = self._reader.view.head().base
        if self._place is None:
            if base > 0:
                self._session.commit(base - 1)
        elif self._place < base:
            self.moved(self.value, self._log.append(self.batches(self.value, now())).end)

    def close(self) -> None:
        self._session.close()

    def _load(self) -> Any:
        if self._place is None:
            return None
        (found,) = self._reader.entries(Offset(self._place), Offset(self._place + 1))
        return json.loads((found.message.data or {})["json"])
