"""What a function is. There are two kinds: most work on columns inside the task that delivers; those that need Spark's
SQL engine work on a DataFrame per namespace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.deliver.messages import Messages


@runtime_checkable
class Function(Protocol):
    """One step on columns. Pure: the same messages give the same result, on any machine, as often as it is asked.

    Called with no rows too, to learn what the columns will be. What it leaves out counts as acknowledged. A field
    that a namespace lacks is no error, unless the function was told that it is. It never sees commands.
    """

    def apply(self, messages: Messages) -> Messages:
        """The messages after this step, in the same order; their `offset`s stay."""


@runtime_checkable
class FrameFunction(Protocol):
    """One step on a DataFrame with the columns `offset, op, timestamp, lsn, tx, namespace, data, before`; of one
    namespace, so `data` has its true type. `offset` must stay: it says where a message belongs."""

    def apply_frame(self, frame: DataFrame, namespace: str) -> DataFrame:
        """The messages of a namespace after this step. Columns that are none of the above go along as they are."""
