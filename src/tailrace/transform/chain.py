"""Chain: functions one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.transform.contract import FrameFunction
from tailrace.transform.options import FunctionOptions


@dataclass(frozen=True, slots=True)
class Chain:
    """Functions in the order in which messages go through them. Travels to tasks."""

    functions: tuple[FunctionOptions, ...] = ()

    @property
    def needs_frames(self) -> bool:
        """Whether one of the functions works on a DataFrame."""
        return any(isinstance(function, FrameFunction) for function in self.functions)

    @property
    def knows_columns(self) -> bool:
        """Whether its columns can be told without rows."""
        return all(function.knows_columns for function in self.functions)

    @property
    def logs(self) -> bool:
        """Whether one of the functions is there for what it logs."""
        return any(function.logs for function in self.functions)

    def silent(self) -> Chain:
        """Without the functions that are there for what they log."""
        return Chain(tuple(function for function in self.functions if not function.logs))

    @property
    def keeps_namespaces(self) -> bool:
        """Whether no two namespaces can become one."""
        return all(function.keeps_namespaces for function in self.functions)

    @property
    def keeps_deletes(self) -> bool:
        """Whether deletes reach the writer."""
        return all(function.keeps_deletes for function in self.functions)

    @property
    def keeps_keys(self) -> bool:
        """Whether every row still has the key that it has in the source."""
        return all(function.keeps_keys for function in self.functions)

    def split(self) -> tuple[Chain, tuple[FunctionOptions, ...]]:
        """The functions on columns that come first, and the rest, from the first function on frames on."""
        leading = tuple(takewhile(lambda function: not isinstance(function, FrameFunction), self.functions))
        rest = self.functions[len(leading) :]
        for function in rest:
            if not function.knows_columns and not isinstance(function, FrameFunction):
                what = f"{function.kind}, a function on single messages, comes after {rest[0].kind}, one on DataFrames"
                hint = f"put it before {rest[0].kind}, or give it a DataFrame: `frame`"
                raise TailraceError("config.invalid", what, hint=hint)
        return Chain(leading), rest

    def apply(self, messages: Messages) -> Messages:
        """The messages after all functions, which must be functions on columns. Each sees the namespace that the ones
        before it have left, and decides by it."""
        for function in self.functions:
            if function.applies_to(messages.namespace):
                messages = _applied(function, messages)
        return messages


def _applied(function: Any, messages: Messages) -> Messages:
    try:
        after: Messages = function.apply(messages)
    except TailraceError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        hint = f"tailrace log show {messages.offsets()[0]}" if len(messages) else "correct the function's options"
        raise function.failed(messages.namespace, why, hint) from error
    return after
