"""Growth: a table gets columns at one node sooner than at another.

A node ignores columns that it does not have, and remembers their names. When it gets one of them, its rows lack values
that others have, and its next edit would take these away. So it makes its versions older than they are: others then
answer with theirs. Of hashes none is older than another; there a row gets its values with its next change.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from collections.abc import Collection

import orjson

from tailrace.sync import names
from tailrace.sync.database import Link
from tailrace.sync.names import Dialect
from tailrace.sync.shape import Shape


def note(link: Link, shape: Shape, columns: Collection[str]) -> None:
    """Others have columns that this table does not have."""
    told = orjson.dumps(sorted({*_ignored(link, shape), *columns})).decode()
    _set(link, shape, told)


def ask_again(link: Link, shape: Shape) -> bool:
    """If the table has got columns that others had before, let them send what they have. No trigger may see this."""
    ignored = _ignored(link, shape)
    if not ignored & set(shape.column_names):
        return False
    _set(link, shape, orjson.dumps(sorted(ignored - set(shape.column_names))).decode())
    if shape.is_hash:
        return False
    time, gone, processed = (shape.own(name) for name in ("stTime", "stDeleted", "trkrProcessed"))
    no = "false" if shape.dialect is Dialect.POSTGRES else "0"
    link.run(f"UPDATE {shape.stamp} SET {time} = {time} - 1 WHERE {gone} = {no} AND {time} > 0")
    link.run(f"UPDATE {shape.table} SET {shape.version} = {shape.version} - 1 WHERE {shape.version} > 0")
    link.run(f"UPDATE {shape.tracker} SET {processed} = {no}")
    return True


def _ignored(link: Link, shape: Shape) -> set[str]:
    query = f"SELECT ignored FROM {shape.own_table(names.ENTITIES)} WHERE tableId = {shape.table_id}"
    return set(orjson.loads(link.value(query) or "[]"))


def _set(link: Link, shape: Shape, told: str) -> None:
    into = f"UPDATE {shape.own_table(names.ENTITIES)} SET ignored = {shape.mark(1)} WHERE tableId = {shape.table_id}"
    link.run(into, (told,))
