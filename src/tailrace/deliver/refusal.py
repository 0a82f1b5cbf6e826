"""Refusals: how writers say which messages a destination does not take, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.message import Op


def span(messages: Messages) -> str:
    """Where in the log some messages are."""
    offsets = messages.offsets()
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return f"offset {first}" if first == last else f"offsets {first}..{last}"


def refused(namespace: str, where: str, error: Exception | str) -> TailraceError:
    """What a destination says about messages."""
    told = " ".join(str(error).split())
    what = f"{namespace}, {where}: {told}"
    return TailraceError("destination.refused", what, hint="mend the table or the messages, then run again")


def refuse_shared(namespace: str, table: str, tables: Mapping[str, str]) -> None:
    """Two namespaces in one table would overwrite each other; `tables` says where each goes."""
    for other, taken in tables.items():
        if taken == table and other != namespace:
            what = f"{namespace} and {other} would both be written to table {table}"
            raise TailraceError("destination.refused", what, hint="give them destinations of their own")


def refuse_changes(messages: Messages) -> None:
    """Without a key rows can only be added."""
    ops: list[Any] = messages.ops().to_pylist()
    other = next((at for at, op in enumerate(ops) if op != Op.INSERT), None)
    if other is not None:
        offset = messages.offsets()[other].as_py()
        what = f"{messages.namespace} has no key, so the {Op(ops[other]).name.lower()} at offset {offset} finds no row"
        raise TailraceError("destination.refused", what, hint="say which columns are the key with `key`")


def refuse_without_key(messages: Messages, key: tuple[str, ...]) -> None:
    """A row whose key is not told cannot be found."""
    missing = [name for name in key if name not in messages.fields]
    if missing:
        what = f"{messages.namespace} {span(messages)} comes without its key column {', '.join(missing)}"
        raise TailraceError("destination.refused", what, hint="keep the key columns in the functions of this writer")


def refuse_null(messages: Messages, key: tuple[str, ...], columns: list[pa.Array[Any]]) -> None:
    """To a database no two NULLs are the same; `columns` are those of the key."""
    empty = [(pc.index(column.is_null(), True).as_py(), name) for name, column in zip(key, columns, strict=True)]
    nulls = [(at, name) for at, name in empty if at >= 0]
    if nulls:
        at, name = min(nulls)
        offset = messages.offsets()[at].as_py()
        what = f"{messages.namespace} has NULL in its key column {name} at offset {offset}, so it names no row"
        hint = "give the row a key in the source, or say which columns are the key with `key`"
        raise TailraceError("destination.refused", what, hint=hint)
