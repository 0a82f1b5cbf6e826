"""One screen of the status model: what needs somebody comes first, the others have what room is left."""

from __future__ import annotations

import time
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from rich.text import Text

from tailrace.cli.overview import (
    head_lines,
    namespaces_table,
    parts_table,
    phased_namespaces,
    tree_lines,
    trouble_line,
    trouble_lines,
)
from tailrace.observe.model import Health
from tailrace.units import show_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import Console
    from rich.table import Table

    from tailrace.errors import TailraceError
    from tailrace.observe.model import Overview


def screen(
    overview: Overview, console: Console, lines_max: int, error: TailraceError | None = None
) -> list[Text | Table]:
    """As much as there are lines for. `error` is what keeps it from being seen as it is now."""
    sheet = _Sheet(console, lines_max)
    sheet.lines(head_lines(overview))
    if error is not None:
        age = show_seconds(max(0.0, time.time() - overview.at_s))
        sheet.lines([trouble_line(f"all this is {age} old, it cannot be looked at: {error.what} ({error.code})")])
    sheet.lines(trouble_lines(overview), room=sheet.room // 2)
    worst_first = sorted(overview.parts, key=lambda part: -list(Health).index(part.health))
    count = len(worst_first)

    def parts(rows: int) -> Table:
        return parts_table(overview.parts if rows == count else worst_first[:rows], count, console)

    phased = phased_namespaces(overview)
    sheet.table(parts, count)
    sheet.table(lambda rows: namespaces_table(phased[:rows], len(phased)), len(phased))
    sheet.lines(tree_lines(overview.tree))
    return sheet.blocks


class _Sheet:
    """A terminal that is filled from above."""

    def __init__(self, console: Console, lines_max: int) -> None:
        self._console = console
        self.blocks: list[Text | Table] = []
        self.room = lines_max

    def lines(self, lines: Iterable[Text], room: int | None = None) -> None:
        """Those that fit in, and whether there are more."""
        left = self.room if room is None else room
        if left < 1:
            return
        found = list(islice(lines, left + 1))
        heights = [self._height(line) for line in found]
        if sum(heights) <= left:
            self._put(*found)
            return
        fitting = [line for line, end in zip(found, accumulate(heights), strict=True) if end < left]
        self._put(*fitting, Text("and more: tailrace status has all", style="italic"))

    def table(self, make: Callable[[int], Table], rows: int) -> None:
        """One of as many rows as fit in."""
        rows = min(rows, self.room)
        while rows > 0:
            made = make(rows)
            over = self._height(made) - self.room
            if over <= 0:
                self._put(made)
                return
            rows -= max(1, over // 3)  # a row may have several lines

    def _put(self, *blocks: Text | Table) -> None:
        self.blocks += blocks
        self.room -= sum(map(self._height, blocks))

    def _height(self, block: Text | Table) -> int:
        return len(self._console.render_lines(block, pad=False))
