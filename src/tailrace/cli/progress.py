"""Progress: a bar on a terminal, a line every ten seconds elsewhere, always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.units import show_bytes

LINE_EVERY_S: Final = 10.0

Report = Callable[[int, int], None]


@contextmanager
def progress(what: str, show: Callable[[int], str], *, quiet: bool = False) -> Iterator[Report]:
    """Gives a function that is told how much of how much is done."""
    if quiet:
        yield lambda done, total: None
    elif sys.stderr.isatty():
        with _bar(what, show) as report:
            yield report
    else:
        yield _lines(what, show)


@contextmanager
def byte_progress(what: str, *, quiet: bool = False) -> Iterator[Report]:
    with progress(what, show_bytes, quiet=quiet) as report:
        yield report


@contextmanager
def _bar(what: str, show: Callable[[int], str]) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[shown]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None, shown="")

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, shown=f"{show(done)} of {show(total)}")

        yield report


def _lines(what: str, show: Callable[[int], str]) -> Report:
    last_s = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= LINE_EVERY_S:
            last_s = time.monotonic()
            print(f"{what}: {show(done)} of {show(total)}", file=sys.stderr, flush=True)

    return report
