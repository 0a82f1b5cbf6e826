"""What an application answers about a message that it was given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ack:
    """It is done with; it will not come again."""


@dataclass(frozen=True, slots=True)
class Retry:
    """It is to come again later. What follows from the same source waits for it."""

    after_s: float | None = None
    """By default longer each time."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Park:
    """It is put aside for somebody to look at, and the queue goes on."""

    reason: str


Answer = Ack | Retry | Park


def check_answer(said: object) -> Answer:
    """Refuse what is no answer: nobody knows what was meant."""
    if not isinstance(said, Ack | Retry | Park):
        raise TypeError(f"a listener answers with Ack(), Retry(...) or Park(...), not with {said!r:.80}")
    return said
