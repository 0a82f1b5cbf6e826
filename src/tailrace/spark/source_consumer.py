"""The consumer of a stream: the log is kept for it until Spark has done with a micro-batch."""

from __future__ import annotations

from tailrace.log.consumers import Consumers
from tailrace.log.session import ConsumerSession
from tailrace.message import Offset


class StreamConsumer:
    """One of a log. Spark's own position may be lost, and this one is not, so it is where a new query goes on."""

    def __init__(self, directory: str, name: str) -> None:
        self._consumers = Consumers(directory)
        self._name = name

    def begin(self, start: Offset) -> Offset:
        """Where a new query begins: at `start`, when the consumer is new, and from then on the log is held."""
        self._consumers.register(self._name, start=start, exist_ok=True)
        with ConsumerSession(self._consumers, self._name) as session:
            return session.resume_offset

    def passed(self, end: Offset) -> None:
        """Spark has done with everything before an offset."""
        if end > 0:
            with ConsumerSession(self._consumers, self._name) as session:
                session.commit(end - 1)
