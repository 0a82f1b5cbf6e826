"""What tasks log reaches the driver: with their receipts, or beside their rows; it is logged again there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

ROOT: Final = logging.getLogger("tailrace")
CHARACTERS_MAX: Final = 1_000_000
"""One task may say so much; the rest is counted."""

Line = tuple[str, int, str]
"""A logger's name, a level, and a text."""


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[Line] = []
        self.left = CHARACTERS_MAX
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.left -= len(text)
        if self.left < 0:
            self.dropped += 1
        else:
            self.lines.append((record.name, record.levelno, text))


@contextmanager
def collecting() -> Iterator[list[Line]]:
    """What is logged inside, from INFO on."""
    collector, level = _Collector(), ROOT.level
    ROOT.addHandler(collector)
    ROOT.setLevel(logging.INFO)
    try:
        yield collector.lines
    finally:
        ROOT.removeHandler(collector)
        ROOT.setLevel(level)
        if collector.dropped:
            collector.lines.append((ROOT.name, logging.WARNING, f"{collector.dropped} more lines were left out"))


class Besides:
    """What tasks log that hand back rows. Travels to them; on the driver `log_again` is for when they are done."""

    def __init__(self, context: SparkContext) -> None:
        from pyspark.accumulators import AddingAccumulatorParam

        self._lines: Accumulator[list[Line]] = context.accumulator([], AddingAccumulatorParam([]))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """What is logged inside, in a task."""
        with collecting() as lines:
            try:
                yield
            finally:
                self._lines.add(lines)

    def log_again(self) -> None:
        """A line that comes twice is one of a task that Spark had to do again."""
        log_again(dict.fromkeys(self._lines.value))
        self._lines.value = []


def log_again(lines: Iterable[Line]) -> None:
    """Log on the driver what a task has logged."""
    for name, level, text in lines:
        logging.getLogger(name).log(level, "%s", text)
