"""Changes that an application asks for, as messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batches_of, with_key
from tailrace.message import Lsn, Message, Op, now
from tailrace.relay.request import Change
from tailrace.source.contract import Table


def changed_batches(changes: Sequence[Change], tables: Mapping[str, Table]) -> list[Batch]:
    """One transaction in these tables, by namespace."""
    for change in changes:
        _check(change, tables)
    messages = [
        Message(Op[change.op.upper()], now(), change.namespace, change.data, lsn=Lsn(number))
        for number, change in enumerate(changes, 1)
    ]
    return [replace(batch, rows=with_key(batch.rows, tables[batch.namespace].key)) for batch in batches_of(messages)]


def _check(change: Change, tables: Mapping[str, Table]) -> None:
    table = tables.get(change.namespace)
    if table is None:
        what = f"there is no table {change.namespace} in the store; there are: {', '.join(tables) or 'none'}"
        raise TailraceError("input.invalid", what, hint="name one of them")
    unknown = sorted(change.data.keys() - set(table.schema.names))
    if unknown:
        what = f"{change.namespace} has no column {', '.join(unknown)}; it has {', '.join(table.schema.names)}"
        raise TailraceError("input.invalid", what, hint="name the columns as the table does")
    missing = [name for name in table.key if change.data.get(name) is None]
    if not table.key or missing:
        why = f"without {', '.join(missing)}" if missing else "of a table that has no key"
        what = f"a row {why} cannot be told from others ({change.namespace})"
        raise TailraceError("input.invalid", what, hint="give every row its key")
