"""python: a function of one's own, on one message at a time or on a whole DataFrame."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.transform.code import check_reference, compiled, imported, read_code, what_failed
from tailrace.transform.columns import NoColumn
from tailrace.transform.options import FunctionOptions
from tailrace.transform.results import Results, Unusable
from tailrace.transform.rows import columns_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FRAME_COLUMNS = ("offset", "op", "data")


def _check(value: Any) -> Any:
    return check_reference(value) if isinstance(value, str) else value


Reference = Annotated[
    str | Callable[..., Any],
    BeforeValidator(_check),
    WithJsonSchema({"type": "string", "pattern": r"^[\w.]+:[\w.]+$"}),
]
"""`package.module:name`; in Python the function itself."""


class _Travelling:
    """A function on its way to another process, which may not have it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            cloudpickle: Any = importlib.import_module("pyspark.cloudpickle")
        except ImportError as error:
            what = f"a function cannot be sent to a task: {error}"
            raise TailraceError("spark.unavailable", what, hint="pip install 'tailrace[spark]'") from error
        return cloudpickle.loads, (cloudpickle.dumps(self.function),)


class OwnFunction(FunctionOptions):
    """Base of functions that run people's own code."""

    kind: ClassVar[str] = "python"
    summary: ClassVar[str] = "call a function of your own"
    keeps_keys: ClassVar[bool] = False
    knows_columns: ClassVar[bool] = False

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        options = {name: _Travelling(said) if callable(said) else said for name, said in state["__dict__"].items()}
        return {**state, "__dict__": options}


class Python(OwnFunction):
    """Calls a function with every message; what it returns goes on, and None drops the message.

    It gets a dict with `namespace, op, timestamp` (microseconds), `offset, data, before`. Of what it returns, `data`
    and `op` are taken. What the columns will be is known from results only: without rows they stay as they were.
    """

    short: ClassVar[str] = "function"

    function: Reference | None = None
    """The function, as package.module:name."""
    file: str | None = None
    """A Python file that defines the function. It is read once; tasks need not have it."""
    name: str = "transform"
    """What the function in the file is called."""
    frame: Reference | None = None
    """Instead of the above: a function from DataFrame to DataFrame, as package.module:name."""

    _code: str = PrivateAttr("")

    @model_validator(mode="wrap")
    @classmethod
    def _choose_form(cls, value: Any, handler: ModelWrapValidatorHandler[Any], info: ValidationInfo) -> Any:
        is_frame = isinstance(value, Mapping) and value.get("frame") is not None
        if not is_frame:
            return handler(value)._checked((info.context or {}).get("base", ""))
        if value.get("function") is not None or value.get("file") is not None:
            raise ValueError("give one of function, file and frame")
        return PythonFrame.model_validate(value)

    def _checked(self, base: str) -> Python:
        if (self.function is None) == (self.file is None):
            raise ValueError("give one of function, file and frame")
        if self.file is not None and not self._code:
            self._code = read_code(os.path.join(base, os.path.expanduser(self.file)), self.name)
        return self

    def apply(self, messages: Messages) -> Messages:
        if not len(messages):
            return messages
        function = self._loaded(messages.namespace)
        values = columns_of(messages.data)
        results = Results()
        for at, message in enumerate(rows_of(messages, values)):
            offset, op = message["offset"], message["op"]
            try:
                result = function(message)
                if result is not None:
                    results.add(at, result, op)
            except Unusable as wrong:
                raise self._broken(messages.namespace, offset, str(wrong)) from None
            except Exception as error:
                raise self._broken(messages.namespace, offset, what_failed(error, function)) from error
        try:
            return results.messages(messages, values)
        except NoColumn as error:
            hint = "return values of one type for the field"
            raise self.failed(messages.namespace, f"{self._title()}: {error}", hint) from error

    def _loaded(self, namespace: str) -> Callable[..., Any]:
        if self.file is None:
            return _function(self.function)
        try:
            return compiled(self._code, self.file, self.name)
        except Exception as error:
            raise self.failed(namespace, f"{self.file}: {type(error).__name__}: {error}", "correct the file") from error

    def _title(self) -> str:
        return self.name if self.file is not None else _title(self.function)

    def _broken(self, namespace: str, offset: int, why: str) -> TailraceError:
        return self.failed(namespace, f"{self._title()} at offset {offset}: {why}", f"tailrace log show {offset}")


class PythonFrame(OwnFunction):
    """Calls a function with the DataFrame of a namespace; the DataFrame it returns goes on."""

    short: ClassVar[str] = "frame"
    knows_columns: ClassVar[bool] = True

    frame: Reference
    """The function, as package.module:name. What it returns must have the columns offset, op and data."""

    def apply_frame(self, frame: DataFrame, namespace: str) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812  as Spark's own documentation calls it

        function, title = _function(self.frame), _title(self.frame)
        try:
            result = function(frame)
        except Exception as error:
            why = f"{title}: {what_failed(error, function)}"
            raise self.failed(namespace, why, "correct the function") from error
        columns = getattr(result, "columns", None)
        if columns is None:
            raise self.failed(namespace, f"{title} returned {type(result).__name__}", "return a DataFrame")
        lost = [name for name in _FRAME_COLUMNS if name not in columns]
        if lost:
            why = f"{title} returned a DataFrame without {', '.join(lost)}"
            raise self.failed(namespace, why, "keep these columns: offset says where a message belongs")
        empty = {name: F.lit(None).cast(frame.schema[name].dataType) for name in frame.columns if name not in columns}
        returned: DataFrame = result.withColumns(empty)
        return returned


def _function(said: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = imported(said) if isinstance(said, str) else said
    return function


def _title(said: Any) -> str:
    return said if isinstance(said, str) else getattr(said, "__name__", type(said).__name__)
