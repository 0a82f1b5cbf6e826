"""`tailrace doctor`."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor import registry
from tailrace.log.commitlog import CommitLog
from tests.cli.conftest import Outcome, Tailrace
from tests.crash.mounts import make_read_only, needs_mounts, on_small_disk
from tests.pipeline import shelf
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
    assert outcome.status == 1
    assert not outcome.json["ok"]
    assert "install Java 17 or 21" in check_of(outcome, "Java")["cure"]


def test_no_java_at_all(tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = tailrace("doctor")
    assert outcome.status == 1
    assert outcome.out.startswith("bad  Java   there is no java on PATH; cure: install Java")


def test_a_java_home_without_java(tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert tailrace("doctor").status == 1


def test_a_source_that_is_not_there(tailrace: Tailrace) -> None:
    Path("in.json").unlink()
    outcome = tailrace("doctor", "shop.yml", "--json")
    assert outcome.status == 1
    check = check_of(outcome, "source shelf: reachable")
    assert not check["ok"]
    assert check["cure"] == "make the file"


def test_a_log_that_somebody_writes(tailrace: Tailrace, tmp_path: Path) -> None:
    with CommitLog.open(tmp_path / "log"):
        outcome = tailrace("doctor", "shop.yml", "--json")
    assert outcome.status == 1
    assert "process" in check_of(outcome, "log lock")["found"]
    assert tailrace("doctor", "shop.yml").status == 0


def test_a_log_that_cannot_be(tailrace: Tailrace) -> None:
    Path("log").write_text("a file")
    outcome = tailrace("doctor", "shop.yml", "--json")
    assert outcome.status == 1
    assert check_of(outcome, "log")["found"].endswith("log is no directory")


def test_too_little_space(tailrace: Tailrace) -> None:
    Path("shop.yml").write_text(SHOP.replace("1MB", "900TB"))
    outcome = tailrace("doctor", "shop.yml", "--json")
    assert outcome.status == 1
    assert not check_of(outcome, "disk space")["ok"]


def test_a_broken_file_is_your_input(tailrace: Tailrace) -> None:
    Path("shop.yml").write_text("pipeline: shop\n")
    assert tailrace("doctor", "shop.yml").status == 2


def bad_lines(outcome: Outcome) -> list[str]:
    """What is wrong, each line with its cure."""
    assert outcome.status == 1, outcome.out + outcome.err
    assert outcome.err == ""
    bad = [line for line in outcome.out.splitlines() if line.startswith("bad")]
    assert all("; cure: " in line for line in bad)
    return bad


REAL = """
pipeline: real
log: log
read: {sqlite: {path: shop.db}}
write:
  - {name: table, sqlite: {path: out/copy.db}}
  - {name: lake, lake: {path: out/lake, format: delta}}
  - {name: lines, files: {path: out/rows.avro}}
settings: {segment_bytes: 1MB}
"""


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pipeline of adaptors of the house, for which everything is there."""
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    Path("real.yml").write_text(REAL)
    Path("out").mkdir()
    with closing(sqlite3.connect("shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")


def test_a_real_pipeline_is_well(tailrace: Tailrace, real: None) -> None:
    outcome = tailrace("doctor", "real.yml")
    assert outcome.status == 0, outcome.out


def test_nothing_is_where_it_should_be(tailrace: Tailrace, real: None) -> None:
    Path("shop.db").unlink()
    shutil.rmtree("out")
    Path("out").write_text("a file in place of a directory")
    Path("log").write_text("another")
    log, source, table, lake, lines = bad_lines(tailrace("doctor", "real.yml"))
    assert "log is no directory; cure: name another directory" in log
    assert "shop.db does not exist; cure: correct `path`" in source
    assert "writer table" in table
    assert "out cannot be written to; cure: make" in lake
    assert "may not write in" in lines


def test_files_that_are_not_there(tailrace: Tailrace, real: None) -> None:
    Path("real.yml").write_text("pipeline: p\nread: {files: {path: nowhere.jsonl}}\nwrite: {console: }\n")
    (line,) = bad_lines(tailrace("doctor", "real.yml"))
    assert "there is no such file or directory; cure: check the path" in line


@pytest.mark.parametrize(
    ("package", "extra"),
    [("pyspark", "spark"), ("adbc_driver_sqlite", "spark"), ("deltalake", "delta"), ("fastavro", "avro")],
)
def test_an_extra_that_is_not_installed(
    tailrace: Tailrace, real: None, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    (line,) = bad_lines(tailrace("doctor", "real.yml"))
    assert line.endswith(f"not installed; cure: pip install 'tailrace[{extra}]'")


def test_an_adaptor_that_cannot_be_loaded_names_its_extra(tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline file names it, so the line is one of the file."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'somewhere'")

    monkeypatch.setattr(registry, "BUILT_IN", ("delta",))
    monkeypatch.setattr(registry, "find", missing)
    Path("shop.yml").write_text("pipeline: p\nread: {delta: }\nwrite: {delta: }\n")
    outcome = tailrace("doctor", "shop.yml")
    assert outcome.status == 2
    assert "cannot be loaded here: No module named 'somewhere'; pip install 'tailrace[delta]'" in outcome.err


def test_an_adaptor_that_breaks_while_it_is_probed(tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> Any:
        raise RuntimeError("it broke")

    monkeypatch.setattr(shelf.ShelfWriterOptions, "probe", broken)
    (line,) = bad_lines(tailrace("doctor", "shop.yml"))
    assert "writer copy: reachable  RuntimeError: it broke; cure: look at" in line


def doctor(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tailrace", "doctor", "real.yml"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True)


def sick_disk(disk: Path) -> None:
    """A disk that is nearly full, and one that is read-only."""
    with closing(sqlite3.connect(disk / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    (disk / "out").mkdir()
    (disk / "real.yml").write_text(REAL)
    done = doctor(disk)
    space, lines = bad_lines(Outcome(done.returncode, done.stdout, done.stderr))
    assert "free for the log; cure: make room for a segment of 1.0 MB" in space
    assert "writer lines: files can be written" in lines
    assert lines.endswith("; cure: make room")

    make_read_only(disk)
    done = doctor(disk)
    found = bad_lines(Outcome(done.returncode, done.stdout, done.stderr))
    for part in (
        "log  ",
        "source sqlite: changes",
        "writer table",
        "writer lake: lake directory",
        "writer lines: files",
    ):
        assert any(line[5:].startswith(part) for line in found), (part, found)


@needs_mounts
def test_a_full_and_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    on_small_disk(tmp_path, sick_disk, size="512k")
