"""A run's progress on a terminal: a bar for each namespace, a line for each writer, redrawn in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tailrace.cli.lines import summary_lines
from tailrace.cli.report import report_lines
from tailrace.cli.show import printable
from tailrace.source.phase import Phase
from tailrace.units import show_seconds

if TYPE_CHECKING:
    from tailrace.cli.sight import NamespaceSight, Sight, WriterSight
    from tailrace.errors import TailraceError
    from tailrace.pipeline.run import Summary

NAMESPACES_MAX: Final = 12
"""So many are shown; those that are being copied come first."""
_BAR_WIDTH: Final = 20
_STYLES: Final = {"stopped": "red", "running": "green"}


class Bars:
    """A live picture below the lines that stay."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)
        self._live: Live | None = None

    def tell(self, line: str, level: str = "info", part: str = "run") -> None:
        style = "red" if level == "error" and line.startswith("error ") else ""
        self._console.print(Text(line, style=style), highlight=False, soft_wrap=True)

    def fail(self, error: TailraceError, part: str) -> None:
        for line in report_lines(error):
            self.tell(printable(line), "error", part)

    def show(self, sight: Sight) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
            self._console.show_cursor(True)  # a second Ctrl-C leaves nobody to do it
        self._live.update(picture(sight), refresh=True)

    def finish(self, sight: Sight | None, summary: Summary, seconds: float) -> None:
        self.close()
        self._console.print(Panel(Text("\n".join(summary_lines(summary, seconds))), expand=False))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def picture(sight: Sight) -> Group:
    """Everything that is to be seen, for a terminal."""
    ordered = sorted(sight.namespaces, key=lambda each: (each.phase is not Phase.COPY, -each.rate, each.namespace))
    namespaces = _grid("namespace", "phase", "", "done", "rate", "left")
    for each in ordered[:NAMESPACES_MAX]:
        namespaces.add_row(*_namespace(each))
    if len(ordered) > NAMESPACES_MAX:
        namespaces.add_row(f"and {len(ordered) - NAMESPACES_MAX} more")
    writers = _grid("writer", "state", "written", "rate", "behind")
    for writer in sight.writers:
        writers.add_row(*_writer(writer))
    waiting = [Text("waiting for changes", style="dim")] if sight.is_waiting else []
    return Group(namespaces, writers, *waiting)


def _grid(*headers: str) -> Table:
    return Table(*headers, box=None, header_style="dim", pad_edge=False)


def _namespace(each: NamespaceSight) -> tuple[str | ProgressBar, ...]:
    name, rate = escape(printable(each.namespace)), f"{each.rate:,.0f}/s"
    if each.phase is not Phase.COPY:
        return name, each.phase, "", f"{each.captured:,} messages", rate, ""
    fraction = each.fraction
    bar = ProgressBar(total=None if fraction is None else 1.0, completed=fraction or 0.0, width=_BAR_WIDTH)
    done = (
        f"{each.copied:,} rows" if fraction is None else f"{each.copied:,} of about {each.rows:,} rows, {fraction:.0%}"
    )
    return name, each.phase, bar, done, rate, "" if each.left_s is None else show_seconds(each.left_s)


def _writer(writer: WriterSight) -> tuple[str | Text, ...]:
    behind = f"{writer.behind:,} messages, {show_seconds(writer.behind_s)}" if writer.behind else "nothing"
    aside = f", {writer.aside:,} {writer.fate}" if writer.aside else ""
    state = Text(writer.state, style=_STYLES.get(writer.state, ""))
    return escape(writer.name), state, f"{writer.written:,} messages{aside}", f"{writer.rate:,.0f}/s", behind
