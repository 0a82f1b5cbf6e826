"""The template: the rows of a Tarantool's own spaces, without which no instance starts.

They are those of a fresh instance of one version, written by `scripts/tarantool-template.lua`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgpack

VERSION: Final = (2, 6, 0)
"""Whose rows they are. Later versions upgrade them, earlier ones cannot read them."""
FILE: Final = "system.msgpack"

SystemRow = tuple[int, list[Any]]
"""The number of a space, and one of its tuples."""


@cache
def system_rows() -> tuple[SystemRow, ...]:
    """In the order of spaces."""
    stored = files(__package__).joinpath(FILE).read_bytes()
    rows = msgpack.unpackb(stored, strict_map_key=False)["rows"]
    return tuple(sorted(((int(space), row) for space, row in rows), key=lambda each: each[0]))
