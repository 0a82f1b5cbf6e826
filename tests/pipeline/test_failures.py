"""Failures: the last of every part is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import Place, TailraceError
from tailrace.pipeline.failures import NAME, Failures

UNREACHABLE = TailraceError("destination.unreachable", "no route", place=Place("a", 1, 2), hint="mend it")
OTHER = TailraceError("spark.failed", "it broke", hint="run again")


@pytest.fixture
def failures(tmp_path: Path) -> Failures:
    (tmp_path / "run").mkdir()
    return Failures(str(tmp_path))


def told(failures: Failures) -> dict[str, str]:
    return {part: str(failure.error) for part, failure in failures.read().items()}


def test_the_last_of_every_part(failures: Failures, tmp_path: Path) -> None:
    assert failures.read() == {}
    failures.note("a", OTHER)
    failures.note("a", UNREACHABLE)
    failures.note("b", OTHER)
    assert told(Failures(str(tmp_path))) == {"a": str(UNREACHABLE), "b": str(OTHER)}
    failures.clear("a", "unknown")
    assert told(failures) == {"b": str(OTHER)}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": {"at_s": 1, "error": {"code": "unheard.of"}}}'])
def test_what_is_not_understood_is_nothing(failures: Failures, tmp_path: Path, content: str) -> None:
    (tmp_path / "run" / NAME).write_text(content)
    assert failures.read() == {}
    failures.note("a", OTHER)
    assert told(failures) == {"a": str(OTHER)}


def test_a_disk_that_refuses_hides_no_error(tmp_path: Path) -> None:
    Failures(str(tmp_path / "nowhere")).note("a", OTHER)
