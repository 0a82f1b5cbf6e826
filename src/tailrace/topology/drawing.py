"""A topology as people look at it: a tree, or Graphviz's language."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tailrace.topology.answers import Row
from tailrace.topology.site import Site
from tailrace.units import show_bytes


def tree(rows: Sequence[Row]) -> Iterator[str]:
    """One line for each node, below the one that it replicates from; orphans last."""
    below: dict[Site | None, list[Row]] = defaultdict(list)
    ends = _ends(rows)
    known = {row.site for row in rows}
    for row in rows:
        below[row.source if row.source in known else None].append(row)
    for database in sorted({row.site.database for row in rows}):
        yield database
        tops = [row for row in below[None] if row.site.database == database]
        for row in sorted(tops, key=lambda top: (not top.is_source, top.site)):
            yield from _branch(row, below, "  ", ends.get(database))


def _branch(row: Row, below: dict[Site | None, list[Row]], indent: str, end: int | None) -> Iterator[str]:
    yield f"{indent}{row.site.host}  {told(row, end)}"
    for child in sorted(below[row.site], key=lambda each: each.site):
        yield from _branch(child, below, indent + "  ", end)


def _ends(rows: Sequence[Row]) -> dict[str, int]:
    """By log: how far its sources are, as they told last."""
    ends: dict[str, int] = {}
    for row in rows:
        if row.is_source and row.report.received is not None:
            ends[row.site.database] = max(row.report.received, ends.get(row.site.database, 0))
    return ends


def told(row: Row, end: int | None = None) -> str:
    """What is known of a node, whose source's log ends there."""
    report = row.report
    parts = ["source" if row.is_source else str(row.state)]
    parts.append("no tier" if row.tier is None else f"tier {row.tier}")
    if row.is_orphan:
        parts.append("ORPHAN")
    if row.is_stopped:
        parts.append("stopped")
    if report.received is not None:
        parts.append(f"offset {report.received}")
        if end is not None and not row.is_source:
            parts.append(f"{max(0, end - report.received)} messages behind")
    if report.applied is not None:
        parts.append(f"applied {report.applied}")
    if report.lag_bytes is not None:
        parts.append(f"behind {show_bytes(report.lag_bytes)}")
    if report.first_offset:
        parts.append(f"log from {report.first_offset}")
    if row.load:
        parts.append(f"{row.load} below")
    if row.reserved is not None:
        parts.append(f"on its way to {row.reserved.host}")
    parts.append("never heard of" if row.age_s is None else f"heard of {row.age_s:.0f} s ago")
    return ", ".join(parts)


def dot(rows: Sequence[Row]) -> Iterator[str]:
    """The same for Graphviz."""
    ends = _ends(rows)
    yield "digraph topology {"
    for row in rows:
        style = ' style="dashed"' if row.is_orphan else ""
        label = f"{row.site.host} {told(row, ends.get(row.site.database))}"
        yield f"  {_quoted(str(row.site))} [label={_quoted(label)}{style}];"
    for row in rows:
        if row.source is not None:
            yield f"  {_quoted(str(row.source))} -> {_quoted(str(row.site))};"
    yield "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
