"""Half characters: JavaScript's texts may have one half of a pair of surrogates, and JSON can say so (`\\ud83d`).

That is no text for anybody else. Rows that have one are read nevertheless, with bytes in the place of the text: a
database that cannot keep these refuses the row, and takes the others.
"""

from __future__ import annotations

import json
from typing import Any


def read_half_characters(content: bytes) -> list[Any] | None:
    """Rows in which texts may have half characters; None when the content is wrong in another way."""
    if b"\\ud" not in content.lower():
        return None
    try:
        told = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if type(told) is not list or not all(type(row) is dict and all(map(_is_text, row)) for row in told):
        return None
    return [{name: _told(value) for name, value in row.items()} for row in told]


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told(value: Any) -> Any:
    if type(value) is str and not _is_text(value):
        return {"$bytes": value.encode(errors="surrogatepass").hex()}
    return value
