"""SQL that people write about who gets what, made fit for one database.

`:nodeId` and `:newNodeId` are numbers. `/*psql … */` and `/*psql- … -*/` count for PostgreSQL only, what stands between
`--notpsql` and `--endnotpsql` for SQLite only, and `REPLACE INTO` is an `INSERT INTO` in PostgreSQL. Both leave alone
what is there, unless they say otherwise themselves: that a row and a node are found twice is nothing unusual.
"""

from __future__ import annotations

import re
from typing import Final

from tailrace.sync.names import Dialect

_FOR_POSTGRES: Final = re.compile(r"/\*psql-?(?P<text>.*?)-?\*/", re.DOTALL | re.IGNORECASE)
_FOR_SQLITE: Final = re.compile(r"--notpsql(?P<text>.*?)--endnotpsql", re.DOTALL | re.IGNORECASE)
_REPLACE: Final = re.compile(r"\b(?:REPLACE|INSERT\s+OR\s+REPLACE)\s+INTO\b", re.IGNORECASE)
_INSERT: Final = re.compile(r"\bINSERT\s+INTO\b", re.IGNORECASE)
_NODE: Final = re.compile(r"(?<![:\w]):(?:nodeId|newNodeId)\b")
_CONFLICT: Final = re.compile(r"\bON\s+CONFLICT\b(?P<elided>\s*\(\.\.\.\)\s*DO\s+UPDATE)?", re.IGNORECASE)
_FROM: Final = re.compile(r"\b(?:FROM|WHERE|VALUES)\b", re.IGNORECASE)
_END: Final = re.compile(r"[\s:;]+\Z")


def fitted(text: str, dialect: Dialect) -> str:
    """The statement as one dialect reads it."""
    if dialect is Dialect.POSTGRES:
        text = _FOR_SQLITE.sub("", _FOR_POSTGRES.sub(r"\g<text>", text))
        text = _END.sub("", _REPLACE.sub("INSERT INTO", text))
        conflict = _CONFLICT.search(text)
        if conflict is not None and conflict["elided"]:
            text = f"{text[: conflict.start()]}ON CONFLICT DO NOTHING{text[conflict.end() :]}"
        elif conflict is None and _INSERT.search(text):
            text += "\nON CONFLICT DO NOTHING"
    else:
        text = _FOR_POSTGRES.sub("", _FOR_SQLITE.sub(r"\g<text>", text))
    return _END.sub("", text)


def with_table(text: str, table: str) -> str:
    """A query of keys that does not say from where means the entity's own table."""
    if _FROM.search(text):
        return text
    conflict = _CONFLICT.search(text)
    place = conflict.start() if conflict is not None else len(text)
    return f"{text[:place].rstrip()} FROM {table} WHERE 1 = 1 {text[place:]}".rstrip()


def for_node(text: str, node: int | str) -> str:
    """With a node's number, or the expression that says it, where its place is."""
    return _NODE.sub(str(node).replace("\\", r"\\"), text)
