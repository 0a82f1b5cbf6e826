"""rename: give fields other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from tailrace.deliver.messages import Messages
from tailrace.transform.fields import Clash, Paths, edit, inside, reshaped
from tailrace.transform.missing import refuse_missing
from tailrace.transform.options import FunctionOptions, Missing, mapping_from_short


class Rename(FunctionOptions):
    """Gives fields other names, all at once: `{a: b, b: a}` swaps two. `before` and the key follow."""

    kind: ClassVar[str] = "rename"
    summary: ClassVar[str] = "give fields other names"

    fields: Annotated[dict[str, str], Field(min_length=1)]
    """Old name to new name; `address.city: town` renames a field within another."""
    missing: Missing = "ignore"
    """What to do when messages have no such field: ignore or error."""

    @classmethod
    def from_short(cls, value: Any) -> Any:
        return mapping_from_short(value, "fields")

    @field_validator("fields")
    @classmethod
    def _check_names(cls, fields: dict[str, str]) -> dict[str, str]:
        taken: dict[tuple[str, str], str] = {}
        for old, new in fields.items():
            parent, _, name = new.rpartition(".")
            if not old or not name:
                raise ValueError(f"{old!r}: {new!r} has an empty name")
            if parent and parent != old.rpartition(".")[0]:
                raise ValueError(f"{old!r} cannot become {new!r}: a field stays where it is, only its name changes")
            other = taken.setdefault((old.rpartition(".")[0], name), old)
            if other != old:
                raise ValueError(f"{other!r} and {old!r} cannot both become {new!r}")
        return fields

    def apply(self, messages: Messages) -> Messages:
        if self.missing == "error":
            refuse_missing(self, messages, self.fields)
        try:
            return reshaped(messages, lambda column: edit(column, self.fields, _step), self.fields)
        except Clash as clash:
            raise self.failed(messages.namespace, str(clash), "choose another name, or omit the other field") from clash


def _step(name: str, paths: Paths, _contains: Callable[[str], bool]) -> tuple[str, Paths]:
    return paths.get(name, name), inside(paths, name)
