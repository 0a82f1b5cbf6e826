"""`tailrace status`: how a pipeline is, by what its log says."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from tailrace.cli.check import PipelineArgument
from tailrace.cli.options import JsonOption
from tailrace.cli.report import report_lines, report_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from tailrace.pipeline.failures import Failure
    from tailrace.pipeline.status import LogStatus, PipelineStatus


def status(file: PipelineArgument, as_json: JsonOption = False) -> None:
    """Print whether a pipeline runs, how far everything is and what is wrong; it works while the pipeline runs."""
    from tailrace.pipeline.load import load
    from tailrace.pipeline.status import status as find

    found = find(load(file))
    if as_json:
        print(json.dumps(asdict(found), default=report_object))
    else:
        _print(found)


def _print(found: PipelineStatus) -> None:
    from rich.markup import escape

    from tailrace.cli.show import printable
    from tailrace.cli.stat import table_console

    console = table_console()
    runs = f"run by {found.running}" if found.running else "not running"
    lines = [f"pipeline   {found.pipeline}, {runs}", *_log_lines(found.log)]
    for line in lines:
        console.print(escape(printable(line)), highlight=False, soft_wrap=True)
    if found.namespaces:
        console.print(_namespaces(found))
    console.print(_writers(found))
    for line in _troubles(found):
        console.print(escape(printable(line)), highlight=False, soft_wrap=True)


def _log_lines(log: LogStatus | None) -> Iterator[str]:
    from tailrace.units import show_bytes

    if log is None:
        yield "log        is not there yet; the first run makes it"
        return
    size = f"{log.messages} messages, {show_bytes(log.bytes)}, offsets {log.oldest} to {log.next_offset - 1}"
    yield f"log        {log.directory}, {size}"
    for name, held in sorted(log.held_bytes.items()):
        yield f"held       {show_bytes(held)} by {name}"


def _namespaces(found: PipelineStatus) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from tailrace.cli.show import printable

    table = Table("NAMESPACE", "PHASE", "ROWS COPIED", "PIECES COPIED")
    for each in found.namespaces:
        about = "" if each.rows is None else f" of about {each.rows}"
        pieces = f"{each.pieces_done} of {each.pieces}"
        table.add_row(escape(printable(each.namespace)), each.phase, f"{each.rows_copied}{about}", pieces)
    return table


def _writers(found: PipelineStatus) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from tailrace.cli.show import printable
    from tailrace.units import show_bytes, show_seconds

    table = Table("WRITER", "TO", "STATE", "POSITION", "LAG", "LAG BYTES", "LAG TIME", "DEAD LETTERS", "SEEN")
    for each in found.writers:
        table.add_row(
            escape(each.name),
            escape(printable(f"{each.adaptor} {each.where}")),
            each.state,
            str(each.position),
            str(each.lag.messages),
            show_bytes(each.lag.bytes),
            show_seconds(each.lag.seconds),
            str(each.dead_letters),
            "never" if each.seen_s_ago is None else f"{show_seconds(each.seen_s_ago)} ago",
        )
    return table


def _troubles(found: PipelineStatus) -> Iterator[str]:
    """What is wrong, each with its cure."""
    if found.failure is not None:
        yield from _failure("the last run", found.failure)
    if found.reader.failure is not None:
        yield from _failure(f"reader {found.reader.adaptor} {found.reader.where}", found.reader.failure)
    for writer in found.writers:
        if writer.invalidated is not None:
            yield f"writer {writer.name} cannot go on: {writer.invalidated}"
        if writer.failure is not None:
            yield from _failure(f"writer {writer.name}", writer.failure)
        elif (trouble := writer.trouble) is not None:
            which = f"offset {trouble.first}" if trouble.is_single else f"offsets {trouble.first} to {trouble.last}"
            yield f"writer {writer.name} could not write {which}: {trouble.error}"


def _failure(who: str, failure: Failure) -> Iterator[str]:
    from tailrace.units import show_seconds

    yield f"{who} failed {show_seconds(max(0.0, time.time() - failure.at_s))} ago:"
    yield from (f"  {line}" for line in report_lines(failure.error))
