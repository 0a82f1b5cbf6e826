"""Converting a column, and saying which one it was when its values do not fit."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor import converting
from tailrace.adaptor.converting import Convert

_HINT: Final = "say `numerics: text`, `arrays: text` or `moments: text`, or leave the table out with `namespace`"


def converted(namespace: str, column: str, convert: Convert, values: pa.Array[Any]) -> pa.Array[Any]:
    """The values of a column in the form in which they travel."""
    return converting.converted(namespace, column, convert, values, hint=_HINT)
