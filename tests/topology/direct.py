"""A registry as replicas ask it, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tailrace.errors import TailraceError
from tailrace.topology.registry import Registry
from tailrace.topology.registrycalls import Offered
from tailrace.topology.registryclient import RegistryClient
from tailrace.topology.replica import Replica
from tailrace.topology.site import Site


class Direct:
    """The calls of a client. `asked` has their names; while it `is_away` they all fail."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.asked: list[str] = []
        self.is_away = False

    @property
    def client(self) -> RegistryClient:
        return cast(RegistryClient, self)

    def register_replicant(self, site: Site, report: Any, **more: Sequence[Site]) -> Offered:
        self._ask("register_replicant")
        return Offered.of(self.registry.register_replicant(site, report, **more))  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        self._ask(name)
        return getattr(self.registry, name)

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if self.is_away:
            raise TailraceError("relay.unreachable", "the registry is away", hint="wait")


class Idle:
    """What is done to a replica."""

    def __init__(self) -> None:
        self.changes = 0
        self.is_paused = False

    @property
    def replica(self) -> Replica:
        return cast(Replica, self)

    def pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused

    def change_source(self) -> None:
        self.changes += 1
