"""The adaptors there are, found by name. Those of other packages come through the entry point `tailrace.adaptors`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from tailrace.adaptor.options import ReaderOptions, WriterOptions
from tailrace.errors import TailraceError

GROUP: Final = "tailrace.adaptors"
BUILT_IN: Final = ("console", "files", "lake", "mysql", "postgres", "relay", "sqlite", "tarantool")


@dataclass(frozen=True, slots=True)
class Adaptor:
    """An outside system: how to describe it, and the options with which it is read or written."""

    name: str
    summary: str
    reader: type[ReaderOptions] | None = None
    writer: type[WriterOptions] | None = None


def names() -> list[str]:
    """All adaptors, by name."""
    return sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})


def find(name: str) -> Adaptor:
    """An adaptor, imported now; each package calls its own `ADAPTOR`."""
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            load: Callable[[], Adaptor] = entry.load
            return load()
    if name not in BUILT_IN:
        close = difflib.get_close_matches(name, names(), n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        what = f"there is no adaptor {name!r}{meant} There are: {', '.join(names())}"
        raise TailraceError("config.invalid", what, hint="tailrace about")
    found: Adaptor = import_module(f"tailrace.adaptor.{name}").ADAPTOR
    return found
