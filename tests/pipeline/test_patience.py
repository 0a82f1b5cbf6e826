"""An end that does not answer for a while costs turns, not the part."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tailrace.errors import TailraceError
from tailrace.pipeline import patience
from tailrace.pipeline.patience import Patience

AWAY = TailraceError("destination.unreachable", "nobody answers", hint="wait")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "WAIT_S", 0.001)


class Part:
    """Does what it is told, turn by turn."""

    def __init__(self, *turns: bool | TailraceError, was_there: bool = True, patience_s: float = 60.0) -> None:
        self.said: list[str] = []
        self.begun_anew = 0
        self.stop = threading.Event()
        self._turns: Iterator[bool | TailraceError] = iter(turns)
        self.turn: Callable[[], bool] = Patience(
            "pg",
            self._take,
            was_there=lambda: was_there,
            again=self._begin_anew,
            patience_s=patience_s,
            stop=self.stop,
            report=self.said.append,
        ).turn

    def _take(self) -> bool:
        turn = next(self._turns)
        if isinstance(turn, TailraceError):
            raise turn
        return turn

    def _begin_anew(self) -> None:
        self.begun_anew += 1


def test_it_goes_on_when_the_end_is_back() -> None:
    part = Part(True, AWAY, AWAY, True, False)
    assert [part.turn() for _ in range(5)] == [True, True, True, True, False]
    assert part.begun_anew == 2
    assert len(part.said) == 2
    assert part.said[0].startswith("pg: nobody answers; it is tried again for")
    assert part.said[1].startswith("pg: goes on after")


def test_an_outage_that_lasts_is_an_error() -> None:
    part = Part(AWAY, patience_s=0.0)
    with pytest.raises(TailraceError, match="nobody answers"):
        part.turn()


def test_an_end_that_never_answered_is_an_error() -> None:
    with pytest.raises(TailraceError, match="nobody answers"):
        Part(AWAY, was_there=False).turn()


def test_other_errors_are_no_outage() -> None:
    error = TailraceError("destination.refused", "no such column", hint="mend it")
    with pytest.raises(TailraceError, match="no such column"):
        Part(error).turn()


def test_nobody_waits_when_the_end_is_asked_for() -> None:
    part = Part(AWAY)
    part.stop.set()
    with pytest.raises(TailraceError, match="nobody answers"):
        part.turn()
