"""`tailrace log …`: look at a log, check it, compact it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.options import (
    DestinationOption,
    JsonOption,
    LogOption,
    NamespaceOption,
    ReasonOption,
    YesOption,
    confirm,
)
from tailrace.errors import Exit, Place, TailraceError
from tailrace.namespace import namespace_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailrace.log.selection import SelectedFrame

app = typer.Typer(help="Look at a log, check it, compact it.", no_args_is_help=True)


@app.command()
def current(log: LogOption, as_json: JsonOption = False) -> None:
    """Print the offset of the newest message, -1 when there is none."""
    from tailrace.log.reader import LogReader

    _print_number("current", LogReader(log).next_offset - 1, as_json)


@app.command()
def oldest(log: LogOption, as_json: JsonOption = False) -> None:
    """Print the offset at which the log begins."""
    from tailrace.log.reader import LogReader

    _print_number("oldest", LogReader(log).oldest, as_json)


@app.command()
def show(
    log: LogOption,
    first: Annotated[
        int | None,
        typer.Argument(metavar="[FROM]", help="The first offset; with --namespace or --destination, all if left out."),
    ] = None,
    last: Annotated[int | None, typer.Argument(metavar="[TO]", help="The last offset; FROM when left out.")] = None,
    namespace: NamespaceOption = None,
    destination: DestinationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print messages, one block each, or one JSON object a line."""
    from tailrace.log.reader import LogReader
    from tailrace.log.selection import Selection

    reader = LogReader(log)
    newest = reader.next_offset - 1
    if first is None:
        if namespace is None and destination is None:
            what = "nothing says which messages are wanted"
            raise TailraceError("input.invalid", what, hint="tailrace log show FROM, or give --namespace")
        first, last = reader.oldest, newest
    last = first if last is None else last
    if max(first, last) > newest:
        what = f"offset {max(first, last)} is past the end of the log, the newest is {newest}"
        raise TailraceError("log.past_end", what, place=Place(reader.directory), hint="tailrace log current")
    if last < first:
        what = f"the range from {first} to {last} runs backwards"
        hint = f"tailrace log show {last} {first}"
        raise TailraceError("log.bad_range", what, place=Place(reader.directory), hint=hint)
    end = last + 1
    selection = Selection(namespace=namespace_pattern(namespace), destination=destination)
    shown = _print_frames(reader.frames(first, end, selection), as_json)
    if not shown:
        following = next(reader.entries(first, None, selection), None)
        where = f"; the next is {following.offset}" if following else ""
        raise TailraceError(
            "log.bad_range",
            f"no such message from {first} to {last}: none matches, or they were compacted away{where}",
            place=Place(reader.directory),
            hint=f"tailrace log show {following.offset}" if following else "tailrace log stat",
        )


