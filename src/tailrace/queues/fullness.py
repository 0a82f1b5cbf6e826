"""Fullness: whether too much waits for a destination, and what then happens to messages for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tailrace.errors import TailraceError


class WhenFull(StrEnum):
    """What happens to a message for a destination that has too much waiting for it."""

    BLOCK = "block"
    """Whoever sends it waits."""
    REJECT = "reject"
    """Whoever sends it gets an error."""
    SHED = "shed"
    """It is not sent there."""


@dataclass(frozen=True, slots=True)
class Fullness:
    """How a destination stands with a client."""

    is_full: bool = False
    policy: WhenFull = WhenFull.BLOCK


def full_error(client: str, sites: Iterable[str], hint: str) -> TailraceError:
    """Too much waits for some destinations."""
    return TailraceError("queue.full", f"too much of {client} waits for {', '.join(sites)}", hint=hint)
