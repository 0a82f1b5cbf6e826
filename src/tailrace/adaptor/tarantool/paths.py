"""Paths: ways into a field, such as `address.lines[1]`."""

from __future__ import annotations

import re
from typing import Final

Step = int | str
"""A place in an array, from 0, or a name in a map."""
_STEP: Final = re.compile(r"""\[(\d+)\]|\[(?:"([^"]*)"|'([^']*)')\]|(?:^|\.)([^\W\d][^\W]*)""")


def steps_of(path: str, base: int) -> list[Step]:
    """The steps of a path whose places count from `base`; none when it is no path."""
    steps: list[Step] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or (found[1] is not None and int(found[1]) < base):
            return []
        place, *names = found.groups()
        steps.append(int(place) - base if place is not None else next(name for name in names if name is not None))
        at = found.end()
    return steps
