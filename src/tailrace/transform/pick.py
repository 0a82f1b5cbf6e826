"""pick: keep only some fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import Field

from tailrace.deliver.messages import Messages
from tailrace.transform.fields import Paths, edit, inside, reshaped
from tailrace.transform.missing import refuse_missing
from tailrace.transform.options import FunctionOptions, Missing


class Pick(FunctionOptions):
    """Keeps only the fields it is given, in their own order, of `before` too."""

    kind: ClassVar[str] = "pick"
    summary: ClassVar[str] = "keep only some fields"
    short: ClassVar[str] = "fields"

    fields: Annotated[tuple[str, ...], Field(min_length=1)]
    """The fields to keep; `address.city` for one within another."""
    missing: Missing = "ignore"
    """What to do when messages have no such field: ignore or error."""

    def apply(self, messages: Messages) -> Messages:
        if self.missing == "error":
            refuse_missing(self, messages, self.fields)
        paths = dict.fromkeys(self.fields, "")
        return reshaped(messages, lambda column: edit(column, paths, _step))


def _step(name: str, paths: Paths, contains: Callable[[str], bool]) -> tuple[str, Paths] | None:
    if name in paths:
        return name, {}
    inner = inside(paths, name)
    return (name, inner) if any(map(contains, inner)) else None
