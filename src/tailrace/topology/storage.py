"""What a registry keeps beyond the life of its process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tailrace.errors import TailraceError
from tailrace.topology.member import Report, State
from tailrace.topology.site import Site


@dataclass(frozen=True, slots=True)
class Record:
    """One node as it is kept."""

    site: Site
    state: State
    is_source: bool
    is_stopped: bool
    report: Report
    seen: float | None
    """When it was last heard of, in seconds since 1970."""
    source: Site | None
    """From which node it replicates."""
    reserved: Site | None
    """Where a slot is kept for it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """All that was kept."""

    records: tuple[Record, ...] = ()
    rules: tuple[tuple[Site, Site], ...] = ()
    """Replicas, each with a source that dials it."""
    tunables: Mapping[str, str] = field(default_factory=dict)
    fanouts: Mapping[str, int] = field(default_factory=dict)


class Storage(Protocol):
    """Where a registry keeps what it knows. One registry at a time has it; calls come one after the other.

    Every call is one transaction, on disk when the call returns; a call that raises has kept nothing.
    """

    def load(self) -> Kept:
        """All that was kept. Called once, first."""

    def save(self, records: Iterable[Record], forgotten: Iterable[Site]) -> None:
        """Forget these nodes, then keep those as they are now."""

    def save_reports(self, records: Iterable[Record]) -> None:
        """Keep how far nodes say that they are; the rest of them is as it was."""

    def add_rule(self, replica: Site, source: Site) -> None:
        """Keep a rule; one that is there already stays."""

    def remove_rule(self, replica: Site, source: Site) -> None:
        """Forget a rule."""

    def set_tunable(self, name: str, text: str) -> None:
        """Keep the value of a tunable."""

    def set_fanout(self, database: str, fanout: int | None) -> None:
        """Keep the fan-out of one log, or forget it."""

    def close(self) -> None:
        """Let another registry have it. Called once, last."""


def open_storage(address: str) -> Storage:
    """The storage at an address: a path or `sqlite:///path`, or `postgresql://…`. Nobody else may have it."""
    try:
        from tailrace.topology.databasesql import DatabaseStorage
    except ModuleNotFoundError:
        hint = "pip install 'tailrace[registry]'"
        raise TailraceError("topology.registry_failed", "SQLAlchemy is not installed", hint=hint) from None
    return DatabaseStorage(address)


class NoStorage:
    """Keeps nothing: for simulations, and for registries whose nodes may all register again."""

    def load(self) -> Kept:
        return Kept()

    def save(self, records: Iterable[Record], forgotten: Iterable[Site]) -> None: ...

    def save_reports(self, records: Iterable[Record]) -> None: ...

    def add_rule(self, replica: Site, source: Site) -> None: ...

    def remove_rule(self, replica: Site, source: Site) -> None: ...

    def set_tunable(self, name: str, text: str) -> None: ...

    def set_fanout(self, database: str, fanout: int | None) -> None: ...

    def close(self) -> None: ...
