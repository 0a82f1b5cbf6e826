"""Reverse rules: which replicas wait until which sources dial them."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.topology.site import Site


class Rules:
    """Pairs of a replica and a source of it."""

    def __init__(self) -> None:
        self._sources: dict[Site, dict[Site, None]] = {}
        self._replicas: dict[Site, dict[Site, None]] = {}

    def add(self, replica: Site, source: Site) -> None:
        self._sources.setdefault(replica, {})[source] = None
        self._replicas.setdefault(source, {})[replica] = None

    def remove(self, replica: Site, source: Site) -> None:
        """Nothing happens if there is no such rule."""
        for pairs, left, right in ((self._sources, replica, source), (self._replicas, source, replica)):
            if left in pairs:
                pairs[left].pop(right, None)
                if not pairs[left]:
                    del pairs[left]

    def sources_of(self, replica: Site) -> tuple[Site, ...]:
        """Who dials this replica."""
        return tuple(self._sources.get(replica, ()))

    def replicas_of(self, source: Site) -> tuple[Site, ...]:
        """Whom this source dials."""
        return tuple(self._replicas.get(source, ()))

    def __iter__(self) -> Iterator[tuple[Site, Site]]:
        return ((replica, source) for replica, sources in self._sources.items() for source in sources)

    def __bool__(self) -> bool:
        return bool(self._sources)
