"""Rows on their way out: as many as one body may carry. One that is too large even alone is put aside."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.errors import TailraceError
from tailrace.sync.content import check_sendable
from tailrace.sync.exchange import Key, Part, RowBatch
from tailrace.sync.store import SyncStore

Form = Callable[[RowBatch], bytes]
"""Makes a body of rows."""


def formed(rows: RowBatch, form: Form) -> bytes:
    """The body of rows. Raises `sync.too_large`, if possible before it is made."""
    check_sendable(rows.by_column.text_length())
    content = form(rows)
    check_sendable(len(content))
    return content


def next_page(
    store: SyncStore, table_id: int, node: int, after: Key | None, limit: int, form: Form, part: Part = Part.ALL
) -> tuple[RowBatch, bytes]:
    """The next rows for a node, and their body."""
    while True:
        rows = store.pending_rows(table_id, node, after, limit, part)
        try:
            return _fitting(rows, form)
        except TailraceError as error:
            if error.code != "sync.too_large":
                raise
            first, _ = rows.parted(1)
            store.put_aside(table_id, node, first, error.what)
            after = first.key_at(-1, store.shape(table_id).key)


def _fitting(rows: RowBatch, form: Form) -> tuple[RowBatch, bytes]:
    """As many of the first rows as fit into a body."""
    while True:
        try:
            return rows, formed(rows, form)
        except TailraceError as error:
            if error.code != "sync.too_large" or len(rows) <= 1:
                raise
        rows, _ = rows.parted(len(rows) // 2)
