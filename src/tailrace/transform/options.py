"""Options of functions. A function is its options: what a user said, checked, and able to do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import field_validator, model_validator

from tailrace.adaptor.options import Options
from tailrace.errors import TailraceError
from tailrace.namespace import namespace_pattern

Missing = Literal["ignore", "error"]
"""What a function does when messages lack a field that it was told of."""


class FunctionOptions(Options):
    """Base of all functions. Those on columns have `apply`, those on frames `apply_frame` (see the contract)."""

    kind: ClassVar[str]
    """The function's name in a pipeline."""
    summary: ClassVar[str]
    """What it does, in a line."""
    short: ClassVar[str] = ""
    """The option that a bare value is for: `omit: [a, b]` says the same as `omit: {fields: [a, b]}`."""
    keeps_keys: ClassVar[bool] = True
    """Whether a row that had a key of its own still has one."""
    keeps_namespaces: ClassVar[bool] = True
    """Whether messages stay in the namespaces that they are in."""
    knows_columns: ClassVar[bool] = True
    """Whether its columns follow from those it gets, so that no rows tell them too."""

    logs: ClassVar[bool] = False
    """Whether it is there for what it logs."""

    namespace: str = ""
    """Only namespaces in which this regular expression is found; others pass through unchanged."""

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, value: Any) -> Any:
        return value if isinstance(value, FunctionOptions) else cls.from_short(value)

    @field_validator("namespace")
    @classmethod
    def _check_namespace(cls, text: str) -> str:
        try:
            namespace_pattern(text)
        except TailraceError as error:
            raise ValueError(error.what) from None
        return text

    @classmethod
    def from_short(cls, value: Any) -> Any:
        """The options that a bare value stands for."""
        if value is None:
            return {}
        return {cls.short: value} if cls.short and not isinstance(value, Mapping) else value

    def applies_to(self, namespace: str) -> bool:
        """Whether messages of a namespace go through this function, and not past it."""
        pattern = namespace_pattern(self.namespace)
        return pattern is None or pattern.search(namespace) is not None

    @property
    def keeps_deletes(self) -> bool:
        """Whether deletes pass."""
        return True

    def failed(self, namespace: str | None, why: str, hint: str) -> TailraceError:
        """The error of a function that cannot do its work."""
        where = "" if namespace is None else f" on {namespace!r}"
        return TailraceError("function.failed", f"{self.kind} failed{where}: {why}", hint=hint)


def mapping_from_short(value: Any, option: str) -> Any:
    """The options that a mapping from name to name stands for, unless it holds the option itself."""
    is_bare = isinstance(value, Mapping) and bool(value) and all(isinstance(name, str) for name in value.values())
    return {option: value} if is_bare else value
