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
