"""`tailrace demo`: the main job on embedded defaults."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    messages: Annotated[int, typer.Option(help="How many messages.", min=1000)] = 1_000_000,
    log: Annotated[
        str | None, typer.Option("--log", metavar="DIR", help="Keep the log here; by default it is removed at the end.")
    ] = None,
) -> None:
    """Write a million messages, read them back, compact, and show the log."""
    from tailrace.demo.log import run

    run(messages, log)
