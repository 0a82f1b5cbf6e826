"""The statements of an image."""

from __future__ import annotations

from typing import Final

TABLES: Final = (
    "CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE chunks(
        space INTEGER, number INTEGER, rows INTEGER NOT NULL, frames BLOB NOT NULL, PRIMARY KEY (space, number)
    )""",
    "CREATE TABLE rows(space INTEGER, key BLOB, tuple BLOB NOT NULL, PRIMARY KEY (space, key)) WITHOUT ROWID",
    "CREATE TABLE undo(number INTEGER PRIMARY KEY, space INTEGER NOT NULL, key BLOB NOT NULL, tuple BLOB)",
)
"""`chunks` has rows as the snapshot brought them; a space whose rows change has them in `rows` instead. `undo` has what
the last stretch of changes has overwritten, null where nothing was."""
FACT: Final = "SELECT value FROM facts WHERE name = ?"
SET_FACT: Final = "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
ADD_CHUNK: Final = "INSERT INTO chunks VALUES (?, ?, ?, ?)"
CHUNKS: Final = "SELECT number, rows FROM chunks WHERE space = ? ORDER BY number"
CHUNK: Final = "SELECT frames FROM chunks WHERE space = ? AND number = ?"
HAS_CHUNKS: Final = "SELECT 1 FROM chunks WHERE space = ? LIMIT 1"
DROP_CHUNKS: Final = "DELETE FROM chunks WHERE space = ?"
GET: Final = "SELECT tuple FROM rows WHERE space = ? AND key = ?"
PUT: Final = "INSERT INTO rows VALUES (?, ?, ?) ON CONFLICT (space, key) DO UPDATE SET tuple = excluded.tuple"
REMOVE: Final = "DELETE FROM rows WHERE space = ? AND key = ?"
REMOVE_ALL: Final = "DELETE FROM rows WHERE space = ?"
ALL: Final = "SELECT tuple FROM rows WHERE space = ? ORDER BY key"
NOTE: Final = "INSERT INTO undo(space, key, tuple) VALUES (?, ?, ?)"
NOTE_ALL: Final = "INSERT INTO undo(space, key, tuple) SELECT space, key, tuple FROM rows WHERE space = ?"
UNDO: Final = "SELECT space, key, tuple FROM undo ORDER BY number DESC"
FORGET_UNDO: Final = "DELETE FROM undo"
