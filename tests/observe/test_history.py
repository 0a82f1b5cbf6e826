"""Rates and lags of the last hour."""

from __future__ import annotations

from tailrace.observe.history import LOG, SAMPLE_S, SAMPLES, SERIES_MAX, History
from tailrace.observe.model import Health, Kind, Lag, LogPart, Overview, Part


def overview(at_s: float, position: int, lag: int = 0, parts: int = 1) -> Overview:
    made = tuple(
        Part(Kind.WRITER, f"w{number}", "", "running", Health.GOOD, position, Lag(lag, lag, 0.0))
        for number in range(parts)
    )
    return Overview("shop", "pipeline", at_s, True, log=LogPart("log", 0, position + 1, 0, 0), parts=made)


def test_no_rate_before_there_are_two_samples() -> None:
    history = History()
    history.add(overview(0.0, 100))
    assert history.rated(overview(0.0, 100)).parts[0].rate is None


def test_rates_of_the_last_samples() -> None:
    history = History()
    for number in range(20):
        history.add(overview(number * 5.0, 0 if number < 10 else (number - 9) * 50, lag=number))
    rated = history.rated(overview(95.0, 500))
    assert rated.parts[0].rate == 10.0
    assert rated.log is not None
    assert rated.log.rate == 10.0
    assert history.lags((Kind.WRITER, "w0"))[-1] == (95.0, 19.0)
    assert [rate for _, rate in history.rates(LOG)][:10] == [0.0] * 9 + [10.0]


def test_what_goes_back_has_no_rate_below_nothing() -> None:
    history = History()
    history.add(overview(0.0, 100))
    history.add(overview(5.0, 10))  # rewound
    assert history.rate((Kind.WRITER, "w0")) == 0.0


def test_samples_of_one_moment() -> None:
    history = History()
    history.add(overview(5.0, 1))
    history.add(overview(5.0, 2))
    assert history.rate((Kind.WRITER, "w0")) is None
    assert history.rates((Kind.WRITER, "w0")) == []


def test_an_hour_and_no_more_than_so_many_parts() -> None:
    history = History()
    history.add(overview(0.0, 0, parts=SERIES_MAX * 2))
    kept = sum(bool(history.lags((Kind.WRITER, f"w{number}"))) for number in range(SERIES_MAX * 2))
    assert kept == SERIES_MAX - 1, "the log is one of them"
    for number in range(SAMPLES + 50):
        history.add(overview(number * 5.0, number))
    assert len(history.lags((Kind.WRITER, "w0"))) == SAMPLES


def test_who_has_gone_makes_room() -> None:
    """Names come and go; those that came first must not keep the others out for ever."""
    history = History()
    history.add(overview(0.0, 0, parts=SERIES_MAX * 2))
    late = Part(Kind.PEER, "late", "", "follows", Health.GOOD, 5)
    after_s = SAMPLES * SAMPLE_S + 1
    for at_s in (after_s, after_s + 5):
        history.add(Overview("shop", "pipeline", at_s, True, parts=(late,)))
    assert history.rate((Kind.PEER, "late")) == 0.0
    assert history.lags((Kind.WRITER, "w0")) == []


def test_who_has_no_position_has_no_rate() -> None:
    """Nothing a second would be a lie about one that is only known to be behind."""
    history = History()
    for at_s in (0.0, 5.0):
        part = Part(Kind.SOURCE, "a", "", "follow", Health.GOOD, lag=Lag(3, None, None))
        history.add(Overview("shop", "node", at_s, True, parts=(part,)))
    assert history.rate((Kind.SOURCE, "a")) is None
    assert history.rates((Kind.SOURCE, "a")) == []
    assert [lag for _, lag in history.lags((Kind.SOURCE, "a"))] == [3.0, 3.0]
