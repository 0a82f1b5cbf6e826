"""Fields by path. `address.city` is the field `city` within `address`; of a list it is that field of every element.

Paths are compared with names and never cut, so a name may hold a dot itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages
from tailrace.log.batch import KEY_METADATA
from tailrace.log.documents import is_json

Paths = Mapping[str, str]
"""Paths, each with what the field is to be called; functions that do not rename leave that empty."""

Step = Callable[[str, Paths, Callable[[str], bool]], tuple[str, Paths] | None]
"""Decides about one field: its name, and the paths that go on inside it; None to leave it out.

Its third argument tells whether a path leads to something inside the field.
"""


class Clash(ValueError):
    """Two fields would have the same name."""


@dataclass(frozen=True, slots=True)
class Found:
    """The values of a field."""

    column: pa.Array[Any]
    within: str | None = None
    """When the column holds JSON text: the path inside it, empty for the whole."""


def inside(paths: Paths, name: str) -> dict[str, str]:
    """The paths that go on inside a field."""
    prefix = name + "."
    return {path[len(prefix) :]: new.removeprefix(prefix) for path, new in paths.items() if path.startswith(prefix)}


def find(column: pa.StructArray, path: str) -> Found | None:
    """The field at a path, null wherever one of its parents is; None when there is none."""
    for at, field in enumerate(column.type):
        if field.name != path and not path.startswith(field.name + "."):
            continue
        child: Any = pc.struct_field(column, [at])
        rest = path[len(field.name) + 1 :]
        if is_json(field):
            return Found(child, rest)
        if not rest:
            return Found(child)
        found = find(child, rest) if pa.types.is_struct(field.type) else None
        if found is not None:
            return found
    return None


def has(kind: pa.DataType, path: str) -> bool:
    """Whether a path leads to a field of a type; JSON text may hold anything."""
    if _is_list(kind):
        return has(cast("Any", kind).value_type, path)
    if not pa.types.is_struct(kind):
        return False
    for field in kind:
        if field.name == path:
            return True
        if path.startswith(field.name + ".") and _holds(field, path[len(field.name) + 1 :]):
            return True
    return False


def edit(column: pa.StructArray, paths: Paths, step: Step) -> pa.StructArray:
    """A struct column after every field was decided about. Nulls, metadata and the number of rows stay."""
    fields: list[pa.Field[Any]] = []
    children: list[pa.Array[Any]] = []
    for at, field in enumerate(column.type):
        kept = step(field.name, paths, partial(_holds, field))
        if kept is None:
            continue
        name, inner = kept
        child = column.field(at)
        if inner:
            child = _edit_texts(child, inner, step) if is_json(field) else _edit_inside(child, inner, step)
        fields.append(pa.field(name, child.type, field.nullable, field.metadata))
        children.append(child)
    _refuse_clash([field.name for field in fields], [field.name for field in column.type])
    return struct_of(fields, children, column)


def struct_of(fields: list[pa.Field[Any]], children: list[pa.Array[Any]], like: pa.Array[Any]) -> pa.StructArray:
    """A struct column that is null where another is."""
    validity = like.is_valid().buffers()[1] if like.null_count else None
    made: Any = pa.Array.from_buffers(pa.struct(fields), len(like), [validity], children=children)
    return cast("pa.StructArray", made)


def reshaped(
    messages: Messages, change: Callable[[pa.StructArray], pa.StructArray], key: Mapping[str, str] | None = None
) -> Messages:
    """Messages whose `data` and `before` were changed alike. `key` says what key columns are called now.

    A key of which a column is gone, or is no longer what it was, is no key.
    """
    data = change(messages.data)
    changed = messages.with_column("data", data)
    if messages.before is not None:
        changed = changed.with_column("before", change(messages.before))
    was = {field.name: field.type for field in messages.data.type}
    now = {field.name: field.type for field in data.type}
    names = {name: (key or {}).get(name, name) for name in messages.key}
    stays = all(name in was and now.get(new) == was[name] for name, new in names.items())
    return with_key(changed, tuple(names.values()) if stays else ())


def with_key(messages: Messages, key: tuple[str, ...]) -> Messages:
    """Messages with another key, which the columns' own metadata knows, too."""
    if key == messages.key:
        return messages
    metadata = {name: text for name, text in (messages.rows.schema.metadata or {}).items() if name != KEY_METADATA}
    if key:
        metadata[KEY_METADATA] = json.dumps(list(key)).encode()
    return replace(messages, rows=messages.rows.replace_schema_metadata(metadata), key=key)


def _holds(field: pa.Field[Any], path: str) -> bool:
    return is_json(field) or has(field.type, path)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _edit_inside(column: Any, paths: Paths, step: Step) -> Any:
    if pa.types.is_struct(column.type):
        return edit(column, paths, step)
    if not _is_list(column.type):
        return column
    values = _edit_inside(column.flatten(), paths, step)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    offset_type: Any = pa.int64() if pa.types.is_large_list(column.type) else pa.int32()
    start: Any = pa.array([0], offset_type)
    offsets = pa.concat_arrays([start, pc.cumulative_sum(lengths).cast(offset_type)])
    validity = column.is_valid().buffers()[1] if column.null_count else None
    element = column.type.value_field.with_type(values.type)
    kind = pa.large_list(element) if pa.types.is_large_list(column.type) else pa.list_(element)
    return pa.Array.from_buffers(kind, len(column), [validity, offsets.buffers()[1]], children=[values])


def _edit_texts(column: Any, paths: Paths, step: Step) -> Any:
    """JSON has no columns, so its documents are edited one by one."""
    texts = column.to_pylist()
    edited = [None if text is None else json.dumps(_edit_value(json.loads(text), paths, step)) for text in texts]
    return pa.array(edited, column.type)


def _edit_value(value: Any, paths: Paths, step: Step) -> Any:
    if isinstance(value, list):
        return [_edit_value(each, paths, step) for each in value]
    if not isinstance(value, dict):
        return value
    decided = [(step(name, paths, _is_nested(each)), each) for name, each in value.items()]
    kept = [(*decision, each) for decision, each in decided if decision is not None]
    _refuse_clash([name for name, _, _ in kept], list(value))
    return {name: _edit_value(each, inner, step) if inner else each for name, inner, each in kept}


def _is_nested(value: Any) -> Callable[[str], bool]:
    return lambda _path: isinstance(value, dict | list)


def _refuse_clash(names: list[str], original: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > max(1, original.count(name))})
    if twice:
        raise Clash(f"there would be two fields {', '.join(map(repr, twice))}")
