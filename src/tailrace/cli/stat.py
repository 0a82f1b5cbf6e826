"""How the state of a log is printed."""

from __future__ import annotations

import sys
import time
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tailrace.cli.show import printable
from tailrace.log.stat import ConsumerStat, LogStat
from tailrace.message import Micros, moment
from tailrace.units import show_bytes, show_seconds

_WIDTH: Final = 200


def table_console() -> Console:
    """Tables are cut to the terminal's width, and to nothing when a program reads them."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def print_stat(found: LogStat) -> None:
    console = table_console()
    console.print(f"log        {escape(found.directory)}", highlight=False, soft_wrap=True)
    console.print(
        f"offsets    {found.oldest} to {found.next_offset - 1}, {found.messages} messages, {show_bytes(found.bytes)}",
        highlight=False,
    )
    console.print(f"writer     {found.writer or 'none'}", highlight=False)
    console.print(_segments(found))
    console.print(_namespaces(found))
    if found.consumers:
        console.print(consumer_table(found.consumers))
    for batch_id, size in found.staged.items():
        console.print(f"staged, not published: {escape(batch_id)} ({show_bytes(size)})", highlight=False)


def consumer_table(consumers: list[ConsumerStat]) -> Table:
    table = Table("CONSUMER", "STATE", "HOLD", "POSITION", "LAG", "LAG BYTES", "LAG TIME", "SEEN")
    for consumer in consumers:
        seen = "now" if consumer.in_use else f"{show_seconds(max(0.0, time.time() - consumer.seen_s))} ago"
        table.add_row(
            escape(consumer.name),
            consumer.state,
            consumer.hold,
            str(consumer.position),
            str(consumer.lag.messages),
            show_bytes(consumer.lag.bytes),
            show_seconds(consumer.lag.seconds),
            seen,
        )
    return table


def _segments(found: LogStat) -> Table:
    table = Table("SEGMENT", "MESSAGES", "FRAMES", "SIZE", "LATEST MESSAGE", "KEPT BECAUSE")
    for segment in found.segments:
        fate = segment.fate
        table.add_row(
            f"{fate.base} to {fate.end - 1}" if fate.end > fate.base else f"{fate.base}, empty",
            str(segment.messages),
            str(segment.frames),
            show_bytes(fate.bytes),
            f"{moment(Micros(segment.latest)):%Y-%m-%d %H:%M:%SZ}" if segment.latest is not None else "",
            escape(fate.reason or "nobody needs it"),
        )
    return table


def _namespaces(found: LogStat) -> Table:
    table = Table("NAMESPACE", "FIRST", "LAST", "MESSAGES", "SIZE")
    for name, presence in sorted(found.namespaces.items()):
        row = (presence.first, presence.last, presence.messages)
        table.add_row(escape(printable(name)), *map(str, row), show_bytes(presence.bytes))
    return table
