"""Delta tables, written by the `deltalake` package: history by appending, current state by MERGE.

Each commit carries the offset it came up to as the version of an application transaction, which makes it effectively
once: a batch that is there already is not written again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tailrace.adaptor.lake.history import history_rows
from tailrace.adaptor.lake.merging import Merge
from tailrace.adaptor.lake.options import Keep
from tailrace.adaptor.lake.place import table_directory
from tailrace.deliver.contract import Target
from tailrace.errors import TailraceError
from tailrace.message import Offset

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame

DELETED: Final = "_tailrace_deleted"


class DeltaLake:
    """One Delta table per namespace."""

    def __init__(self, path: str, keep: Keep, consumer: str) -> None:
        self._lake = path
        self._keep = keep
        self._consumer = consumer or "tailrace"

    def applied(self, namespace: str) -> Offset | None:
        table = self._table(table_directory(self._lake, namespace))
        version = None if table is None else table.transaction_version(self._consumer)
        return None if version is None else Offset(version)

    def write_frame(self, target: Target, frame: DataFrame, upto: Offset) -> None:
        directory = table_directory(self._lake, target.namespace)
        os.makedirs(directory, exist_ok=True)
        if self._keep is Keep.HISTORY:
            self._append(directory, history_rows(frame).toArrow(), upto)
            return
        merge = Merge(target, frame)
        table = self._table(directory)
        if table is None or not target.key:
            self._append(directory, merge.upserted().toArrow(), upto)
            return
        self._merge(table, target, merge.changes(DELETED).toArrow(), upto)

    def close(self) -> None:
        """There is nothing to let go of."""

    def _table(self, directory: str) -> DeltaTable | None:
        try:
            from deltalake import DeltaTable
        except ImportError as error:
            what = "Delta tables need the package deltalake"
            raise TailraceError("destination.unreachable", what, hint="pip install 'tailrace[delta]'") from error
        return DeltaTable(directory) if DeltaTable.is_deltatable(directory) else None

    def _append(self, directory: str, rows: pa.Table, upto: Offset) -> None:
        from deltalake import write_deltalake

        write_deltalake(directory, rows, mode="append", schema_mode="merge", commit_properties=self._commit(upto))

    def _merge(self, table: DeltaTable, target: Target, changes: pa.Table, upto: Offset) -> None:
        same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in target.key)
        fields = [name for name in changes.column_names if name != DELETED]
        values = {_quoted(name): f"s.{_quoted(name)}" for name in fields}
        merging = table.merge(
            changes,
            predicate=same,
            source_alias="s",
            target_alias="t",
            merge_schema=True,
            commit_properties=self._commit(upto),
        )
        merging = merging.when_matched_delete(predicate=f"s.{DELETED}")
        merging = merging.when_matched_update(updates=values, predicate=f"NOT s.{DELETED}")
        merging.when_not_matched_insert(updates=values, predicate=f"NOT s.{DELETED}").execute()

    def _commit(self, upto: Offset) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(app_transactions=[Transaction(app_id=self._consumer, version=int(upto))])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
