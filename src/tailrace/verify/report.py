"""What a verification found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.verify.differences import Differences

SHOWN: Final = 20
"""So many keys of a namespace are told to people and programs."""


@dataclass(frozen=True, slots=True)
class NamespaceReport:
    """One namespace of one writer."""

    namespace: str
    differences: Differences
    moving: int = 0
    """Keys that changed at every look, so that nobody knows."""

    def encode(self) -> dict[str, Any]:
        found = self.differences
        return {
            "namespace": self.namespace,
            "equal": not found.total,
            "source_rows": found.expected_rows,
            "destination_rows": found.stored_rows,
            "differing": {kind.value: count for kind, count in found.counts.items()},
            "moving": self.moving,
            "keys": [{"kind": key.kind.value, "key": key.text} for key in found.keys[:SHOWN]],
        }


@dataclass(slots=True)
class WriterReport:
    """One writer."""

    name: str
    namespaces: list[NamespaceReport] = field(default_factory=list)
    incomparable: str | None = None
    """Why it cannot be compared, which is no failure."""
    notes: list[str] = field(default_factory=list)
    """What may explain differences."""

    @property
    def differing(self) -> int:
        return sum(each.differences.total for each in self.namespaces)

    def encode(self) -> dict[str, Any]:
        return {
            "writer": self.name,
            "incomparable": self.incomparable,
            "notes": self.notes,
            "namespaces": [each.encode() for each in self.namespaces],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """A pipeline."""

    pipeline: str
    writers: list[WriterReport]

    @property
    def differing(self) -> int:
        """How many keys differ."""
        return sum(writer.differing for writer in self.writers)

    def encode(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "pipeline": self.pipeline,
            "equal": not self.differing,
            "writers": [writer.encode() for writer in self.writers],
        }

    def error(self, hint: str) -> TailraceError | None:
        """The error with which a command ends, None when nothing differs."""
        if not self.differing:
            return None
        names = [writer.name for writer in self.writers if writer.differing]
        keys = "1 key differs" if self.differing == 1 else f"{self.differing} keys differ"
        notes = "".join(f"; {note}" for writer in self.writers if writer.differing for note in writer.notes)
        what = f"{keys} between the source and {', '.join(names)}{notes}"
        return TailraceError("verify.differs", what, hint=hint)
