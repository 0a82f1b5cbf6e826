"""A table of things to do, which most tests sync."""

from __future__ import annotations

from typing import Any, Final

from tailrace.sync.entity import Entity
from tailrace.sync.store import SyncStore
from tests.sync.places import Place

TABLE_ID: Final = 42
CREATE: Final = "CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what text, is_done boolean)"


def todo(**more: Any) -> Entity:
    return Entity("todo", TABLE_ID, "changed", **more)


def node(place: Place, **more: Any) -> SyncStore:
    """A node with an empty table."""
    place.run(CREATE)
    return place.install(todo(**more))


def put(place: Place, key: Any, what: str, changed: int | None = None) -> None:
    """The application inserts a row, or changes the one that is there."""
    if not place.ask("SELECT 1 FROM todo WHERE id = ?", (key,)):
        place.ask("INSERT INTO todo(id, what, changed) VALUES (?, ?, ?)", (key, what, changed))
    elif changed is None:
        place.ask("UPDATE todo SET what = ? WHERE id = ?", (what, key))
    else:
        place.ask("UPDATE todo SET what = ?, changed = ? WHERE id = ?", (what, changed, key))


def remove(place: Place, key: int) -> None:
    place.ask("DELETE FROM todo WHERE id = ?", (key,))


def whats(place: Place) -> dict[int, str]:
    return dict(place.ask("SELECT id, what FROM todo ORDER BY id"))


def trackers(place: Place) -> list[tuple[Any, ...]]:
    """Key, destination, the version that it is known to have, and whether nothing is to be sent."""
    query = "SELECT trkrEntityPrimaryKey, trkrDestinationNode, trkrVersionId, trkrProcessed FROM todoReplicate"
    return [(key, to, version, bool(done)) for key, to, version, done in place.ask(f"{query} ORDER BY 1, 2")]


def version(place: Place, key: int) -> int:
    found: int = place.ask("SELECT changed FROM todo WHERE id = ?", (key,))[0][0]
    return found
