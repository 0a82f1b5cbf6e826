"""Arrays as PostgreSQL writes them, `{1,NULL,"a \"b\""}` and `[2:3]={4,5}`, as nested lists of texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tailrace.adaptor.converting import Convert

Nested = list[Any]


def lists(elements: Convert, dimensions: int, delimiter: str = ",") -> Convert:
    """Columns of arrays of so many dimensions, whose elements are converted all at once."""

    def convert(texts: pa.Array[Any]) -> pa.Array[Any]:
        values = [None if text is None else parse(text, delimiter) for text in texts.to_pylist()]
        return _level(values, dimensions, elements)

    return convert


def parse(text: str, delimiter: str = ",") -> Nested:
    """An array; NULL is None, everything else text. Raises `ValueError` for one that does not count from 1."""
    if text.startswith("["):
        raise ValueError(f"{text:.40} has elements that are not numbered from 1")
    stack: list[Nested] = [[]]
    at = 0
    while at < len(text):
        sign = text[at]
        if sign == "{":
            stack.append([])
            at += 1
        elif sign == "}":
            done = stack.pop()
            stack[-1].append(done)
            at += 1
        elif sign == delimiter:
            at += 1
        elif sign == '"':
            value, at = _quoted(text, at + 1)
            stack[-1].append(value)
        else:
            end = at
            while text[end] not in (delimiter, "}"):
                end += 1
            word = text[at:end]
            stack[-1].append(None if word == "NULL" else word)
            at = end
    if len(stack) != 1 or len(stack[0]) != 1:
        raise ValueError(f"{text!r:.40} is no array")
    whole: Nested = stack[0][0]
    return whole


def _quoted(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while text[at] != '"':
        if text[at] == "\\":
            at += 1
        parts.append(text[at])
        at += 1
    return "".join(parts), at + 1


def _level(values: list[Any], dimensions: int, elements: Convert) -> pa.Array[Any]:
    """One dimension of lists; what is inside is made of all of them together."""
    offsets: list[int | None] = []
    inside: list[Any] = []
    for value in values:
        offsets.append(None if value is None else len(inside))
        if value is not None:
            inside += _checked(value, dimensions)
    offsets.append(len(inside))
    child = elements(pa.array(inside, pa.string())) if dimensions == 1 else _level(inside, dimensions - 1, elements)
    starts: Any = pa.array(offsets, pa.int32())
    return pa.ListArray.from_arrays(starts, child)


def _checked(value: Nested, dimensions: int) -> Nested:
    is_deeper = any(isinstance(part, list) for part in value)
    if is_deeper != (dimensions > 1) and value:
        found, told = ("more", dimensions) if is_deeper else ("fewer", dimensions)
        raise ValueError(f"an array has {found} dimensions than the {told} of its column")
    return value
