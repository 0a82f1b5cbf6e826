"""The order of tables: by batch, and in a batch those to which others refer first."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.sync.shape import Shape


def ordered(shapes: Iterable[Shape]) -> list[Shape]:
    """Tables that refer to each other in a circle come as their numbers are."""
    found = {shape.entity.table.lower(): shape for shape in shapes}
    depths = dict.fromkeys(found, 0)
    for _ in found:  # the longest way has one step less than there are tables
        for name, shape in found.items():
            above = [depths[each] for each in shape.refers_to if each in depths and each != name]
            depths[name] = min(len(found), max(above, default=-1) + 1)
    return sorted(
        found.values(), key=lambda shape: (shape.entity.batch, depths[shape.entity.table.lower()], shape.table_id)
    )


def referring(shapes: Iterable[Shape]) -> dict[int, frozenset[int]]:
    """For each table to which foreign keys refer: itself, and all that refer to it, or to one of these."""
    found = {shape.entity.table.lower(): shape for shape in shapes}
    above = {name: {each for each in shape.refers_to if each in found} for name, shape in found.items()}
    for _ in found:  # as far as the longest way goes
        for name, reached in above.items():
            above[name] = reached.union(*(above[each] for each in reached))
    below: dict[int, set[int]] = {}
    for name, reached in above.items():
        for each in reached:
            below.setdefault(found[each].table_id, {found[each].table_id}).add(found[name].table_id)
    return {table_id: frozenset(tables) for table_id, tables in below.items()}
