"""Nodes that edit and meet at random, and what must be true of them at the end (I9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.sync.store import SyncStore
from tests.sync import todo
from tests.sync.direct import Fault, sync
from tests.sync.places import Place

KEYS = 3
SHIFTS_MS = (-3_600_000, 0, 3_600_000)


@dataclass(frozen=True)
class Put:
    node: int
    key: int


@dataclass(frozen=True)
class Remove:
    node: int
    key: int


@dataclass(frozen=True)
class Move:
    node: int
    key: int
    to: int


@dataclass(frozen=True)
class Sync:
    caller: int
    called: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Shift:
    """A clock is set."""

    node: int
    by_ms: int


Step: TypeAlias = Put | Remove | Move | Sync | Shift
Version: TypeAlias = tuple[int, int, int]
"""A key, and when and where it was changed."""


def steps(nodes: int, most: int) -> st.SearchStrategy[list[Step]]:
    """Something that may happen among some nodes."""
    node, key = st.integers(0, nodes - 1), st.integers(1, KEYS)
    faults = st.lists(st.sampled_from([Fault.NONE, *Fault]), max_size=8).map(tuple)
    pairs = st.sampled_from([(one, other) for one in range(nodes) for other in range(nodes) if one != other])
    step = st.one_of(
        st.builds(Put, node, key),
        st.builds(Put, node, key),
        st.builds(Remove, node, key),
        st.builds(Move, node, key, key),
        st.builds(lambda pair, faults: Sync(pair[0], pair[1], faults), pairs, faults),
        st.builds(lambda pair, faults: Sync(pair[0], pair[1], faults), pairs, faults),
        st.builds(Shift, node, st.sampled_from(SHIFTS_MS)),
    )
    return st.lists(step, min_size=1, max_size=most)


@dataclass
class World:
    """Some nodes, and every edit that was ever made."""

    places: Sequence[Place]
    stores: Sequence[SyncStore]
    edits: dict[Version, bool] = field(default_factory=dict)
    """Whether each was a deletion."""
    followed: set[Version] = field(default_factory=set)
    """Edits on top of which another one was made."""
    met: set[tuple[int, int]] = field(default_factory=set)
    count: int = 0

    def clear(self) -> None:
        """As new, except that all are still who they are."""
        own = ("todoReplicate", "todoStamp", "ChangeLog", "DoorNode", "DoorQuarantine")
        for place in self.places:
            place.run(
                "DELETE FROM todo", *(f"DELETE FROM {name}" for name in own), "UPDATE DoorSelf SET clockShift = 0"
            )

    def do(self, step: Step) -> None:
        match step:
            case Put(node, key):
                self.count += 1
                self._edit(node, key, lambda place: todo.put(place, key, f"edit {self.count}"))
            case Remove(node, key):
                if key in todo.whats(self.places[node]):
                    self._edit(node, key, lambda place: todo.remove(place, key))
            case Move(node, key, to):
                there = todo.whats(self.places[node])
                if key in there and to not in there:
                    query = "UPDATE todo SET id = ? WHERE id = ?"
                    self._edit(node, key, lambda place: self._edit(node, to, lambda _: place.ask(query, (to, key))))
            case Sync(caller, called, faults):
                self.sync(caller, called, faults)
            case Shift(node, by_ms):
                self.places[node].run(f"UPDATE DoorSelf SET clockShift = {by_ms}")

    def sync(self, caller: int, called: int, faults: Sequence[Fault] = ()) -> None:
        self.met.add((min(caller, called), max(caller, called)))
        try:
            sync(self.stores[caller], self.stores[called], faults)
        except TailraceError as error:
            assert error.code == "sync.unreachable" and faults, error

    def settle(self) -> None:
        """Enough rounds for everything to have reached everybody, along a chain."""
        for _ in self.stores:
            for one in range(len(self.stores) - 1):
                self.sync(one, one + 1)
            for one in reversed(range(len(self.stores) - 1)):
                self.sync(one + 1, one)

    def check(self) -> None:
        """Equal rows, nothing pending, and no edit gone without a word."""
        rows = [place.ask("SELECT id, changed, what FROM todo ORDER BY id") for place in self.places]
        assert all(each == rows[0] for each in rows), rows
        for one, other in combinations(range(len(self.stores)), 2):
            if (one, other) in self.met:
                self.sync(one, other)
                self.sync(one, other)
        for store in self.stores:
            assert store.nodes_with_pending() == {}, self._all_trackers()
        self._check_edits()

    def _all_trackers(self) -> list[object]:
        return [(store.node_id, todo.trackers(place)) for store, place in zip(self.stores, self.places, strict=True)]

    def _check_edits(self) -> None:
        final = {self._stamp(node, key) for node in range(len(self.stores)) for key in range(1, KEYS + 1)}
        kept: set[tuple[int, int, int]] = set()
        for store in self.stores:
            kept |= {(each.key[0], int(each.version), each.node) for each in store.quarantined()}
        for edit, is_deletion in self.edits.items():
            if edit in self.followed or edit in final or edit in kept:
                continue
            beaten_alike = any(is_deletion and gone and edit < other for other, gone in self._of(edit[0]))
            assert beaten_alike, f"the edit {edit} is gone: it is neither {final} nor in quarantine {kept}"

    def _of(self, key: int) -> list[tuple[Version, bool]]:
        return [(edit, gone) for edit, gone in self.edits.items() if edit[0] == key]

    def _edit(self, node: int, key: int, change: object) -> None:
        before = self._stamp(node, key)
        change(self.places[node])  # type: ignore[operator]
        after = self._stamp(node, key)
        assert after is not None and after != before and (before is None or after > before), (before, after)
        if before is not None:
            self.followed.add(before)
        self.edits[after] = not self.places[node].ask("SELECT 1 FROM todo WHERE id = ?", (key,))

    def _stamp(self, node: int, key: int) -> Version | None:
        found = self.places[node].ask("SELECT stTime, stNode FROM todoStamp WHERE stEntityPrimaryKey = ?", (key,))
        return (key, *found[0]) if found else None


def world(places: Sequence[Place]) -> World:
    return World(places, [todo.node(place) for place in places])
