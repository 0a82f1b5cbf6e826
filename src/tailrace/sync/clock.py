"""Clocks: which of two edits is newer is told by the clocks of the nodes, so these are compared when nodes meet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_AHEAD_S
from tailrace.units import show_seconds

WARN_AFTER_S: Final = 60.0


class ClockPolicy(StrEnum):
    """What happens when the clocks of two nodes differ by too much."""

    WARN = "warn"
    """It is told, and sync goes on. Edits that lose because of it are in quarantine."""
    REFUSE = "refuse"
    """Nothing is synced until a clock is set right."""
    CORRECT = "correct"
    """From now on this node goes by the other one's clock. For devices that call a central node."""


@dataclass(frozen=True, slots=True)
class ClockRule:
    """A policy, and from when on it counts."""

    policy: ClockPolicy = ClockPolicy.WARN
    warn_after_s: float = WARN_AFTER_S
    ahead_max_s: float = SYNC_AHEAD_S
    """From here on rows of one node would be refused by the other, so nothing is synced but with `correct`."""

    def judge(self, peer: str, ahead_ms: int) -> ClockVerdict:
        """How another node's clock, which is so much ahead, is dealt with. Raises `sync.clock` if it is refused."""
        if abs(ahead_ms) <= min(self.warn_after_s, self.ahead_max_s) * 1000:
            return ClockVerdict(ahead_ms)
        shown = show_seconds(abs(ahead_ms) / 1000)
        what = f"the clock of {peer} is {shown} {'ahead of' if ahead_ms > 0 else 'behind'} this node's"
        is_too_far = abs(ahead_ms) > self.ahead_max_s * 1000 and self.policy is not ClockPolicy.CORRECT
        if self.policy is ClockPolicy.REFUSE or is_too_far:
            raise TailraceError("sync.clock", f"{what}, and nothing is synced", hint="set the clocks, with NTP say")
        if self.policy is ClockPolicy.CORRECT:
            return ClockVerdict(ahead_ms, f"{what}; it goes by that one from now on", shift_ms=ahead_ms)
        why = "an older edit may win over a newer one; what loses is in quarantine"
        return ClockVerdict(ahead_ms, f"{what}: {why}")


@dataclass(frozen=True, slots=True)
class ClockVerdict:
    """What was found about a clock."""

    ahead_ms: int
    warning: str | None = None
    """For people."""
    shift_ms: int = 0
    """By so much this node's clock is to be corrected."""


def ahead_ms(theirs_ms: int, before_ms: int, after_ms: int) -> int:
    """How much another clock is ahead that was read at some time between two looks at ours."""
    if before_ms <= theirs_ms <= after_ms:
        return 0
    return theirs_ms - (after_ms if theirs_ms > after_ms else before_ms)
