"""`tailrace run`, as its own process with its own Spark; a handful of tests, for each start takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tests.cli.conftest import Tailrace
from tests.cli.process import RunProcess, database, make_shop, rows


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_once(shop: Path, tailrace: Tailrace) -> None:
    with RunProcess(shop, "run", "shop.yml", "--once") as run:
        status = run.wait()
    assert (status, run.out) == (0, ""), run.lines
    assert rows(shop / "copy.db") == rows(shop / "second.db") == rows(shop / "shop.db")
    assert "writer copy: starts with an empty log" in run.lines
    assert "captured 100 messages, " in run.lines[-4]
    assert "writer copy: 100 messages written" in run.lines[-3]
    assert "writer second: 100 messages written" in run.lines[-2]
    assert run.lines[-1].startswith("ended at offset ")
    assert not any("\x1b" in line or "WARN" in line for line in run.lines)
    found = tailrace("status", "shop.yml", "--json").json
    assert [each["phase"] for each in found["namespaces"] if each["name"] == "main.orders"] == ["complete"]
    assert [each["lag"]["messages"] for each in found["parts"] if each["kind"] == "writer"] == [0, 0]


def test_a_poisoned_message_stops_its_writer_alone(shop: Path, tailrace: Tailrace) -> None:
    with database(shop / "copy.db") as copy:
        copy.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, price REAL CHECK (price < 40))")
    with RunProcess(shop, "run", "shop.yml", "--until-caught-up", "--quiet") as run:
        status = run.wait()
    assert status == 1, run.lines
    assert run.lines[0].startswith("error destination.refused: writer copy stopped: offsets ")
    assert run.lines[1].startswith("  next: tailrace run shop.yml")
    assert len(run.lines) == 2
    assert rows(shop / "second.db") == rows(shop / "shop.db")

    with database(shop / "shop.db") as source:
        source.execute("INSERT INTO orders VALUES (1000, 1)")
    with RunProcess(shop, "run", "shop.yml", "--once") as run:
        status = run.wait()
    assert status == 1, run.lines
    at = next(number for number, line in enumerate(run.lines) if line.startswith("error "))
    assert "writer copy stopped before offset" in run.lines[at]
    assert "insert of main.orders" in run.lines[at]
    failed = next(part for part in tailrace("status", "shop.yml", "--json").json["parts"] if part["name"] == "copy")
    offset = failed["stuck"]["first"]
    log = shop / "log"
    assert run.lines[at + 1 : at + 4] == [
        f"  next: look: tailrace log show {offset} --log {log}",
        "        retry: tailrace run shop.yml",
        f"        acknowledge: tailrace offset ack copy {offset} --log {log} --reason WHY",
    ]
    assert (failed["state"], failed["position"]) == ("stopped", offset - 1)
    assert rows(shop / "copy.db") == [row for row in rows(shop / "second.db") if row[0] < 80]  # type: ignore[operator]
    assert rows(shop / "second.db") == rows(shop / "shop.db")
    refused = tailrace("log", "show", offset, "--log", log, "--json").json
    assert (refused["namespace"], refused["data"]) == ("main.orders", {"id": 80, "price": 40.0})
    assert tailrace("offset", "ack", "copy", offset, "--log", log, "--reason", "test").status == 0


def test_a_second_process_is_turned_away_before_spark_starts(shop: Path, tailrace: Tailrace) -> None:
    with CommitLog.open("log"):
        outcome = tailrace("run", "shop.yml")
    assert outcome.status == 1
    assert "error log.locked: the log is being written by process" in outcome.err
    assert not (shop / "log" / "run").exists()


def test_without_java(shop: Path) -> None:
    with RunProcess(shop, "run", "shop.yml", environment={"JAVA_HOME": str(shop / "nowhere")}) as run:
        status = run.wait()
    assert status == 3, run.lines
    assert run.times_said("error spark.unavailable: Spark needs Java 17 or 21") == 1
    assert run.out == ""


def test_a_file_with_a_problem(shop: Path, tailrace: Tailrace) -> None:
    (shop / "shop.yml").write_text("pipeline: shop\n")
    outcome = tailrace("run", "shop.yml")
    assert (outcome.status, outcome.out) == (2, "")
    assert "config.invalid" in outcome.err
    assert not (shop / "log").exists()


def test_two_ends_at_once(shop: Path, tailrace: Tailrace) -> None:
    outcome = tailrace("run", "shop.yml", "--once", "--until-caught-up")
    assert outcome.status == 2
    assert "exclude each other" in outcome.err


@pytest.mark.parametrize("said", ["nonsense", "127.0.0.1:x", ":8480"])
def test_where_the_page_listens_must_be_an_address(shop: Path, tailrace: Tailrace, said: str) -> None:
    done = tailrace("run", "shop.yml", "--ui-listen", said)
    assert done.status == 2
    assert f"{said!r} is no address" in done.err
    assert "reached by others" not in done.err
    assert "reached by others" in tailrace("run", "shop.yml", "--ui-listen", "192.0.2.1:80").err
