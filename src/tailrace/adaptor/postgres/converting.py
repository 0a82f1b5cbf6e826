"""Converting a column, and saying which one it was when its values do not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tailrace.adaptor.postgres.texts import Convert
from tailrace.errors import TailraceError


def converted(namespace: str, column: str, convert: Convert, values: pa.Array[Any]) -> pa.Array[Any]:
    """The values of a column in the form in which they travel."""
    try:
        return convert(values)
    except (ValueError, OverflowError) as error:
        what = f"column {column} of {namespace} has a value that cannot be represented: {error}"
        hint = "say `numerics: text`, `arrays: text` or `moments: text`, or leave the table out with `namespace`"
        raise TailraceError("source.unsupported", what, hint=hint) from error
