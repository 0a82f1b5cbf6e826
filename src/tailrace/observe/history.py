"""History: how positions and lags were in the last hour, and the rates that follow from it. In memory, and bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tailrace.observe.model import Overview

SAMPLES: Final = 720
"""An hour at five seconds each."""
SAMPLE_S: Final = 5.0
SERIES_MAX: Final = 500
"""Parts beyond these have no history of their own."""
_RATE_SAMPLES: Final = 6

Name = tuple[str, str]
LOG: Final[Name] = ("log", "")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one part."""

    at_s: float
    position: int | None
    lag: int | None


class History:
    """Samples of everything that has a position. For one thread."""

    def __init__(self) -> None:
        self._series: dict[Name, deque[Sample]] = {}
        self.version = 0
        """Another one than before: there are new samples."""

    def add(self, overview: Overview) -> None:
        """Note how it is now. Who was not seen for an hour makes room for others."""
        self.version += 1
        gone_s = overview.at_s - SAMPLES * SAMPLE_S
        self._series = {name: series for name, series in self._series.items() if series[-1].at_s >= gone_s}
        for name, sample in _samples(overview):
            series = self._series.get(name)
            if series is None:
                if len(self._series) >= SERIES_MAX:
                    continue
                series = self._series[name] = deque(maxlen=SAMPLES)
            series.append(sample)

    def rated(self, overview: Overview) -> Overview:
        """The same with the rates of the last samples."""
        parts = tuple(replace(part, rate=self.rate((part.kind, part.name))) for part in overview.parts)
        log = None if overview.log is None else replace(overview.log, rate=self.rate(LOG))
        return replace(overview, parts=parts, log=log)

    def rate(self, name: Name) -> float | None:
        """Messages a second."""
        found = self._positions(name)
        if len(found) < 2:
            return None
        (first_s, first), (last_s, last) = found[max(0, len(found) - _RATE_SAMPLES)], found[-1]
        return max(0.0, (last - first) / (last_s - first_s)) if last_s > first_s else None

    def rates(self, name: Name) -> list[tuple[float, float]]:
        """Moments and rates, between one sample and the next."""
        return [
            (after_s, max(0.0, (after - before) / (after_s - before_s)))
            for (before_s, before), (after_s, after) in pairwise(self._positions(name))
            if after_s > before_s
        ]

    def lags(self, name: Name) -> list[tuple[float, float]]:
        """Moments and lags in messages."""
        return [(sample.at_s, float(sample.lag)) for sample in self._series.get(name, ()) if sample.lag is not None]

    def _positions(self, name: Name) -> list[tuple[float, int]]:
        return [(sample.at_s, sample.position) for sample in self._series.get(name, ()) if sample.position is not None]


def _samples(overview: Overview) -> Iterator[tuple[Name, Sample]]:
    if overview.log is not None:
        yield LOG, Sample(overview.at_s, overview.log.next_offset, None)
    for part in overview.parts:
        position = part.moved if part.position is None else part.position
        if position is not None or part.lag is not None:
            lag = None if part.lag is None else part.lag.messages
            yield (part.kind, part.name), Sample(overview.at_s, position, lag)
