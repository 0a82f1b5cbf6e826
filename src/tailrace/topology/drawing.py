"""A topology as people look at it: a tree, or Graphviz's language."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tailrace.topology.answers import Row
from tailrace.topology.holders import holders
from tailrace.topology.site import Site
from tailrace.units import show_bytes


def tree(rows: Sequence[Row]) -> Iterator[str]:
    """One line for each node, below the one that it replicates from; orphans last."""
    told = Told(rows)
    below: dict[Site | None, list[Row]] = defaultdict(list)
    known = {row.site for row in rows}
    for row in rows:
        below[row.source if row.source in known else None].append(row)
    for database in sorted({row.site.database for row in rows}):
        yield database
        tops = [row for row in below[None] if row.site.database == database]
        for row in sorted(tops, key=lambda top: (not top.is_source, top.site)):
            yield from _branch(row, below, told, "  ")


def _branch(row: Row, below: dict[Site | None, list[Row]], told: Told, indent: str) -> Iterator[str]:
    yield f"{indent}{row.site.host}  {told.of(row)}"
    for child in sorted(below[row.site], key=lambda each: each.site):
        yield from _branch(child, below, told, indent + "  ")


class Told:
    """What is known of nodes, in words."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._held = holders(rows)
        self._furthest: dict[str, int] = defaultdict(int)
        for row in rows:
            self._furthest[row.site.database] = max(self._furthest[row.site.database], row.report.received or 0)

    def of(self, row: Row) -> str:
        parts = ["source" if row.is_source else str(row.state)]
        parts.append("no tier" if row.tier is None else f"tier {row.tier}")
        if row.is_orphan:
            parts.append("ORPHAN")
        if row.is_stopped:
            parts.append("stopped")
        parts += self._progress(row)
        if row.load:
            parts.append(f"{row.load} below")
        if (held := self._held.get(row.site)) is not None:
            parts.append(f"keeps its log from {held.offset} for {held.by.host}")
        if row.reserved is not None:
            parts.append(f"on its way to {row.reserved.host}")
        silent = "does not keep alive" if row.is_source else "never heard of"
        parts.append(silent if row.age_s is None else f"heard of {row.age_s:.0f} s ago")
        return ", ".join(parts)

    def _progress(self, row: Row) -> Iterator[str]:
        report = row.report
        if report.received is not None:
            yield f"offset {report.received}"
            if missing := self._furthest[row.site.database] - report.received:
                yield f"{missing} messages behind"
        if report.applied is not None:
            yield f"applied {report.applied}"
        if report.lag_bytes is not None:
            yield f"behind its source by {show_bytes(report.lag_bytes)}"
        if report.lag_s is not None:
            yield f"and {report.lag_s:.1f} s"
        if report.first_offset:
            yield f"log from {report.first_offset}"


def dot(rows: Sequence[Row]) -> Iterator[str]:
    """The same for Graphviz."""
    told = Told(rows)
    yield "digraph topology {"
    for row in rows:
        style = ' style="dashed"' if row.is_orphan else ""
        yield f"  {_quoted(str(row.site))} [label={_quoted(f'{row.site.host} {told.of(row)}')}{style}];"
    for row in rows:
        if row.source is not None:
            yield f"  {_quoted(str(row.source))} -> {_quoted(str(row.site))};"
    yield "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
