"""`tailrace doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.log.commitlog import CommitLog
from tests.cli.conftest import Outcome, Tailrace
from tests.pipeline.shelf import offer

SHOP = """
pipeline: shop
log: log
read: {shelf: {path: in.json}}
write: {sink: {path: out.json}, name: copy}
settings: {segment_bytes: 1MB}
"""


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch)
    monkeypatch.chdir(tmp_path)
    put_java(monkeypatch, tmp_path, 'openjdk version "17.0.15" 2025-04-15')
    Path("shop.yml").write_text(SHOP)
    Path("in.json").write_text("{}")


def put_java(monkeypatch: pytest.MonkeyPatch, directory: Path, told: str) -> None:
    """A java that only tells its version."""
    program = directory / "java" / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(directory / "java"))


def check_of(outcome: Outcome, what: str) -> Any:
    return next(check for check in outcome.json["checks"] if check["what"] == what)


def test_all_is_well(tailrace: Tailrace, tmp_path: Path) -> None:
    outcome = tailrace("doctor", "shop.yml")
    assert outcome.status == 0, outcome.out
    assert all(line.startswith("ok ") for line in outcome.out.splitlines())
    assert [line[5:].split("  ")[0] for line in outcome.out.splitlines()] == [
        "Java",
        "Spark",
        "log",
        "disk space",
        "source shelf: file",
        "writer copy: configured",
    ]
    assert not (tmp_path / "log").exists()


def test_without_a_file_only_what_every_pipeline_needs(tailrace: Tailrace) -> None:
    outcome = tailrace("doctor", "--json")
    assert outcome.status == 0
    assert [check["what"] for check in outcome.json["checks"]] == ["Java", "Spark"]


@pytest.mark.parametrize("told", ['java version "1.8.0_392"', 'openjdk version "11.0.2"', "no idea"])
def test_a_java_that_spark_cannot_use(
    tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str
) -> None:
    put_java(monkeypatch, tmp_path, told)
    outcome = tailrace("doctor", "--json")
    assert outcome.status == 3
    assert not outcome.json["ok"]
    assert "install Java 17 or 21" in check_of(outcome, "Java")["cure"]


def test_no_java_at_all(tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = tailrace("doctor")
    assert outcome.status == 3
    assert outcome.out.startswith("bad  Java   there is no java on PATH; cure: install Java")


def test_a_java_home_without_java(tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert tailrace("doctor").status == 3


def test_a_source_that_is_not_there(tailrace: Tailrace) -> None:
    Path("in.json").unlink()
    outcome = tailrace("doctor", "shop.yml", "--json")
    assert outcome.status == 3
    check = check_of(outcome, "source shelf: reachable")
    assert not check["ok"]
    assert check["cure"] == "make the file"


def test_a_log_that_somebody_writes(tailrace: Tailrace, tmp_path: Path) -> None:
    with CommitLog.open(tmp_path / "log"):
        outcome = tailrace("doctor", "shop.yml", "--json")
    assert outcome.status == 3
    assert "process" in check_of(outcome, "log lock")["found"]
    assert tailrace("doctor", "shop.yml").status == 0


def test_a_log_that_cannot_be(tailrace: Tailrace) -> None:
    Path("log").write_text("a file")
    outcome = tailrace("doctor", "shop.yml", "--json")
    assert outcome.status == 3
    assert check_of(outcome, "log")["found"].endswith("log is no directory")


def test_too_little_space(tailrace: Tailrace) -> None:
    Path("shop.yml").write_text(SHOP.replace("1MB", "900TB"))
    outcome = tailrace("doctor", "shop.yml", "--json")
    assert outcome.status == 3
    assert not check_of(outcome, "disk space")["ok"]


def test_a_broken_file_is_your_input(tailrace: Tailrace) -> None:
    Path("shop.yml").write_text("pipeline: shop\n")
    assert tailrace("doctor", "shop.yml").status == 2
