"""Rivals: messages that cannot be written beside a row with another key, because both have what must be unique.

Only what a batch leaves behind is looked at: values that go from row to row inside a transaction are in nobody's way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from tailrace.adaptor.clashes import Look, Row, plain_rows, row_text
from tailrace.adaptor.rowkeys import key_text, keys_of
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
    new, old = keys_of(messages, key)
    touched = {*new, *old}
    ops: list[Any] = messages.ops().to_pylist()
    coming = plain_rows(messages.data)
    rows = {at: row for at in _last(new, old) if ops[at] != Op.DELETE and (row := coming[at]) is not None}
    present = {columns: look(columns)([row for row in rows.values() if _has(row, columns)]) for columns in uniques}
    known_marks = list(marks(messages))
    for at, row in rows.items():
        found: dict[str, Row] = {}
        for columns, there_with in present.items():
            there = there_with(row) if _has(row, columns) else None
            if there is not None and (text := key_text(_key(there, key).values())) not in touched:
                found[text] = there
        known = find(found) if found else {}
        for text, there in found.items():
            mine, mark = known_marks[at], known.get(text)
            yield Clash(
                at=at,
                key=row_text(_key(row, key)) or "",
                left_key=None,
                ours=row_text(there),
                theirs=row_text(row),
                is_newer=mark is None or mine > mark,
                rival=row_text(_key(there, key)) or "",
                had_both=mark is not None and mark[1] == mine[1] and mine > mark,
                with_it=_leading_to(at, new, old),
            )


def _last(new: Sequence[str], old: Sequence[str]) -> list[int]:
    """The messages whose rows are still there, where they put them, after all of them."""
    seen: set[str] = set()
    found = []
    for at in reversed(range(len(new))):
        if new[at] not in seen:
            found.append(at)
        seen |= {new[at], old[at]}
    return found[::-1]


def _leading_to(at: int, new: Sequence[str], old: Sequence[str]) -> tuple[int, ...]:
    """The messages that made a row what a message left, wherever it was before."""
    keys = {new[at]}
    found = []
    for each in reversed(range(at + 1)):
        if new[each] in keys:
            found.append(each)
            keys.add(old[each])
    return tuple(found[::-1])


def _has(row: Row, columns: Columns) -> bool:
    """Whether a row has values in all these columns: one without is like no other."""
    return all(row.get(name) is not None for name in columns)


def _key(row: Row, key: Sequence[str]) -> dict[str, Any]:
    """The key of a row, with the names that messages give its columns."""
    values = {name.lower(): value for name, value in row.items()}
    return {name: values[name.lower()] for name in key}
