"""Access: whether programs may write a node's store, and if not, why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from tailrace.relay.applier import State

if TYPE_CHECKING:
    from tailrace.node.store import Store


class Writes(StrEnum):
    """Where rows may be written."""

    ANY = "any"
    """At every node."""
    LEADER = "leader"
    """At the node that leads."""


class Access:
    """One store, closed to its users from the beginning until the node is as far as others are."""

    def __init__(
        self,
        store: Store,
        *,
        quorum: int,
        states: Callable[[], Iterable[State]],
        refusal: Callable[[], str | None],
    ) -> None:
        self._store = store
        self._quorum = quorum
        self._states = states
        self._refusal = refusal
        self._is_orphan = quorum > 0
        self._known: tuple[str | None, frozenset[str]] | None = None

    @property
    def why_closed(self) -> str | None:
        """Why only the node writes now; None when everybody may."""
        if self._is_orphan:
            synced = sum(state is State.FOLLOW for state in self._states())
            if synced < self._quorum:
                return f"{synced} of {self._quorum} sources are in sync (quorum)"
            self._is_orphan = False  # for good: who loses its sources later goes on
        return self._refusal()

    def settle(self) -> None:
        """Open or close the store as it should be now, and close tables that are new."""
        why = self.why_closed
        tables = frozenset(self._store.namespaces()) if why is not None else frozenset()
        if self._known == (why, tables):
            return
        if why is not None:
            self._store.close_to_users()
        else:
            self._store.open_to_users()
        self._known = (why, tables)
