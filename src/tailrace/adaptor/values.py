"""SQLite's values as plain JSON and back, exactly.

A column holds values of any class in SQLite. Where one type does not fit all of them, they travel as JSON text; what
JSON has no word for is an object with one field: `{"$binary": base64}`, `{"$text": base64}` for text that is not UTF-8,
and `{"$real": "inf"}`.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from typing import Any, Final

Value = int | float | str | bytes | None
"""What a cell of SQLite can hold."""

_BINARY: Final = "$binary"
_TEXT: Final = "$text"
_REAL: Final = "$real"


class BrokenText(bytes):
    """Text that is not UTF-8. SQLite keeps it, so we do."""


def read_text(raw: bytes) -> str | BrokenText:
    """For `sqlite3.Connection.text_factory`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return BrokenText(raw)


def to_plain(value: Any) -> Any:
    """A value as plain JSON."""
    if isinstance(value, BrokenText):
        return {_TEXT: b64encode(value).decode("ascii")}
    if isinstance(value, bytes):
        return {_BINARY: b64encode(value).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return {_REAL: repr(value)}
    return value


def from_plain(plain: Any) -> Any:
    """The inverse of `to_plain`. What is no value of SQLite, such as a list, comes back as it is."""
    if not isinstance(plain, dict) or len(plain) != 1:
        return plain
    ((kind, text),) = plain.items()
    if not isinstance(text, str):
        return plain
    if kind == _BINARY:
        return b64decode(text)
    if kind == _TEXT:
        return BrokenText(b64decode(text))
    return float(text) if kind == _REAL else plain


def to_json(value: Any) -> str | None:
    """A value as JSON text; NULL stays NULL."""
    return None if value is None else json.dumps(to_plain(value), ensure_ascii=False)


def from_json(text: str | None) -> Any:
    """The inverse of `to_json`."""
    return None if text is None else from_plain(json.loads(text))
