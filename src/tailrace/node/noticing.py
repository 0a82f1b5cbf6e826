"""Noticing: tables and columns that are new in a store are captured without anybody saying so.

What a new table has when it is noticed is told as if it came at that moment, and so is what a new column was filled
with meanwhile (I9). Rows that messages have written are known to others, and stay untold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.message import Mode
from tailrace.node.filling import as_messages

if TYPE_CHECKING:
    from tailrace.log.batch import Batch
    from tailrace.node.contract import NodeStorage
    from tailrace.source.contract import Reader, Table

_REFUSED = "config.invalid"


class Noticing:
    """The shape of one store, as far as it is known."""

    def __init__(self, reader: Reader, storage: NodeStorage, tell: Callable[[list[Batch]], None]) -> None:
        """`tell` is given rows that others are to hear of."""
        self._reader = reader
        self._storage = storage
        self._tell = tell
        self._shape: object = None
        self._looked_s = 0.0
        self.left_out: dict[str, TailraceError] = {}
        """The tables that came while the node ran and cannot be replicated, each with the reason."""

    def is_new(self, *, at_once: bool = False) -> bool:
        """Whether there is something to notice."""
        if not at_once and time.monotonic() - self._looked_s < self._storage.shape_s:
            return False
        self._looked_s = time.monotonic()
        return self._storage.shape() != self._shape

    def install(self, tables: Sequence[Table]) -> None:
        """Changes of these tables are noted from now on; what they have is known."""
        self._reader.install(tables)
        self._storage.forbid_untold({table.namespace for table in tables})

    def go_on(self, tables: Sequence[Table]) -> None:
        """Changes are noted as they were. What is new since is for `notice`."""
        self._storage.forbid_untold({table.namespace for table in tables})
        noted = self._storage.noted(tables)
        self._reader.install([table for table in tables if table.namespace in noted])

    def notice(self, find: Callable[[], Sequence[Table]], *, tells: bool) -> None:
        """Capture what is new, with what it has if it is to be told."""
        shape = self._storage.shape()
        tables = self._replicable(find())
        noted = self._storage.noted(tables)
        news = [table for table in tables if table.namespace not in noted]
        if news and tells:
            with self._storage.adopting(tables) as untold:
                rows = [batch for table in news if table.namespace in untold for batch in self._rows(table)]
                if rows:
                    self._tell(rows)
        self._reader.install(tables)
        self._shape = shape

    def _replicable(self, tables: Sequence[Table]) -> list[Table]:
        self.left_out = {}
        if self._why_refused(tables) is not None:
            refused = {table.namespace: self._why_refused([table]) for table in tables}
            self.left_out = {namespace: why for namespace, why in refused.items() if why is not None}
        return [table for table in tables if table.namespace not in self.left_out]

    def _why_refused(self, tables: Sequence[Table]) -> TailraceError | None:
        try:
            self._storage.forbid_untold({table.namespace for table in tables})
        except TailraceError as error:
            if error.code != _REFUSED:
                raise
            return error
        return None

    def _rows(self, table: Table) -> Iterator[Batch]:
        """The rows of a table that no message has written."""
        for piece in self._reader.plan_copy(table):
            yield from self._unknown(self._reader.read_copy(table.namespace, piece))

    def _unknown(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        with closing(self._storage.open_unnoted()) as writer:
            for batch in batches:
                messages = as_messages(batch, 0)
                key = self._storage.key_of(batch.namespace, messages.key)
                told = writer.judge(messages).is_foreign if key else [False] * len(batch)  # rows of no node yet
                rows = batch.rows.filter(pa.array([not each for each in told], pa.bool_()))
                if rows.num_rows:
                    yield replace(batch, rows=rows, mode=Mode.SYNC)
