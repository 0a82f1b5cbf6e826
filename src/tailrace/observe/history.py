"""History: how positions and lags were in the last hour, and the rates that follow from it. In memory, and bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tailrace.observe.model import Overview, Part

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
    position: int
    lag: int


class History:
    """Samples of everything that has a position. For one thread."""

    def __init__(self) -> None:
        self._series: dict[Name, deque[Sample]] = {}

    def add(self, overview: Overview) -> None:
        """Note how it is now."""
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
        series = self._series.get(name)
        if series is None or len(series) < 2:
            return None
        first, last = series[max(0, len(series) - _RATE_SAMPLES)], series[-1]
        passed_s = last.at_s - first.at_s
        return max(0.0, (last.position - first.position) / passed_s) if passed_s > 0 else None

    def rates(self, name: Name) -> list[tuple[float, float]]:
        """Moments and rates, between one sample and the next."""
        series = list(self._series.get(name, ()))
        return [
            (after.at_s, max(0.0, (after.position - before.position) / (after.at_s - before.at_s)))
            for before, after in pairwise(series)
            if after.at_s > before.at_s
        ]

    def lags(self, name: Name) -> list[tuple[float, float]]:
        """Moments and lags in messages."""
        return [(sample.at_s, float(sample.lag)) for sample in self._series.get(name, ())]


def _samples(overview: Overview) -> Iterator[tuple[Name, Sample]]:
    if overview.log is not None:
        yield LOG, Sample(overview.at_s, overview.log.next_offset, 0)
    for part in overview.parts:
        if part.position is not None or part.lag is not None:
            yield _name(part), Sample(overview.at_s, part.position or 0, part.lag.messages if part.lag else 0)


def _name(part: Part) -> Name:
    return part.kind, part.name
