"""What is to be seen of a running pipeline: how far each part is, and how fast it goes."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.log.view import LogView
from tailrace.message import Offset
from tailrace.pipeline.names import READING
from tailrace.source.phase import Phase

if TYPE_CHECKING:
    from tailrace.deliver.delivery import Delivery
    from tailrace.pipeline.run import Running
    from tailrace.source.phase import TableProgress

RATE_OVER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class NamespaceSight:
    """One namespace of the source."""

    namespace: str
    phase: Phase
    copied: int
    rows: int | None
    """About how many there are to copy."""
    captured: int
    """Messages since the start, rows and changes."""
    rate: float

    @property
    def fraction(self) -> float | None:
        """How much of it is copied; None when nobody knows how much there is."""
        if self.phase is not Phase.COPY:
            return 1.0
        return min(1.0, self.copied / self.rows) if self.rows else None

    @property
    def left_s(self) -> float | None:
        """About how long the copy will still take."""
        if self.phase is not Phase.COPY or not self.rows or self.rate <= 0:
            return None
        return max(0, self.rows - self.copied) / self.rate


@dataclass(frozen=True, slots=True)
class WriterSight:
    """One writer."""

    name: str
    state: str
    written: int
    aside: int
    rate: float
    behind: int
    """Messages of the log that are not delivered yet."""
    behind_s: float
    """The age of the oldest of them."""
    fate: str = "put aside"
    """What becomes of messages that are refused."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A pipeline at one moment."""

    namespaces: tuple[NamespaceSight, ...]
    writers: tuple[WriterSight, ...]
    is_waiting: bool
    """Whether everything is captured and delivered, and more may come."""


class Rate:
    """How fast a count has grown lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, count: int, now_s: float) -> float:
        """The count is this much now; returns how much it grows in a second."""
        self._seen.append((now_s, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - RATE_OVER_S:
            self._seen.popleft()
        then_s, before = self._seen[0]
        return (count - before) / (now_s - then_s) if now_s > then_s else 0.0


class Observer:
    """Looks at a running pipeline, from one thread. It has a view of the log of its own, for views are not shared."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._view = LogView(running.log.directory)
        self._rates: defaultdict[tuple[str, str], Rate] = defaultdict(Rate)

    def look(self, now_s: float, clock_s: float) -> Sight:
        """`now_s` is monotonic; `clock_s` is since 1970."""
        capture = self.running.capture
        tables = sorted(capture.progress.tables.items())
        is_idle = capture.is_idle and not self.running.streams[READING].ended.is_set()
        end = self.running.log.next_offset
        writers = tuple(self._writer(delivery, end, now_s, clock_s) for delivery in self.running.deliveries)
        return Sight(
            tuple(self._namespace(name, table, now_s) for name, table in tables),
            writers,
            is_idle and all(writer.behind == 0 for writer in writers if writer.state != "stopped"),
        )

    def _namespace(self, name: str, table: TableProgress, now_s: float) -> NamespaceSight:
        captured = self.running.capture.stats.messages[name]
        rate = self._rates["read", name].note(captured, now_s)
        return NamespaceSight(name, table.phase, table.copied, table.rows, captured, rate)

    def _writer(self, delivery: Delivery, end: Offset, now_s: float, clock_s: float) -> WriterSight:
        name = delivery.spec.name
        first = delivery.next_offset
        behind = max(0, end - first)
        written = delivery.stats.written.total()
        return WriterSight(
            name=name,
            state=self._state(delivery, behind),
            written=written,
            aside=delivery.stats.aside,
            rate=self._rates["write", name].note(written, now_s),
            behind=behind,
            behind_s=self._age_s(first, clock_s) if behind else 0.0,
            fate=delivery.fate,
        )

    def _state(self, delivery: Delivery, behind: int) -> str:
        turns = self.running.streams[delivery.spec.name]
        if turns.error is None and not turns.ended.is_set():
            return "running" if behind else "waiting for messages"
        is_done = delivery.until is not None and delivery.next_offset >= delivery.until
        return "finished" if turns.error is None and is_done else "stopped"

    def _age_s(self, first: Offset, clock_s: float) -> float:
        try:
            return max(0.0, clock_s - self._view.find(first).head.timestamp / 1e6)
        except TailraceError:  # what was captured a moment ago is not published yet
            return 0.0
