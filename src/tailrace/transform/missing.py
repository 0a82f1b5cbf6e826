"""Fields that a function was told of and that messages lack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages
from tailrace.message import Op
from tailrace.transform.fields import has
from tailrace.transform.options import FunctionOptions


def refuse_missing(function: FunctionOptions, messages: Messages, paths: Iterable[str]) -> None:
    """Raise when a path leads nowhere. Deletes may carry the key alone, so they prove nothing."""
    absent = [path for path in paths if not has(messages.data.type, path)]
    if absent and pc.any(pc.invert(are_deletes(messages))).as_py():
        there = ", ".join(messages.fields) or "none"
        why = f"there is no field {', '.join(map(repr, absent))}; there are: {there}"
        raise function.failed(messages.namespace, why, "correct the field, or set missing: ignore")


def are_deletes(messages: Messages) -> pa.Array[Any]:
    """For every message whether it is a delete."""
    delete: Any = pa.scalar(int(Op.DELETE), pa.int8())
    return pc.equal(messages.ops(), delete)
