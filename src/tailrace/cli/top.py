"""`tailrace top`: the status page in a terminal, live."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import JsonOption, LookedAtArgument
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from rich.console import Console

    from tailrace.observe.looking import Look

_ONCE_LINES = 60
"""Where there is no screen that has a size."""


def top(
    file: LookedAtArgument,
    every: Annotated[float, typer.Option(help="Look again after so many seconds.", min=0.2)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show everything that a pipeline or a node does, live: state, position, lag, rate, and what is wrong."""
    from rich.console import Group

    from tailrace.cli.overview import print_overview
    from tailrace.cli.screen import screen
    from tailrace.cli.stat import table_console
    from tailrace.observe.looking import look_at

    look, console = look_at(file), table_console()
    if as_json:
        print_overview(look(), as_json=True)
    elif once or not sys.stdout.isatty():
        console.print(Group(*screen(look(), console, _ONCE_LINES)))
    else:
        _watch(look, console, every)


def _watch(look: Look, console: Console, every_s: float) -> None:
    """Until Ctrl-C. What was seen once stays while it cannot be looked at."""
    from rich.console import Group
    from rich.live import Live

    from tailrace.cli.screen import screen
    from tailrace.observe.history import History

    history = History()
    found, error = look(), None
    with Live(console=console, screen=True, auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while True:
            if error is None:
                history.add(found)
            shown = screen(history.rated(found), console, console.height, error)
            live.update(Group(*shown), refresh=True)
            time.sleep(every_s)
            try:
                found, error = look(), None
            except TailraceError as failed:
                error = failed
