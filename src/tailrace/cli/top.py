"""`tailrace top`: the status page in a terminal, live."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import JsonOption, LookedAtArgument

if TYPE_CHECKING:
    from rich.console import RenderableType

_ROWS_MAX = 40


def top(
    file: LookedAtArgument,
    every: Annotated[float, typer.Option(help="Look again after so many seconds.", min=0.2)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show everything that a pipeline or a node does, live: state, position, lag, rate, and what is wrong."""
    from tailrace.cli.overview import blocks, print_overview
    from tailrace.observe.looking import look_at

    look = look_at(file)
    if as_json:
        print_overview(look(), as_json=True)
        return

    from rich.console import Group
    from rich.live import Live

    from tailrace.cli.stat import table_console
    from tailrace.observe.history import History

    history = History()
    console = table_console()

    def seen() -> RenderableType:
        found = look()
        history.add(found)
        return Group(*blocks(history.rated(found), _ROWS_MAX))

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
