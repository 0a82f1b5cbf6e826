"""Bounds of a server: so many connections, each for so long. Whoever reaches one is cut off, and nobody else."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.limits import KIB


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of a server callers may have."""

    connections_max: int
    """When there are more, the one that has waited longest without asking for anything makes room."""
    head_s: float
    """How long a request may take to say what it wants, and an encrypted connection to begin."""
    stalled_s: float
    """How long an answer may wait for a caller that does not take it."""
    unwanted_bytes_max: int
    """How much of a body that was refused may still come."""
    idle_s: int = 75
    """How long a connection may stay after an answer."""
    closing_s: int = 10
    """How long those who are served have when the server ends."""
    head_bytes_max: int = 64 * KIB
