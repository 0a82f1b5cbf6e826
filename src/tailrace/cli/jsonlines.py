"""A run's progress as JSON lines, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.cli.jsonlog import error_line, log_line
from tailrace.cli.lines import Lines

if TYPE_CHECKING:
    from tailrace.errors import TailraceError


class JsonLines(Lines):
    """An object for each line, as often as it is told in plain ones."""

    def tell(self, line: str, level: str = "info", part: str = "run") -> None:
        print(log_line(line, level=level, part=part), file=self._stream, flush=True)

    def fail(self, error: TailraceError, part: str) -> None:
        print(error_line(error, part), file=self._stream, flush=True)
