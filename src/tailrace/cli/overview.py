"""How the status model is printed: all commands that tell how something is print it with this, in the same words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from tailrace.cli.show import printable
from tailrace.cli.stat import table_console
from tailrace.observe.model import Health, Overview, Part, Wrong
from tailrace.units import show_bytes, show_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.observe.model import LogPart, NamespacePart, TreeNode

_COLOURS: Final = {Health.GOOD: "green", Health.WAITING: "bright_black", Health.TROUBLED: "yellow", Health.BAD: "red"}
_DEPTH_MAX: Final = 30
"""A chain of replicas that is longer goes on without being set in further."""


def print_overview(overview: Overview, *, as_json: bool) -> None:
    """All of it, once."""
    if as_json:
        print(json.dumps(overview.encode()))
    else:
        console = table_console()
        for block in blocks(overview):
            console.print(block, soft_wrap=isinstance(block, Text))


def blocks(overview: Overview, rows_max: int | None = None) -> list[Text | Table]:
    """As a terminal shows it; where there is no room for all, those come first that need somebody."""
    title = Text.assemble(printable(f"{overview.what} {overview.name}  "), _mark(overview.health))
    lines: list[Text | Table] = [title]
    lines += map(_line, filter(None, (overview.runs, overview.extra)))
    lines += map(_line, _log_lines(overview.log, overview.what))
    if phased := [each for each in overview.namespaces if each.phase is not None]:
        lines.append(_namespaces(phased[:rows_max], len(phased)))
    if overview.parts:
        lines.append(_parts(_first(overview.parts, rows_max), len(overview.parts)))
    lines += map(_line, _tree_lines(overview.tree[:rows_max], len(overview.tree)))
    lines += [Text(printable(line), style="red") for line in _trouble_lines(overview)]
    return lines


def _line(text: str) -> Text:
    return Text(printable(text))


def _log_lines(log: LogPart | None, what: str) -> Iterator[str]:
    if log is None:
        if what == "pipeline":
            yield "log   is not there yet; the first run makes it"
        return
    rate = "" if log.rate is None else f", {log.rate:,.1f}/s"
    size = f"{log.messages:,} messages, {show_bytes(log.bytes)}, offsets {log.oldest} to {log.next_offset - 1}"
    yield f"log   {log.directory}, {size}{rate}"
    for name, held in sorted(log.held_bytes.items()):
        yield f"held  {show_bytes(held)} by {name}"


def _namespaces(namespaces: list[NamespacePart], of: int) -> Table:
    table = Table("NAMESPACE", "PHASE", "ROWS COPIED", "PIECES COPIED", "MESSAGES")
    for each in namespaces:
        pieces = f"{each.pieces_copied} of {each.pieces}"
        table.add_row(_line(each.name), each.phase, each.copied, pieces, f"{each.messages:,}")
    return _captioned(table, of - len(namespaces))


def _first(parts: tuple[Part, ...], rows_max: int | None) -> list[Part]:
    if rows_max is None or len(parts) <= rows_max:
        return list(parts)
    return sorted(parts, key=lambda part: -list(Health).index(part.health))[:rows_max]


def _parts(parts: list[Part], of: int) -> Table:
    names = ("KIND", "NAME", "HEALTH", "STATE", "POSITION", "LAG", "LAG BYTES", "LAG TIME", "RATE", "SEEN", "WHERE")
    table = Table(*names)
    for part in parts:
        lag = part.lag
        table.add_row(
            part.kind,
            _line(part.name),
            _mark(part.health),
            Text("\n".join(map(printable, filter(None, (part.state, part.extra))))),
            "" if part.position is None else str(part.position),
            "" if lag is None else str(lag.messages),
            "" if lag is None or lag.bytes is None else show_bytes(lag.bytes),
            "" if lag is None or lag.seconds is None else show_seconds(lag.seconds),
            "" if part.rate is None else f"{part.rate:,.1f}/s",
            part.seen,
            _line(part.where),
        )
    return _captioned(table, of - len(parts))


def _captioned(table: Table, more: int) -> Table:
    if more:
        table.caption = f"and {more} more: --json has all"
    return table


def _tree_lines(tree: tuple[TreeNode, ...], of: int) -> Iterator[str]:
    """Each node below the one that it copies from."""
    if not tree:
        return
    yield f"topology of {of:,} nodes"
    below: dict[str | None, list[TreeNode]] = {}
    known = {node.name for node in tree}
    for node in tree:
        below.setdefault(node.below if node.below in known else None, []).append(node)
    waiting = [(node, 1) for node in reversed(below.get(None, []))]
    while waiting:
        node, depth = waiting.pop()
        yield f"{'  ' * min(depth, _DEPTH_MAX)}{node.name}  {node.health}, {node.told}"
        waiting += [(each, depth + 1) for each in reversed(below.get(node.name, []))]
    if of > len(tree):
        yield f"  and {of - len(tree)} more: --json has all"


def _trouble_lines(overview: Overview) -> Iterator[str]:
    """What is wrong, each with its cure."""
    for wrong in overview.wrong:
        yield from _wrong(f"{overview.what} {overview.name}", wrong)
    for part in overview.parts:
        if part.wrong is not None:
            yield from _wrong(f"{part.kind} {part.name}", part.wrong)
        elif (stuck := part.stuck) is not None:
            ago = f"{show_seconds(stuck.age_s)} ago"
            yield f"{part.kind} {part.name} could not write {stuck.which}, {ago}: {stuck.what}"


def _wrong(who: str, wrong: Wrong) -> Iterator[str]:
    age = "" if wrong.age_s is None else f", {show_seconds(wrong.age_s)} ago"
    yield f"{who}: {wrong.what} ({wrong.code}{age})"
    first, *others = wrong.cure.split("\n")
    if wrong.cure:
        yield f"  next: {first}"
        yield from (f"        {line}" for line in others)


def _mark(health: Health) -> Text:
    return Text(str(health), style=_COLOURS[health])
