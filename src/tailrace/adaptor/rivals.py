"""Rivals: messages that cannot be written beside a row with another key, because both have what must be unique.

Only what another node wrote is a rival. Where one node wrote both, it had them both: then the tables differ, and the
database says so itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from tailrace.adaptor.clashes import Look, Row, is_same, plain_rows, row_text
from tailrace.adaptor.rowkeys import key_text
from tailrace.adaptor.versions import Mark, marks
from tailrace.deliver.messages import Messages
from tailrace.message import Op
from tailrace.node.conflict import Clash

Columns = tuple[str, ...]
LookBy = Callable[[Columns], Look]
"""How rows are looked for by the values of some columns."""
Find = Callable[[Collection[str]], Mapping[str, Mark]]


def rivals(
    messages: Messages, key: Sequence[str], uniques: Collection[Columns], look: LookBy, find: Find
) -> Iterator[Clash]:
    """The messages that rows with other keys are in the way of, in their order, once for each of these rows."""
    coming = plain_rows(messages.data)
    before = plain_rows(messages.before) if messages.before is not None else [None] * len(messages)
    ops: list[Any] = messages.ops().to_pylist()
    rows = [None if op == Op.DELETE else row for op, row in zip(ops, coming, strict=True)]
    present = {
        columns: look(columns)([row for row in rows if row is not None and _has(row, columns)]) for columns in uniques
    }
    for at, (row, saw, mine) in enumerate(zip(rows, before, marks(messages), strict=True)):
        if row is None:
            continue
        found: dict[str, Row] = {}
        for columns, there_with in present.items():
            there = there_with(row) if _has(row, columns) else None
            if there is not None and not any(is_same(_key(other, key), there) for other in (row, saw) if other):
                found[key_text(_key(there, key).values())] = there
        known = find(found) if found else {}
        for text, there in found.items():
            mark = known.get(text)
            if mark is None or mark[1] != mine[1]:
                yield Clash(
                    at=at,
                    key=row_text(_key(row, key)) or "",
                    left_key=None,
                    ours=row_text(there),
                    theirs=row_text(row),
                    is_newer=mark is None or mine > mark,
                    rival=row_text(_key(there, key)) or "",
                )


def _has(row: Row, columns: Columns) -> bool:
    """Whether a row has values in all these columns: one without is like no other."""
    return all(row.get(name) is not None for name in columns)


def _key(row: Row, key: Sequence[str]) -> dict[str, Any]:
    """The key of a row, with the names that messages give its columns."""
    values = {name.lower(): value for name, value in row.items()}
    return {name: values[name.lower()] for name in key}
