"""How far a pipeline's parts are behind each other, by what the source and the log say."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tailrace.log.consumers import Consumers
from tailrace.log.lock import WRITER_LOCK_NAME, Holder, holder_of
from tailrace.log.reader import LogReader
from tailrace.source.bookmark import load_progress
from tailrace.source.phase import Phase

if TYPE_CHECKING:
    from tailrace.adaptor.options import ReaderOptions
    from tailrace.source.contract import Position

PASS_S: Final = 60.0
"""So long a writer may take to pass what was in the source."""
LOOK_EVERY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Pace:
    """One writer of one pipeline."""

    log: str
    source: ReaderOptions
    writer: str

    def runs(self) -> Holder | None:
        """The process that runs the pipeline."""
        return runs(self.log)

    def behind(self) -> int:
        """How many messages of the log the writer has not had."""
        consumers = Consumers(self.log)
        if self.writer not in consumers.names():
            return int(consumers.view.head().next_offset)
        end = int(consumers.view.head().next_offset)
        return max(0, end - 1 - consumers.position(consumers.get(self.writer)))

    def is_source_ahead(self) -> bool:
        """Whether the source has something that the log lacks: changes, or tables that are not copied yet."""
        progress = load_progress(LogReader(self.log))
        if progress.position is None or any(table.phase is Phase.COPY for table in progress.tables.values()):
            return True
        return not self._is_captured(self._position())

    def wait(self) -> bool:
        """Until the writer has what is in the source now; False when that does not happen, or the pipeline ended."""
        position = self._position()
        end: int | None = None
        give_up_s = time.monotonic() + PASS_S
        while time.monotonic() < give_up_s and self.runs() is not None:
            if end is None and self._is_captured(position):
                end = int(LogReader(self.log).next_offset)
            if end is not None and self._has_passed(end):
                return True
            time.sleep(LOOK_EVERY_S)
        return False

    def _position(self) -> Position:
        reader = self.source.open()
        try:
            return reader.position()
        finally:
            reader.close()

    def _is_captured(self, position: Position) -> bool:
        captured = load_progress(LogReader(self.log)).position
        if captured is None:
            return False
        reader = self.source.open()
        try:
            return not reader.plan_changes(captured, position)
        finally:
            reader.close()

    def _has_passed(self, end: int) -> bool:
        consumers = Consumers(self.log)
        return consumers.position(consumers.get(self.writer)) >= end - 1


def runs(log: str) -> Holder | None:
    """The process that writes a log, which is the one that runs its pipeline."""
    return holder_of(os.path.join(log, WRITER_LOCK_NAME))
