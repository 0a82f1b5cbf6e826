"""`tailrace top`: the status page in a terminal, live."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from tailrace.observe.model import Health, Overview, Part

_COLOURS = {"good": "green", "waiting": "bright_black", "troubled": "yellow", "bad": "red"}
_ROWS_MAX = 40
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE.yml", help="A pipeline file or a node file.", show_default=False)
]


def top(
    file: FileArgument,
    every: Annotated[float, typer.Option(help="Look again after so many seconds.", min=0.2)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show everything that a pipeline or a node does, live: state, position, lag, rate, and what is wrong."""
    from tailrace.observe.history import History
    from tailrace.observe.looking import look_at

    look = look_at(file)
    if as_json:
        found = look()
        print(json.dumps({**asdict(found), "health": found.health}))
        return

    from rich.live import Live

    from tailrace.cli.stat import table_console

    history = History()
    console = table_console()

    def seen() -> RenderableType:
        found = look()
        history.add(found)
        return _shown(history.rated(found))

    if once or not sys.stdout.isatty():
        console.print(seen())
        return
    with Live(seen(), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every)
                live.update(seen(), refresh=True)
        except KeyboardInterrupt:
            return


def _shown(overview: Overview) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    lines: list[RenderableType] = [Text.assemble(f"{overview.what} {overview.name}  ", _mark(overview.health))]
    lines.append(Text(_printable(overview.runs)))
    lines += [Text(_printable(line)) for line in _log_lines(overview)]
    if overview.parts:
        lines.append(_table(overview.parts))
    lines += [Text(_printable(line), style="red") for line in _troubles(overview)]
    return Group(*lines)


def _log_lines(overview: Overview) -> Iterator[str]:
    from tailrace.units import show_bytes

    log = overview.log
    if log is not None:
        rate = "" if log.rate is None else f", {log.rate:,.1f}/s"
        offsets = f"offsets {log.oldest} to {log.next_offset - 1}"
        yield f"log {log.messages:,} messages, {show_bytes(log.bytes)}, {offsets}{rate}"


def _table(parts: tuple[Part, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from tailrace.units import show_bytes, show_seconds

    table = Table("KIND", "NAME", "HEALTH", "STATE", "POSITION", "LAG", "LAG BYTES", "LAG TIME", "RATE", "SEEN")
    for part in _shown_first(parts)[:_ROWS_MAX]:
        lag = part.lag
        table.add_row(
            part.kind,
            Text(_printable(part.name)),
            _mark(part.health),
            Text(_printable(part.state)),
            "" if part.position is None else str(part.position),
            "" if lag is None else str(lag.messages),
            "" if lag is None or lag.bytes is None else show_bytes(lag.bytes),
            "" if lag is None or lag.seconds is None else show_seconds(lag.seconds),
            "" if part.rate is None else f"{part.rate:,.1f}/s",
            part.seen,
        )
    if len(parts) > _ROWS_MAX:
        table.caption = f"and {len(parts) - _ROWS_MAX} more: --json has all"
    return table


def _shown_first(parts: tuple[Part, ...]) -> list[Part]:
    """Where there is no room for all, those come first that need somebody."""
    from tailrace.observe.model import Health

    if len(parts) <= _ROWS_MAX:
        return list(parts)
    return sorted(parts, key=lambda part: -list(Health).index(part.health))


def _troubles(overview: Overview) -> Iterator[str]:
    for wrong in overview.wrong:
        yield f"{wrong.what} ({wrong.code}). {wrong.cure}"
    for part in overview.parts:
        if part.stuck is not None:
            yield f"{part.kind} {part.name} could not write {part.stuck.which}: {part.stuck.what}"
        if part.wrong is not None:
            yield f"{part.kind} {part.name}: {part.wrong.what} ({part.wrong.code}). {part.wrong.cure}"


def _mark(health: Health) -> Text:
    from rich.text import Text

    return Text(str(health), style=_COLOURS[health])


def _printable(text: str) -> str:
    from tailrace.cli.show import printable

    return printable(text)
