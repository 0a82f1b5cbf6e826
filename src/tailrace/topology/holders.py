"""Holders: for whom each node of a topology keeps its log, as far as the registry has heard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.topology.answers import Row
from tailrace.topology.member import State
from tailrace.topology.site import Site


@dataclass(frozen=True, slots=True)
class Held:
    """What a node keeps for those below it."""

    offset: int
    """From here on."""
    by: Site
    """The replica that is the furthest back."""


def holders(rows: Sequence[Row]) -> Mapping[Site, Held]:
    """By node, for those with live replicas below them. One that has not told how far it is may need everything."""
    sources = {row.site: row.source for row in rows}
    found: dict[Site, Held] = {}
    for row in rows:
        if row.state is State.INACTIVE or row.source is None:
            continue
        mine = Held(row.report.received or 0, row.site)
        above: Site | None = row.source
        met = {row.site}
        while above is not None and above not in met:
            met.add(above)
            if above not in found or mine.offset < found[above].offset:
                found[above] = mine
            above = sources.get(above)
    return found
