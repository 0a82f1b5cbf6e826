"""Lists with tasks that refer to them, and a tree whose rows refer to each other."""

from __future__ import annotations

from typing import Any, Final

from tailrace.sync.entity import Entity
from tailrace.sync.store import SyncStore
from tests.sync.direct import sync
from tests.sync.places import Place

LIST: Final = "CREATE TABLE list(id bigint PRIMARY KEY, changed bigint)"
TASK: Final = "CREATE TABLE task(id bigint PRIMARY KEY, changed bigint, what text, list bigint REFERENCES list(id) {})"
TREE: Final = """CREATE TABLE tree(id bigint PRIMARY KEY, changed bigint, what text,
    parent bigint REFERENCES tree(id) ON DELETE CASCADE)"""
PAIRS: Final = [("sqlite", "sqlite"), ("sqlite", "postgres"), ("postgres", "sqlite")]


def lists(place: Place, action: str = "ON DELETE CASCADE", batches: tuple[int, int] = (100, 100)) -> SyncStore:
    place.run(LIST, TASK.format(action))
    return place.install(Entity("list", 1, "changed", batch=batches[0]), Entity("task", 2, "changed", batch=batches[1]))


def tree(place: Place, rows: int = 1000) -> SyncStore:
    place.run(TREE)
    return place.install(Entity("tree", 1, "changed", batch_rows=rows))


def tasks(place: Place) -> list[tuple[Any, ...]]:
    return place.ask("SELECT id, list, what FROM task ORDER BY id")


def trees(place: Place) -> list[tuple[Any, ...]]:
    return place.ask("SELECT id, parent FROM tree ORDER BY id")


def settle(one: SyncStore, two: SyncStore) -> None:
    for _ in range(3):
        sync(one, two)
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


def by_caller(calls: str, one: SyncStore, two: SyncStore) -> tuple[SyncStore, SyncStore]:
    """The two, as `sync` wants them, where the first one is the sender."""
    return (one, two) if calls == "sender" else (two, one)
