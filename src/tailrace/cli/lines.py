"""A run's progress as plain lines, for files and for terminals that are asked for no colour."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TextIO

from tailrace.cli.report import report_lines
from tailrace.cli.show import printable
from tailrace.source.phase import Phase
from tailrace.units import show_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.cli.sight import NamespaceSight, Sight, WriterSight
    from tailrace.errors import TailraceError
    from tailrace.pipeline.run import Summary

LINE_EVERY_S: Final = 10.0


class Lines:
    """A line for each part that has moved, every ten seconds, and at once when a copy ends or all is delivered."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown_s = time.monotonic()
        self._last: dict[str, str] = {}
        self._phases: dict[str, Phase] = {}
        self._has_waited = False

    def tell(self, line: str, level: str = "info", part: str = "run") -> None:
        print(line, file=self._stream, flush=True)

    def fail(self, error: TailraceError, part: str) -> None:
        for line in report_lines(error):
            self.tell(printable(line), "error", part)

    def show(self, sight: Sight) -> None:
        for each in sight.namespaces:
            if self._phases.get(each.namespace) is Phase.COPY and each.phase is not Phase.COPY:
                self._tell_news(f"namespace {each.namespace}", namespace_line(each))
            self._phases[each.namespace] = each.phase
        is_time = time.monotonic() - self._shown_s >= LINE_EVERY_S
        if is_time:
            self._shown_s = time.monotonic()
            self._tell_all(sight)
        if sight.is_waiting and (is_time or not self._has_waited):
            self._has_waited = True
            self.tell("waiting for changes")

    def finish(self, sight: Sight | None, summary: Summary, seconds: float) -> None:
        if sight is not None:
            self._tell_all(sight)
        for line in summary_lines(summary, seconds):
            self.tell(line)

    def close(self) -> None:
        self._stream.flush()

    def _tell_all(self, sight: Sight) -> None:
        for each in sight.namespaces:
            self._tell_news(f"namespace {each.namespace}", namespace_line(each))
        for writer in sight.writers:
            self._tell_news(f"writer {writer.name}", writer_line(writer))

    def _tell_news(self, part: str, line: str) -> None:
        if self._last.get(part) != line:
            self._last[part] = line
            self.tell(line, part=part)


def namespace_line(each: NamespaceSight) -> str:
    name = printable(each.namespace)
    if each.phase is not Phase.COPY:
        return f"{name}: {each.phase}, {each.captured:,} messages captured, {each.rate:,.0f}/s"
    done = f"{each.copied:,} rows"
    if each.rows:
        done = f"{each.copied:,} of about {each.rows:,} rows ({each.fraction or 0:.0%})"
    left = "" if each.left_s is None else f", {show_seconds(each.left_s)} left"
    return f"{name}: copy, {done}, {each.rate:,.0f}/s{left}"


def writer_line(writer: WriterSight) -> str:
    aside = f", {writer.aside:,} {writer.fate}" if writer.aside else ""
    behind = f"{writer.behind:,} messages behind" + (f" ({show_seconds(writer.behind_s)})" if writer.behind else "")
    return f"writer {writer.name}: {writer.written:,} written, {writer.rate:,.0f}/s, {behind}{aside}, {writer.state}"


def summary_lines(summary: Summary, seconds: float) -> Iterator[str]:
    """What a run has done, in the end."""
    captured = sum(summary.captured.values())
    yield f"captured {captured:,} messages, {_rate(captured, seconds)}"
    for name, written in summary.delivered.items():
        total = sum(written.values())
        yield f"writer {name}: {total:,} messages written, {_rate(total, seconds)}"
    yield f"ended at offset {summary.end - 1} after {show_seconds(summary.seconds)}"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds if seconds else 0:,.0f}/s"
