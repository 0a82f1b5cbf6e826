"""The tunables that decide about places, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.topology.tunables import Tunables


@dataclass(frozen=True, slots=True)
class Limits:
    """What holds for every tree, unless it has a fan-out of its own."""

    fanout: int
    candidates_max: int
    pending_max: int
    pending_lease_s: float
    active_lease_s: float
    keepalive_s: float
    retry_s: float
    forget_s: float
    hysteresis_tiers: int

    @classmethod
    def of(cls, tunables: Tunables) -> Limits:
        keepalive_s = tunables.seconds("physrep_keepalive_freq_sec")
        return cls(
            fanout=tunables.number("physrep_fanout"),
            candidates_max=tunables.number("physrep_max_candidates"),
            pending_max=tunables.number("physrep_max_pending_replicants"),
            pending_lease_s=tunables.seconds("physrep_pending_lease_sec"),
            active_lease_s=keepalive_s * tunables.number("physrep_active_lease_keepalives"),
            keepalive_s=keepalive_s,
            retry_s=tunables.seconds("physrep_reconnect_penalty"),
            forget_s=tunables.seconds("physrep_forget_sec"),
            hysteresis_tiers=tunables.number("physrep_rebalance_hysteresis"),
        )

    @property
    def move_lease_s(self) -> float:
        """A replica hears of its move with its next keepalive, and then takes the time that any other takes."""
        return 2 * self.keepalive_s + self.pending_lease_s
