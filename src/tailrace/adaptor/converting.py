"""Converting a column, and saying which one it was when its values do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tailrace.errors import TailraceError

Convert = Callable[["pa.Array[Any]"], "pa.Array[Any]"]
"""A column of texts as a column of values. Raises `ValueError` (or Arrow's error, which is one) when a text is none."""


def cast_to(kind: pa.DataType) -> Convert:
    """What Arrow itself can read."""
    return lambda texts: texts if texts.type == kind else texts.cast(kind)


def converted(
    namespace: str, column: str, convert: Callable[[Any], pa.Array[Any]], values: Any, *, hint: str
) -> pa.Array[Any]:
    """The values of a column in the form in which they travel; `hint` says what can be done if they have none."""
    try:
        return convert(values)
    except (ValueError, OverflowError) as error:
        what = f"column {column} of {namespace} has a value that cannot be represented: {error}"
        raise TailraceError("source.unsupported", what, hint=hint) from error
