"""Statements in the binary log: where transactions begin and end, tables that are emptied, and what should be rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_HEAD_BYTES: Final = 13
_GAP: Final = re.compile(r"(?:\s+|/\*(?!!).*?\*/|--\s[^\n]*(?:\n|$)|#[^\n]*(?:\n|$))*", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z]+")
_NAME: Final = r'(`(?:[^`]|``)+`|"(?:[^"]|"")+"|[^\s`".;/]+)'
_TRUNCATE: Final = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}(?:\s*\.\s*{_NAME})?", re.IGNORECASE)
_CHANGING: Final = frozenset(("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"))
_INSIDE: Final = frozenset(("SAVEPOINT", "RELEASE"))


@dataclass(frozen=True, slots=True)
class Statement:
    """What a statement is, as far as it matters here."""

    schema: str
    """The database it was written for."""
    head: str
    """Its first word."""
    truncated: tuple[str, str]
    """Database and name of the table that it empties, both empty when it empties none."""

    @property
    def is_begin(self) -> bool:
        return self.head == "BEGIN"

    @property
    def is_inside(self) -> bool:
        """Whether it is part of a transaction and does not end it."""
        return self.head in _INSIDE

    @property
    def is_rollback(self) -> bool:
        return self.head == "ROLLBACK"

    @property
    def changes_rows(self) -> bool:
        """Whether it changes rows without telling which."""
        return self.head in _CHANGING


def statement(body: bytes) -> Statement:
    """The statement of a query event."""
    schema_bytes, variables_bytes = body[8], int.from_bytes(body[11:13], "little")
    begin = _HEAD_BYTES + variables_bytes
    schema = body[begin : begin + schema_bytes].decode(errors="replace")
    text = body[begin + schema_bytes + 1 :].decode(errors="replace")
    gap = _GAP.match(text)
    text = text[gap.end() if gap else 0 :]
    word = _WORD.match(text)
    head = word.group().upper() if word else ""
    return Statement(schema, head, _truncated(text, schema) if head == "TRUNCATE" else ("", ""))


def _truncated(text: str, schema: str) -> tuple[str, str]:
    found = _TRUNCATE.match(text)
    if found is None:
        return "", ""
    first, second = _unquoted(found.group(1)), _unquoted(found.group(2) or "")
    return (first, second) if second else (schema, first)


def _unquoted(name: str) -> str:
    for sign in ("`", '"'):
        if name.startswith(sign):
            return name[1:-1].replace(sign * 2, sign)
    return name
