"""Converting a column, and saying which one it was when its values do not fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tailrace.adaptor import converting
from tailrace.adaptor.converting import Convert


def converted(
    namespace: str, column: str, arrow: pa.DataType, convert: Convert, values: pa.Array[Any]
) -> pa.Array[Any]:
    """The values of a column in the form in which they travel."""
    return converting.converted(namespace, column, convert, values, hint=_cure(arrow))


def _cure(arrow: pa.DataType) -> str:
    leave = "leave the table out with `namespace`"
    if pa.types.is_list(arrow):
        return f"say `arrays: text`, or {leave}"
    if pa.types.is_decimal(arrow):
        return f"say `numerics: text`, or {leave}"
    if pa.types.is_timestamp(arrow) or pa.types.is_date(arrow):
        return f"say `moments: text`, or {leave}"
    return leave
