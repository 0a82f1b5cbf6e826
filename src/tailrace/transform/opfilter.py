"""opfilter: keep messages by what happened."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, model_validator

from tailrace.deliver.messages import Messages
from tailrace.message import Op
from tailrace.transform.options import FunctionOptions

OpName = Annotated[
    Literal["insert", "update", "delete"],
    BeforeValidator(lambda name: name.lower() if isinstance(name, str) else name),
]


class Opfilter(FunctionOptions):
    """Keeps messages with certain ops, or all but those."""

    kind: ClassVar[str] = "opfilter"
    summary: ClassVar[str] = "keep inserts, updates or deletes"
    short: ClassVar[str] = "whitelist"

    whitelist: tuple[OpName, ...] = ()
    """Keep only these ops."""
    blacklist: tuple[OpName, ...] = ()
    """Drop these ops."""

    @model_validator(mode="after")
    def _check_lists(self) -> Opfilter:
        if bool(self.whitelist) == bool(self.blacklist):
            raise ValueError("give whitelist or blacklist, one of the two")
        return self

    @property
    def keeps_deletes(self) -> bool:
        return "delete" in self.whitelist if self.whitelist else "delete" not in self.blacklist

    def apply(self, messages: Messages) -> Messages:
        listed: Any = pa.array([int(Op[name.upper()]) for name in self.whitelist or self.blacklist], pa.int8())
        is_listed = pc.is_in(messages.ops(), value_set=listed)
        return messages.filter(is_listed if self.whitelist else pc.invert(is_listed))
