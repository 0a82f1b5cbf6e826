"""`tailrace demo`: the main job on embedded defaults."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    seconds: Annotated[float, typer.Option(help="How long the shop stays open.", min=0)] = 15,
    customers: Annotated[int, typer.Option(help="How many customers it has.", min=1)] = 2_000,
    orders: Annotated[int, typer.Option(help="How many orders it starts with.", min=1)] = 20_000,
    keep: Annotated[
        str | None, typer.Option(metavar="DIR", help="Keep everything here; by default it is removed at the end.")
    ] = None,
) -> None:
    """A shop's database that keeps changing, to a lake and a second database, live; then verified."""
    from tailrace.demo.pipeline import demonstrate

    demonstrate(seconds, customers, orders, keep)
