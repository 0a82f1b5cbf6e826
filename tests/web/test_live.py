"""What open pages are told, and what happens when there is nothing to be seen any more."""

from __future__ import annotations

import json
import logging

import pytest

from tailrace.errors import TailraceError
from tailrace.observe.model import Overview
from tailrace.web.live import Live


class Watched:
    """Something to look at."""

    def __init__(self) -> None:
        self.wrong: Exception | None = None
        self.at_s = 0.0

    def look(self) -> Overview:
        if self.wrong is not None:
            raise self.wrong
        return Overview("shop", "pipeline", self.at_s, True)


def news(live: Live, known: str) -> dict[str, str]:
    found = live.news(known)[1]
    return json.loads(found) if found else {}


def test_only_what_has_changed_is_told() -> None:
    watched = Watched()
    live = Live(watched.look)
    first = live.shown()
    assert news(live, first.known) == {}
    watched.at_s = 61.0
    second = live.shown()
    assert news(live, first.known).keys() == {"summary"}
    assert "00:01:01 UTC" in news(live, first.known)["summary"]
    assert news(live, second.known) == {}


@pytest.mark.parametrize("known", ["", "other-5", "x", "-", "-1"])
def test_who_knows_of_another_run_is_told_everything(known: str) -> None:
    live = Live(Watched().look)
    assert news(live, known) == {}, "nobody has looked yet"
    shown = live.shown()
    assert news(live, known) == shown.sections


@pytest.mark.parametrize("wrong", [TailraceError("log.corrupt", "the log is damaged", hint="mend it"), KeyError("x")])
def test_open_pages_are_told_that_nothing_is_seen(wrong: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """What they show would be taken for new otherwise."""
    watched = Watched()
    live = Live(watched.look)
    shown = live.shown()
    assert live.is_well
    watched.wrong = wrong
    with caplog.at_level(logging.CRITICAL), pytest.raises(TailraceError) as caught:
        live.shown()
    assert not live.is_well
    live._render()
    told = news(live, shown.known)["sight"]
    assert caught.value.code in told
    assert "00:00:00 UTC" in told
    watched.wrong = None
    live.shown()
    assert live.is_well
    assert news(live, shown.known)["sight"] == ""


def test_the_thread_lives_on(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong in a look, the next one is made."""
    watched = Watched()
    watched.wrong = ZeroDivisionError("nobody thought of this")
    live = Live(watched.look)
    with caplog.at_level(logging.CRITICAL):
        live.start()
        with pytest.raises(TailraceError, match="cannot be looked at"):
            live.overview()
        assert live._thread.is_alive()
        live.stop()
    assert not live._thread.is_alive()
