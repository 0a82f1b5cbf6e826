"""Clashes: messages in conflict with the rows that a store has. Rows are compared as the plainest values there are, so
that those of stores of several kinds can be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tailrace.adaptor.binding import bindable
from tailrace.adaptor.values import from_plain, to_plain
from tailrace.adaptor.versions import Judgement
from tailrace.deliver.messages import Messages
from tailrace.message import Op
from tailrace.node.conflict import Clash

Row = Mapping[str, Any]
Present = Callable[[Row], Row | None]
"""The row that has the key of another one."""
Look = Callable[[Sequence[Row]], Present]
"""Told which rows will be asked for."""


def clashes(messages: Messages, judged: Judgement, key: Sequence[str], look: Look) -> Iterator[Clash]:
    """The messages that are in conflict with the rows that are there, in their order."""
    places = [at for at, is_foreign in enumerate(judged.is_foreign) if is_foreign]
    if not places:
        return
    suspects = messages.take(pa.array(places, pa.int64()))
    theirs = plain_rows(suspects.data)
    before = plain_rows(suspects.before) if suspects.before is not None else [None] * len(places)
    ops: list[Any] = suspects.ops().to_pylist()
    asked = [
        (at, op, coming, saw)
        for at, op, coming, saw in zip(places, ops, theirs, before, strict=True)
        if coming is not None and not (judged.is_newer[at] and op != Op.INSERT and saw is None)
    ]
    present = look([row for _, _, coming, saw in asked for row in (coming, saw) if row is not None])
    for at, op, coming, saw in asked:
        wanted = None if op == Op.DELETE else coming
        there = present(coming)
        is_move = judged.is_move[at] and saw is not None
        left = present(saw) if is_move and saw is not None else None
        if is_same(wanted, there) and left is None:
            continue
        if is_move:
            was_seen = judged.may_move[at] and there is None and left is not None and _was_seen(saw, left, key)
        elif op == Op.INSERT:
            was_seen = there is None
        else:
            was_seen = saw is None or _was_seen(saw, there, key)
        if judged.is_newer[at] and was_seen:
            continue
        yield Clash(
            at=at,
            key=row_text({name: coming[name] for name in key}) or "",
            left_key=row_text({name: saw[name] for name in key}) if is_move and saw is not None else None,
            ours=row_text(there if there is not None else left),
            theirs=row_text(wanted),
            is_newer=judged.is_newer[at],
        )


def plain_rows(rows: pa.StructArray) -> list[dict[str, Any] | None]:
    """Rows as SQLite would have them."""
    columns = [bindable(rows.field(field.name), field) for field in rows.type]
    names = [field.name for field in rows.type]
    there: list[Any] = rows.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if is_there else None
        for is_there, row in zip(there, zip(*columns, strict=True), strict=True)
    ]


def is_same(told: Row | None, there: Row | None) -> bool:
    """Whether a row is what somebody says, as far as it was said."""
    if told is None or there is None:
        return told is there
    present = {name.lower(): value for name, value in there.items()}
    return all(present.get(name.lower()) == value for name, value in told.items())


def row_text(row: Row | None) -> str | None:
    """A row as a JSON object."""
    if row is None:
        return None
    return json.dumps({name: to_plain(value) for name, value in row.items()}, ensure_ascii=False)


def row_of(text: str) -> dict[str, Any]:
    """The inverse of `row_text`."""
    return {name: from_plain(value) for name, value in json.loads(text).items()}


def _was_seen(saw: Row | None, there: Row | None, key: Sequence[str]) -> bool:
    """Whether a row is what a writer saw. Of some only the key is told: all else that they have is nothing."""
    if saw is not None and there is not None and all(saw[name] is None for name in saw if name not in key):
        return is_same({name: saw[name] for name in key}, there)
    return is_same(saw, there)
