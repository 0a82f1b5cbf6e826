"""Changes that an application asks for, as messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batches_of, with_key
from tailrace.message import Lsn, Message, Op, now
from tailrace.relay.request import Change


def changed_batches(changes: Sequence[Change], keys: Mapping[str, tuple[str, ...]]) -> list[Batch]:
    """One transaction. `keys` are the key columns of each table."""
    for change in changes:
        _check(change, keys)
    messages = [
        Message(Op[change.op.upper()], now(), change.namespace, change.data, lsn=Lsn(number))
        for number, change in enumerate(changes, 1)
    ]
    return [replace(batch, rows=with_key(batch.rows, keys[batch.namespace])) for batch in batches_of(messages)]


def _check(change: Change, keys: Mapping[str, tuple[str, ...]]) -> None:
    key = keys.get(change.namespace)
    if key is None:
        what = f"there is no table {change.namespace} in the store; there are: {', '.join(keys) or 'none'}"
        raise TailraceError("input.invalid", what, hint="name one of them")
    missing = [name for name in key if change.data.get(name) is None]
    if not key or missing:
        why = f"without {', '.join(missing)}" if missing else "of a table that has no key"
        what = f"a row {why} cannot be told from others ({change.namespace})"
        raise TailraceError("input.invalid", what, hint="give every row its key")
