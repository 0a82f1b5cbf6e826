"""How the status model is printed: all commands that tell how something is print it with this, in the same words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from tailrace.cli.show import printable
from tailrace.cli.stat import table_console
from tailrace.observe.model import Health, Overview, Part, Wrong
from tailrace.units import show_bytes, show_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from tailrace.observe.model import LogPart, NamespacePart, TreeNode

_COLOURS: Final = {Health.GOOD: "green", Health.WAITING: "bright_black", Health.TROUBLED: "yellow", Health.BAD: "red"}
_COLUMNS: Final = (
    "KIND", "NAME", "HEALTH", "STATE", "POSITION", "LAG", "LAG BYTES", "LAG TIME", "RATE", "SEEN", "WHERE",
)  # fmt: skip
_SPARED: Final = ("WHERE", "LAG BYTES", "POSITION", "SEEN", "RATE", "LAG TIME", "KIND")
"""What a narrow terminal goes without, the first of them first."""
_WIDTH_MAX: Final = 10_000
_DEPTH_MAX: Final = 30
"""A chain of replicas that is longer goes on without being set in further."""


def print_overview(overview: Overview, *, as_json: bool) -> None:
    """All of it, once; what is wrong last, where one looks first."""
    if as_json:
        print(json.dumps(overview.encode()))
        return
    console = table_console()
    blocks: list[Text | Table] = [*head_lines(overview), *_held_lines(overview.log)]
    if phased := phased_namespaces(overview):
        blocks.append(namespaces_table(phased, len(phased)))
    if overview.parts:
        blocks.append(parts_table(overview.parts, len(overview.parts), console))
    for block in (*blocks, *tree_lines(overview.tree), *trouble_lines(overview)):
        console.print(block, soft_wrap=isinstance(block, Text))


def head_lines(overview: Overview) -> list[Text]:
    """What it is, whether it runs, and its log."""
    title = Text.assemble(printable(f"{overview.what} {overview.name}  "), _mark(overview.health))
    said = filter(None, (overview.runs, overview.extra, _log_line(overview.log, overview.what)))
    return [title, *map(_line, said)]


def phased_namespaces(overview: Overview) -> list[NamespacePart]:
    """Those that are copied."""
    return [each for each in overview.namespaces if each.phase is not None]


def _line(text: str) -> Text:
    return Text(printable(text))


def _log_line(log: LogPart | None, what: str) -> str:
    if log is None:
        return "log   is not there yet; the first run makes it" if what == "pipeline" else ""
    rate = "" if log.rate is None else f", {log.rate:,.1f}/s"
    size = f"{log.messages:,} messages, {show_bytes(log.bytes)}, offsets {log.oldest} to {log.next_offset - 1}"
    return f"log   {log.directory}, {size}{rate}"


def _held_lines(log: LogPart | None) -> Iterator[Text]:
    for name, held in sorted({} if log is None else log.held_bytes.items()):
        yield _line(f"held  {show_bytes(held)} by {name}")


def namespaces_table(namespaces: Sequence[NamespacePart], of: int) -> Table:
    """Some of so many."""
    table = Table("NAMESPACE", "PHASE", "ROWS COPIED", "PIECES COPIED", "MESSAGES")
    for each in namespaces:
        pieces = f"{each.pieces_copied} of {each.pieces}"
        table.add_row(_line(each.name), each.phase, each.copied, pieces, f"{each.messages:,}")
    return _captioned(table, of - len(namespaces))


def parts_table(parts: Sequence[Part], of: int, console: Console) -> Table:
    """Some of so many, in as many columns as a terminal has room for; a program gets all."""
    table = _parts(parts, of)
    for count in range(1, len(_SPARED) + 1):
        wanted = Measurement.get(console, console.options.update_width(_WIDTH_MAX), table).maximum
        if not console.is_terminal or wanted <= console.width:
            break
        table = _parts(parts, of, _SPARED[:count])
    return table


def _parts(parts: Sequence[Part], of: int, without: Sequence[str] = ()) -> Table:
    """Where there is no room for WHERE there is none for what else is known either."""
    names = [name for name in _COLUMNS if name not in without]
    table = Table(*(Column(name, no_wrap=bool(without)) for name in names))
    for part in parts:
        cells = _cells(part, is_short=bool(without))
        table.add_row(*(cells[name] for name in names))
    return _captioned(table, of - len(parts), without)


def _cells(part: Part, *, is_short: bool) -> dict[str, str | Text]:
    lag = part.lag
    return {
        "KIND": part.kind,
        "NAME": _line(part.name),
        "HEALTH": _mark(part.health),
        "STATE": Text("\n".join(map(printable, filter(None, (part.state, "" if is_short else part.extra))))),
        "POSITION": "" if part.position is None else str(part.position),
        "LAG": "" if lag is None else str(lag.messages),
        "LAG BYTES": "" if lag is None or lag.bytes is None else show_bytes(lag.bytes),
        "LAG TIME": "" if lag is None or lag.seconds is None else show_seconds(lag.seconds),
        "RATE": "" if part.rate is None else f"{part.rate:,.1f}/s",
        "SEEN": part.seen,
        "WHERE": _line(part.where),
    }


def _captioned(table: Table, more: int, without: Sequence[str] = ()) -> Table:
    """What there was no room for is said."""
    left_out = [f"{more} more"] * bool(more) + [", ".join(without).lower()] * bool(without)
    if left_out:
        table.caption = f"and {'; '.join(left_out)}: --json has all"
    return table


def tree_lines(tree: Sequence[TreeNode]) -> Iterator[Text]:
    """Each node below the one that it copies from."""
    return map(_line, _drawn(tree))


def _drawn(tree: Sequence[TreeNode]) -> Iterator[str]:
    if not tree:
        return
    yield f"topology of {len(tree):,} nodes"
    below: dict[str | None, list[TreeNode]] = {}
    known = {node.name for node in tree}
    for node in tree:
        below.setdefault(node.below if node.below in known else None, []).append(node)
    waiting = [(node, 1) for node in reversed(below.get(None, []))]
    while waiting:
        node, depth = waiting.pop()
        yield f"{'  ' * min(depth, _DEPTH_MAX)}{node.name}  {node.health}, {node.told}"
        waiting += [(each, depth + 1) for each in reversed(below.get(node.name, []))]


def trouble_lines(overview: Overview) -> Iterator[Text]:
    """What is wrong, each with its cure."""
    return map(trouble_line, _troubles(overview))


def trouble_line(text: str) -> Text:
    return Text(printable(text), style="red")


def _troubles(overview: Overview) -> Iterator[str]:
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
