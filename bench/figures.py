"""What every benchmark shares: rounds of ours against a peer, and the one JSON object at the end."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Figures:
    """The figures of one benchmark, each with its target."""

    bench: str
    figures: dict[str, dict[str, object]] = field(default_factory=dict)

    def add(
        self, key: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None
    ) -> None:
        """Note a figure; without a target it is there to explain another one."""
        target = at_least if at_most is None else at_most
        ok = None if target is None else (value >= target if at_most is None else value <= target)
        self.figures[key] = {"value": round(value, 4), "target": target, "ok": ok, "unit": unit}
        verdict = "" if ok is None else f" (target {target:g}: {'ok' if ok else 'MISSED'})"
        print(f"{key}: {value:.4g} {unit}{verdict}", file=sys.stderr, flush=True)

    def print(self) -> None:
        """The last line of stdout."""
        print(json.dumps({"bench": self.bench, "figures": self.figures}))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratios(rounds: int, ours: Callable[[], object], peer: Callable[[], object]) -> list[float]:
    """Ours against the peer, once in each round, in turn first and second, so that a busy machine hits both."""
    ours(), peer()
    found = []
    for number in range(rounds):
        if number % 2:
            peer_s, ours_s = seconds(peer), seconds(ours)
        else:
            ours_s, peer_s = seconds(ours), seconds(peer)
        found.append(ours_s / peer_s)
    return found


def median_ratio(rounds: int, ours: Callable[[], object], peer: Callable[[], object]) -> float:
    return statistics.median(ratios(rounds, ours, peer))
