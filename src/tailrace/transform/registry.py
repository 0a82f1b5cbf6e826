"""The functions there are, found by name. Those of other packages come through the entry point `tailrace.functions`."""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from tailrace.errors import TailraceError
from tailrace.transform.options import FunctionOptions

GROUP: Final = "tailrace.functions"
BUILT_IN: Final = ("omit", "opfilter", "pick", "pretty", "python", "remap", "rename", "skip", "sql")
"""Each is the class of the same name in the module of the same name."""


def names() -> list[str]:
    """All functions, by name."""
    return sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})


def find(name: str) -> type[FunctionOptions]:
    """A function, imported now. Its `summary` says what it does."""
    if name in BUILT_IN:
        built_in: type[FunctionOptions] = getattr(import_module(f"tailrace.transform.{name}"), name.capitalize())
        return built_in
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return _checked(name, entry.load())
    close = difflib.get_close_matches(name, names(), n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    what = f"there is no function {name!r}{meant} There are: {', '.join(names())}"
    raise TailraceError("config.invalid", what, hint="tailrace about")


def _checked(name: str, found: object) -> type[FunctionOptions]:
    if isinstance(found, type) and issubclass(found, FunctionOptions):
        return found
    what = f"the function {name!r} of another package is not a subclass of FunctionOptions"
    raise TailraceError("config.invalid", what, hint="update or remove the package")