@app.command()
def tail(
    log: LogOption,
    start: Annotated[
        int | None, typer.Option("--from", metavar="OFFSET", help="Begin here; by default with the next message.")
    ] = None,
    namespace: NamespaceOption = None,
    destination: DestinationOption = None,
    idle: Annotated[str | None, typer.Option(metavar="TIME", help="End when nothing came for so long.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print messages as they are appended, until Ctrl-C."""
    from tailrace.log.reader import LogReader
    from tailrace.log.selection import Selection
    from tailrace.units import parse_seconds

    reader = LogReader(log)
    begin = reader.next_offset if start is None else start
    selection = Selection(namespace=namespace_pattern(namespace), destination=destination)
    print(f"waiting for messages from offset {begin} on", file=sys.stderr)
    frames = reader.tail(begin, selection, idle_s=None if idle is None else parse_seconds(idle))
    _print_frames(frames, as_json)


@app.command()
def stat(log: LogOption, as_json: JsonOption = False) -> None:
    """Print what is in the log: segments and who holds them, namespaces, consumers, staged batches."""
    from tailrace.cli.stat import print_stat
    from tailrace.log.stat import stat as collect

    found = collect(log)
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        print_stat(found)


@app.command()
def verify(log: LogOption, as_json: JsonOption = False) -> None:
    """Read everything, check every checksum and every message, and name the damage in every segment."""
    from tailrace.cli.progress import byte_progress
    from tailrace.log.verification import verify as check

    with byte_progress("verifying", quiet=as_json) as progress:
        result = check(log, progress)
    if as_json:
        print(
            json.dumps(
                {
                    "ok": not result.problems,
                    "segments": result.segments,
                    "frames": result.frames,
                    "messages": result.messages,
                    "bytes": result.bytes,
                    "problems": [str(problem) for problem in result.problems],
                    "remarks": result.remarks,
                }
            )
        )
    else:
        print(f"{result.messages} messages in {result.frames} frames and {result.segments} segments were read")
        for remark in result.remarks:
            print(f"remark: {remark}")
        for problem in result.problems:
            print(f"damage: {problem.what} ({problem.place})")
        print("the log is damaged" if result.problems else "the log is sound")
    if result.problems:
        print("  next: restore the segment from a replica, or: tailrace log repair", file=sys.stderr)
        raise typer.Exit(Exit.RUNTIME)


@app.command()
def repair(log: LogOption, reason: ReasonOption, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Cut a damaged log at the damage. What follows is moved aside and is lost to consumers."""
    from tailrace.log.repair import cut, find_damage
    from tailrace.units import show_bytes

    damage = find_damage(log)
    if damage is None:
        print(json.dumps({"damaged": False}) if as_json else "the log is sound, nothing was changed")
        return
    print(f"damage: {damage.problem.what} ({damage.problem.place})", file=sys.stderr)
    lost = show_bytes(damage.lost_bytes)
    confirm(f"Cut {log} at offset {damage.next_offset} and move {lost} aside?", yes=yes)
    aside = cut(log, damage, reason=reason)
    if as_json:
        answer = {"damaged": True, "next_offset": damage.next_offset, "lost_bytes": damage.lost_bytes, "aside": aside}
        print(json.dumps(answer))
    else:
        print(f"the log now ends before offset {damage.next_offset}; {lost} are in {aside}")


@app.command()
def compact(
    log: LogOption,
    by: Annotated[str, typer.Option(metavar="namespace|key", help="Of what the last message stays.")] = "namespace",
    upto: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", help="Remove nothing after this offset.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove what every consumer has had from sealed segments, but for the last message of each namespace or key."""
    from tailrace.cli.progress import byte_progress
    from tailrace.log.compaction import By
    from tailrace.log.compaction import compact as run
    from tailrace.units import show_bytes

    if by not in list(By):
        raise TailraceError(
            "input.invalid", f"--by {by} is unknown", hint="tailrace log compact --by namespace, or --by key"
        )
    with byte_progress("compacting", quiet=as_json) as progress:
        result = run(log, by=By(by), upto=upto, progress=progress)
    before = sum(segment.bytes_before for segment in result.segments)
    after = sum(segment.bytes_after for segment in result.segments)
    removed = sum(segment.messages_before - segment.messages_after for segment in result.segments)
    if as_json:
        print(json.dumps({**asdict(result), "messages_removed": removed, "bytes_freed": before - after}))
        return
    print(f"{len(result.segments)} of {result.looked_at} sealed segments became shorter: {removed} messages removed")
    print(f"{show_bytes(before)} became {show_bytes(after)}")
    if result.held_by:
        print(f"held back by: {', '.join(result.held_by)}")
    if not result.has_consumers and upto is None:
        print("there is no consumer, so nobody can have had the messages; --to OFFSET removes them all the same")


@app.command()
def retain(
    log: LogOption,
    keep_bytes: Annotated[str, typer.Option(metavar="SIZE", help="Keep at least so much of the end.")] = "0",
    keep_age: Annotated[str, typer.Option(metavar="TIME", help="Keep segments with messages not older.")] = "0s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove sealed segments that nobody holds, and say for every other who holds it."""
    from tailrace.log.consumers import Consumers
    from tailrace.log.retention import Keep, Retention, past_caps, plan
    from tailrace.log.retention import retain as run
    from tailrace.units import parse_bytes, parse_seconds, show_bytes

    keep = Keep(parse_bytes(keep_bytes), parse_seconds(keep_age))
    if dry_run:
        consumers = Consumers(log)
        invalidated = past_caps(consumers)
        fates = plan(consumers, keep, released=invalidated)
        result = Retention(
            removed=[fate for fate in fates if fate.is_removable],
            kept=[fate for fate in fates if not fate.is_removable],
            invalidated=invalidated,
        )
    else:
        result = run(log, keep=keep)
    if as_json:
        print(json.dumps({**asdict(result), "freed_bytes": result.freed_bytes, "dry_run": dry_run}))
        return
    for name, why in result.invalidated.items():
        print(f"ALARM: consumer {name} {'would be' if dry_run else 'is'} invalidated: {why}")
    for fate in result.removed:
        print(f"{'would remove' if dry_run else 'removed'} {fate.base}-{fate.end - 1} ({show_bytes(fate.bytes)})")
    for fate in result.kept:
        print(f"kept {fate.base}-{fate.end - 1} ({show_bytes(fate.bytes)}): {fate.reason}")


@app.command()
def demo(
    messages: Annotated[int, typer.Option(help="How many messages.", min=1000)] = 1_000_000,
    log: Annotated[
        str | None, typer.Option("--log", metavar="DIR", help="Keep the log here; by default it is removed at the end.")
    ] = None,
) -> None:
    """Write a million messages, read them back, compact, and show the log."""
    from tailrace.demo.log import run

    run(messages, log)


def _print_number(name: str, number: int, as_json: bool) -> None:
    print(json.dumps({name: number}) if as_json else number)


def _print_frames(frames: Iterable[SelectedFrame], as_json: bool) -> bool:
    from tailrace.cli import show

    shown = False
    for frame in frames:
        for entry in frame.entries():
            if as_json:
                print(show.compact_json(show.as_json(entry)), flush=True)
            else:
                print(("\n" if shown else "") + show.as_block(entry, show.stored_text(frame)), end="", flush=True)
            shown = True
    return shown
