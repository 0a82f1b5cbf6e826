"""skip: keep messages for which a condition holds."""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BeforeValidator, Field, model_validator

from tailrace.deliver.messages import Messages
from tailrace.transform.comparison import Incomparable, Match, compare, compare_json
from tailrace.transform.fields import Found, find
from tailrace.transform.missing import are_deletes, refuse_missing
from tailrace.transform.options import FunctionOptions

_NAMES: Final = {"eq": "==", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_SIGNS: Final = {**_NAMES, **{f"${name}": sign for name, sign in _NAMES.items()}, "$ne": "!=", "$in": "in"}

Operator = Annotated[
    Literal["==", "!=", "=~", ">", ">=", "<", "<=", "in"],
    BeforeValidator(
        lambda name: _SIGNS.get(name, name) if isinstance(name, str) else name,
        json_schema_input_type=Literal[  # what Transporter's pipelines say is understood, too
            "==", "eq", "$eq", "!=", "ne", "$ne", "=~", ">", "gt", "$gt", ">=", "gte", "$gte",
            "<", "lt", "$lt", "<=", "lte", "$lte", "in", "$in",
        ],
    ),
]  # fmt: skip


class Skip(FunctionOptions):
    """Keeps a message when the condition holds, and drops it otherwise.

    A field that is null satisfies no condition. A delete may carry the key alone: when its field is null, it stays.
    """

    kind: ClassVar[str] = "skip"
    summary: ClassVar[str] = "keep messages for which a condition holds, skip the others"

    field: Annotated[str, Field(min_length=1)]
    """The field to look at; `address.city` for one within another."""
    operator: Operator
    """== != > >= < <=, =~ for a regular expression found anywhere, in for a list."""
    match: Match | tuple[Match, ...]
    """What to compare with: a number, text, true or false, a moment as ISO text; for `in` a list."""
    missing: Literal["ignore", "drop", "error"] = "ignore"
    """What to do with messages that have no such field: ignore (keep them), drop, or error."""

    @classmethod
    def from_short(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) == 3:
            return dict(zip(("field", "operator", "match"), value, strict=True))
        return value

    @model_validator(mode="after")
    def _check_match(self) -> Skip:
        matches = self.match if isinstance(self.match, tuple) else (self.match,)
        if (self.operator == "in") != isinstance(self.match, tuple):
            raise ValueError("the operator in needs a list to match, the others one value")
        if not matches:
            raise ValueError("the operator in needs something in its list")
        if any(isinstance(match, float) and not abs(match) < float("inf") for match in matches):
            raise ValueError("infinity and nan match nothing")
        if self.operator == "=~":
            _check_pattern(str(self.match))
        return self

    def apply(self, messages: Messages) -> Messages:
        found = find(messages.data, self.field)
        deletes = are_deletes(messages)
        if found is None:
            if self.missing == "error":
                refuse_missing(self, messages, [self.field])
            return messages.filter(deletes) if self.missing == "drop" else messages
        try:
            holds = self._holds(found)
        except Incomparable as reason:
            kind = found.column.type if found.within is None else "json"
            why = (
                f"field {self.field!r} is {kind} and cannot be compared ({self.operator}) with {self.match!r}: {reason}"
            )
            raise self.failed(messages.namespace, why, "give a match of the field's type") from reason
        is_known = holds.is_valid()
        return messages.filter(pc.if_else(is_known, holds, deletes))

    def _holds(self, found: Found) -> pa.Array[Any]:
        """Whether the condition holds, null where the field is."""
        if not isinstance(self.match, tuple):
            return _compare(found, self.operator, self.match)
        each = [_compare(found, "==", match) for match in self.match]
        return functools.reduce(pc.or_, each)


def _compare(found: Found, how: str, match: Match) -> pa.Array[Any]:
    if found.within is not None:
        return compare_json(found.column, found.within, how, match)
    nothing: Any = pa.scalar(None, pa.bool_())
    held: pa.Array[Any] = pc.if_else(found.column.is_valid(), compare(found.column, how, match), nothing)
    return held


def _check_pattern(pattern: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{pattern!r} is not a regular expression that RE2 knows: {error}") from None
