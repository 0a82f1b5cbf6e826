"""One line of JSON as a document, every value exactly as it was."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

import orjson

from tailrace.adaptor.files.columns import Document

_DEPTH_MAX: Final = 200
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")


def has_long_number(text: bytes) -> bool:
    """Whether there may be a whole number beyond 64 bits, which orjson would round."""
    return _LONG_NUMBER.search(text) is not None


def document_of(line: bytes, *, may_round: bool) -> Document:
    """The document of a line; ValueError when there is none."""
    if line.count(b"[") + line.count(b"{") > _DEPTH_MAX and _depth(line) > _DEPTH_MAX:
        raise ValueError(f"the document is nested deeper than {_DEPTH_MAX}")
    document = _loads_exactly(line) if may_round else _loads(line)
    if type(document) is not dict:
        raise ValueError("the line is not a document")
    return document


def _loads(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return _loads_exactly(line)


def _loads_exactly(line: bytes) -> Any:
    """Slower, for half surrogate pairs and numbers of any length."""
    return json.loads(
        line.decode(), parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_document_of_pairs
    )


def _document_of_pairs(pairs: list[tuple[str, Any]]) -> Document:
    for name, _ in pairs:
        name.encode()
    return dict(pairs)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no number that a double can hold")


def _depth(line: bytes) -> int:
    """How deep brackets are nested; those within text count too."""
    deepest = depth = 0
    for bracket in re.findall(rb"[][{}]", line):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
