"""omit: leave fields out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import Field

from tailrace.deliver.messages import Messages
from tailrace.transform.fields import Paths, edit, inside, reshaped
from tailrace.transform.missing import refuse_missing
from tailrace.transform.options import FunctionOptions, Missing


class Omit(FunctionOptions):
    """Leaves fields out, of `before` too."""

    kind: ClassVar[str] = "omit"
    summary: ClassVar[str] = "leave fields out"
    short: ClassVar[str] = "fields"

    fields: Annotated[tuple[str, ...], Field(min_length=1)]
    """The fields to leave out; `address.city` for one within another."""
    missing: Missing = "ignore"
    """What to do when messages have no such field: ignore or error."""

    def apply(self, messages: Messages) -> Messages:
        if self.missing == "error":
            refuse_missing(self, messages, self.fields)
        paths = dict.fromkeys(self.fields, "")
        return reshaped(messages, lambda column: edit(column, paths, _step))


def _step(name: str, paths: Paths, _contains: Callable[[str], bool]) -> tuple[str, Paths] | None:
    return None if name in paths else (name, inside(paths, name))
