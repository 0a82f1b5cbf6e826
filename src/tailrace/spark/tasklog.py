"""What tasks log reaches the driver: it travels with their receipts, and is logged again there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

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


def log_again(lines: Iterable[Line]) -> None:
    """Log on the driver what a task has logged."""
    for name, level, text in lines:
        logging.getLogger(name).log(level, "%s", text)
