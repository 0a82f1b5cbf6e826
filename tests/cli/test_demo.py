"""The demonstration of the log ends well, and leaves a log only when asked to."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Tailrace


def test_demo(tailrace: Tailrace, tmp_path: Path) -> None:
    log = tmp_path / "log"
    outcome = tailrace("log", "demo", "--messages", 200_000, "--log", log)
    assert outcome.status == 0
    assert "messages removed" in outcome.out
    assert "offset    : 199999" in outcome.out
    assert tailrace("log", "verify", "--log", log).status == 0
    again = tailrace("log", "demo", "--log", log)
    assert again.status == 2
    assert "is not empty" in again.err
