"""The names of what sync makes in a database. They are those of Door; PostgreSQL has them in small letters, so that
SQL which does not quote them finds them in either."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

SELF: Final = "DoorSelf"
NODES: Final = "DoorNode"
CHANGES: Final = "ChangeLog"
QUARANTINE: Final = "DoorQuarantine"
ENTITIES: Final = "DoorEntity"
RECEIVING: Final = "DoorReceiving"
KEYS: Final = "DoorKey"
LAST_KEYS: Final = "DoorLastKey"
"""A view, and both of them only in SQLite."""
OWN_TABLES: Final = (SELF, NODES, CHANGES, QUARANTINE, ENTITIES, RECEIVING, KEYS)

CHANGED_KEY: Final = ("chEntityPk", "chEntityPk2", "chEntityPk3", "chEntityPk4")
TRACKER_KEY: Final = "trkrEntityPrimaryKey"
TRACKER_NODE: Final = "trkrDestinationNode"
TRACKER_VERSION: Final = "trkrVersionId"
TRACKER_VERSION_NODE: Final = "trkrVersionNode"
TRACKER_PROCESSED: Final = "trkrProcessed"

STAMP_KEY: Final = "stEntityPrimaryKey"
FROM_NODE: Final = "fromNodeId"
"""The column of a receive view that says who sent a row."""
NOT_TAKEN: Final = "a trigger of the table did not take it"
NOT_DELETED: Final = "a trigger of the table did not delete it"
"""What receive views say when a row that came is not what it should be by now."""


class Dialect(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


def quoted(name: str) -> str:
    """A name as an identifier, in SQLite and in PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'


def equal(left: Sequence[str], right: Sequence[str]) -> str:
    """A condition: each expression of one list equals that of the other."""
    return " AND ".join(f"{one} = {other}" for one, other in zip(left, right, strict=True))


def mark(dialect: Dialect, number: int) -> str:
    """Where a value is bound, counted from 1."""
    return f"${number}" if dialect is Dialect.POSTGRES else f"?{number}"


def numbered(name: str, count: int) -> tuple[str, ...]:
    """Columns for a key: `name`, or for a key of several columns `name1`, `name2` and so on."""
    return (name,) if count == 1 else tuple(f"{name}{number}" for number in range(1, count + 1))
