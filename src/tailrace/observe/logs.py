"""A log and its consumers as the status model has them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator

from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers, State
from tailrace.log.stat import LogStat, Whereabouts, stat_of
from tailrace.message import Offset
from tailrace.observe.model import Health, Kind, Lag, LogPart, NamespacePart, Part, Wrong

_HEALTH = {State.LIVE: Health.GOOD, State.EXPIRED: Health.WAITING}
_CURES = {
    State.INVALIDATED: "what it needs is gone: let it take a new snapshot",
    State.DAMAGED: "tailrace offset delete it, and register it again",
}


class LogLook:
    """A log that is looked at again and again: only what has been added since is read."""

    def __init__(self, directory: str) -> None:
        self._consumers = Consumers(directory)
        self._whereabouts = Whereabouts()

    def stat(self) -> LogStat | None:
        """None while there is no log."""
        try:
            return stat_of(self._consumers, self._whereabouts)
        except TailraceError as error:
            if error.code != "log.not_found":
                raise
            return None

    def age_s(self, offset: int) -> float | None:
        """How old the message at an offset is, or the first one behind it; None when the log has neither."""
        try:
            found = self._consumers.view.find(Offset(offset))
        except TailraceError:
            return None
        return max(0.0, time.time() - found.head.timestamp / 1e6)


def log_part(found: LogStat) -> LogPart:
    held: Counter[str] = Counter()
    for segment in found.segments:
        for name in segment.fate.held_by:
            held[name] += segment.fate.bytes
    return LogPart(found.directory, found.oldest, found.next_offset, found.messages, found.bytes, dict(held))


def namespaces_of(found: LogStat) -> Iterator[NamespacePart]:
    for name, presence in sorted(found.namespaces.items()):
        yield NamespacePart(name, presence.messages, presence.bytes, presence.last)


def consumers_of(found: LogStat, without: Collection[str]) -> Iterator[Part]:
    """Those who read the log under a name, but for those that are told of elsewhere."""
    for consumer in found.consumers:
        if consumer.name in without:
            continue
        state = State(consumer.state)
        health = _HEALTH.get(state, Health.BAD)
        if health is Health.GOOD and not consumer.in_use:
            health = Health.WAITING
        cure = _CURES.get(state)
        is_ours = consumer.name.startswith("_")
        yield Part(
            Kind.CONSUMER,
            consumer.name,
            "of Tailrace itself" if is_ours else f"hold policy {consumer.hold}",
            "in use" if state is State.LIVE and consumer.in_use else str(state.value),
            health,
            consumer.position,
            None if is_ours else Lag.of(consumer.lag),  # it keeps a place, and reads nothing
            seen_s_ago=max(0.0, time.time() - consumer.seen_s) if consumer.seen_s else None,
            wrong=None if cure is None else Wrong(f"consumer.{state.value}", f"the consumer is {state.value}", cure),
        )
