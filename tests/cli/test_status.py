"""`tailrace status`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tailrace.deliver.deadletter import dead_letters
from tailrace.deliver.trouble import Trouble, TroubleFile
from tailrace.errors import Place, TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.operator import Operator
from tailrace.log.session import ConsumerSession
from tailrace.message import Message, Micros, Mode, Offset, Op
from tailrace.pipeline.failures import Failures
from tailrace.pipeline.names import READING, RUN
from tailrace.source.bookmark import bookmark
from tailrace.source.phase import Phase, Progress, TableProgress
from tests.cli.conftest import Tailrace
from tests.pipeline.shelf import offer

SHOP = """
pipeline: shop
log: log
read: {shelf: {path: nowhere.json}}
write:
  - {name: all, sink: {path: all.json}}
  - {name: orders, sink: {path: orders.json}, on_error: dead_letter}
"""


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("shop.yml").write_text(SHOP)


@pytest.fixture
def log(shop: None) -> None:
    """Ten messages at the offsets 0 to 9, and two consumers that have had five of them."""
    messages = [Message(Op.INSERT, Micros(number), "main.orders", {"id": number}) for number in range(10)]
    with CommitLog.open("log") as opened:
        opened.append_messages(messages[:5], mode=Mode.COPY)
        opened.roll()
        opened.append_messages(messages[5:], mode=Mode.COPY)
    consumers = Consumers("log")
    consumers.register("all", start=Offset(5))
    consumers.register("orders", start=Offset(5))


def statuses(tailrace: Tailrace) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The pipeline and its two writers."""
    outcome = tailrace("status", "shop.yml", "--json")
    assert (outcome.status, outcome.err) == (0, "")
    first, second = (part for part in outcome.json["parts"] if part["kind"] == "writer")
    return outcome.json, first, second


def test_before_the_first_run(tailrace: Tailrace) -> None:
    found, first, second = statuses(tailrace)
    assert (found["what"], found["name"], found["is_running"]) == ("pipeline", "shop", False)
    assert (found["log"], found["namespaces"]) == (None, [])
    assert (first["state"], first["position"], first["seen_s_ago"]) == ("new", -1, None)
    assert second["state"] == "new"
    assert not Path("log").exists()
    assert "the first run makes it" in tailrace("status", "shop.yml").out


def test_how_far_everything_is(tailrace: Tailrace, log: None) -> None:
    tables = {
        "main.orders": TableProgress(Phase.COPY, ("id",), pieces=4, done=((0, 1), (3, 3)), rows=12, copied=9),
        "main.items": TableProgress(Phase.SYNC, ("id",), pieces=1, done=((0, 0),), copied=3),
    }
    with CommitLog.open("log") as opened:
        opened.append(list(bookmark(Progress(), Progress(tables=tables), Micros(11))))
        end = opened.next_offset
    found, first, _ = statuses(tailrace)
    assert [
        (each["name"], each["phase"], each["rows"], each["rows_copied"], each["pieces_copied"], each["pieces"])
        for each in found["namespaces"]
        if each["phase"] is not None
    ] == [("main.items", "sync", None, 3, 1, 1), ("main.orders", "copy", 12, 9, 3, 4)]
    assert (first["position"], first["lag"]["messages"], first["state"]) == (4, end - 5, "not running")
    assert first["lag"]["bytes"] > 0
    assert first["lag"]["seconds"] > 0
    assert 0 <= first["seen_s_ago"] < 60
    assert found["log"]["next_offset"] == end
    text = tailrace("status", "shop.yml").out
    assert "9 of about 12" in text
    assert "3 of 4" in text


def test_a_writer_that_the_log_does_not_know_will_get_everything(tailrace: Tailrace, log: None) -> None:
    Consumers("log").delete("orders", "for a test")
    _, _, second = statuses(tailrace)
    assert (second["state"], second["position"], second["lag"]["messages"]) == ("new", -1, 10)


def test_while_it_runs(tailrace: Tailrace, log: None) -> None:
    with CommitLog.open("log"), ConsumerSession(Consumers("log"), "all"):
        found, first, second = statuses(tailrace)
        assert f"process {os.getpid()}" in found["runs_as"]
        assert (first["state"], second["state"]) == ("running", "not running")
        assert f"process {os.getpid()}" in tailrace("status", "shop.yml").out
    found, first, _ = statuses(tailrace)
    assert (found["is_running"], first["state"]) == (False, "not running")
    assert "does not run" in tailrace("status", "shop.yml").out


def test_a_writer_that_failed(tailrace: Tailrace, log: None) -> None:
    TroubleFile("log", "all").write(Trouble(5, 9, "no such\x1b[2J table", time.time(), is_single=True))
    _, first, _ = statuses(tailrace)
    assert (first["state"], first["stuck"]["first"], first["stuck"]["is_single"]) == ("stopped", 5, True)
    text = tailrace("status", "shop.yml").out
    assert re.search(r"writer all could not write message 5, [\d.]+ s ago: no such", text)
    assert "\x1b" not in text


def test_how_the_parts_failed_last(tailrace: Tailrace, log: None) -> None:
    """Also errors that are about no message: each with its cure, until the part does well again."""
    failures = Failures("log")
    Path("log/run").mkdir()
    failures.note(READING, TailraceError("source.unreachable", "no such\x1b[2J file", hint="make the file"))
    failures.note("all", TailraceError("destination.unreachable", "no route", place=Place("all.json"), hint="mend it"))
    failures.note(RUN, TailraceError("spark.unavailable", "there is no Java", hint="install it\nor not"))
    found, first, second = statuses(tailrace)
    assert (first["state"], second["state"], second["wrong"]) == ("stopped", "not running", None)
    failed = first["wrong"]
    assert 0 <= failed.pop("age_s") < 60
    assert failed == {"code": "destination.unreachable", "what": "no route (all.json)", "cure": "mend it"}
    assert found["parts"][0]["wrong"]["cure"] == "make the file"
    assert [each["code"] for each in found["wrong"]] == ["spark.unavailable"]
    text = tailrace("status", "shop.yml").out
    ago = r", [\d.]+ \w+ ago\)"
    assert re.search(rf"writer all: no route \(all.json\) \(destination.unreachable{ago}\n  next: mend it\n", text)
    assert re.search(rf"reader shelf: no such.* \(source.unreachable{ago}\n  next: make the file\n", text)
    told = rf"pipeline shop: there is no Java \(spark.unavailable{ago}\n  next: install it\n        or not\n"
    assert re.search(told, text)
    assert "\x1b" not in text

    failures.clear("all", READING, RUN)
    found, first, _ = statuses(tailrace)
    assert (found["wrong"], found["parts"][0]["wrong"], first["wrong"], first["state"]) == (
        [],
        None,
        None,
        "not running",
    )


def test_a_writer_that_runs_again_after_a_failure(tailrace: Tailrace, log: None) -> None:
    Path("log/run").mkdir()
    Failures("log").note("all", TailraceError("destination.unreachable", "no route", hint="mend it"))
    with CommitLog.open("log"), ConsumerSession(Consumers("log"), "all"):
        _, first, _ = statuses(tailrace)
    assert (first["state"], first["wrong"]["code"]) == ("running", "destination.unreachable")


def test_a_failure_is_told_once_with_its_commands(tailrace: Tailrace, log: None) -> None:
    Path("log/run").mkdir()
    TroubleFile("log", "all").write(Trouble(5, 9, "no such table", time.time(), is_single=True))
    Failures("log").note(
        "all", TailraceError("destination.refused", "stopped before offset 5", hint="look\nretry\nack")
    )
    text = tailrace("status", "shop.yml").out
    assert text.count("writer all") == 1
    assert "  next: look\n        retry\n        ack\n" in text
    Operator(Consumers("log")).acknowledge("all", 5, reason="for a test")
    assert statuses(tailrace)[1]["wrong"] is None


def test_a_failure_that_was_acknowledged(tailrace: Tailrace, log: None) -> None:
    TroubleFile("log", "all").write(Trouble(5, 9, "no such table", time.time(), is_single=True))
    Operator(Consumers("log")).acknowledge("all", 5, reason="for a test")
    _, first, _ = statuses(tailrace)
    assert (first["state"], first["stuck"], first["position"]) == ("not running", None, 5)


def test_a_failed_range_stays_until_all_of_it_is_delivered(tailrace: Tailrace, log: None) -> None:
    TroubleFile("log", "all").write(Trouble(5, 9, "no such table", time.time()))
    Operator(Consumers("log")).mark("all", 8, reason="for a test")
    assert statuses(tailrace)[1]["state"] == "stopped"
    Operator(Consumers("log")).mark("all", 9, reason="for a test")
    assert statuses(tailrace)[1]["state"] == "not running"


def test_what_failed_in_an_earlier_run_is_tried_again(tailrace: Tailrace, log: None) -> None:
    Path("log/run").mkdir()
    for name in ("all", "orders"):
        TroubleFile("log", name).write(Trouble(5, 9, "no such table", time.time() - 60))
    consumers = Consumers("log")
    with CommitLog.open("log"), ConsumerSession(consumers, "all"), ConsumerSession(consumers, "orders"):
        assert [each["state"] for each in statuses(tailrace)[1:]] == ["retrying", "retrying"]
        for name in ("all", "orders"):
            TroubleFile("log", name).write(Trouble(5, 9, "no such table", time.time() + 1))
            Failures("log").note(name, TailraceError("destination.refused", "no such table"))
        # the second one puts aside what it cannot write, and goes on
        assert [each["state"] for each in statuses(tailrace)[1:]] == ["stopped", "retrying"]
        Failures("log").clear("all")  # an operator has let it go on
        assert statuses(tailrace)[1]["state"] == "retrying"


def test_a_writer_that_cannot_go_on(tailrace: Tailrace, log: None) -> None:
    Consumers("log").invalidate("all", "it held back too much")
    _, first, second = statuses(tailrace)
    assert (first["state"], first["wrong"]["what"]) == ("invalidated", "it held back too much")
    assert (second["state"], second["wrong"]) == ("not running", None)
    assert "writer all: it held back too much (consumer.invalidated)" in tailrace("status", "shop.yml").out


def test_a_writer_whose_offsets_are_damaged(tailrace: Tailrace, log: None) -> None:
    Path("log/__consumer_offsets-all/consumer.json").write_text("{")
    _, first, second = statuses(tailrace)
    assert (first["state"], second["state"]) == ("damaged", "not running")


def test_dead_letters_are_counted(tailrace: Tailrace, log: None) -> None:
    refused = {"offset": 5, "error": {"code": "destination.refused", "what": "no"}, "message": {}}
    with CommitLog.open("log") as opened:
        opened.append_messages(dead_letters("orders", [refused, refused]))
        opened.append_messages(dead_letters("orders", [refused]))
    _, first, second = statuses(tailrace)
    assert (first["more"]["dead letters"], second["more"]["dead letters"]) == (0, 3)
    assert "dead letters 3" in tailrace("status", "shop.yml").out


def test_who_holds_the_log(tailrace: Tailrace, log: None) -> None:
    Operator(Consumers("log")).rewind("all", 0, reason="for a test")
    found, _, _ = statuses(tailrace)
    held = found["log"]["held_bytes"]
    assert held["all"] == found["log"]["bytes"]
    assert 0 < held["orders"] < held["all"]


def test_nothing_is_changed_and_no_spark_started(log: None, tmp_path: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}
    program = (
        "import sys, pytest; from tests.pipeline.shelf import offer; offer(pytest.MonkeyPatch());"
        "from tailrace.cli.main import app; app(['status', 'shop.yml', '--json'], standalone_mode=False);"
        "assert 'pyspark' not in sys.modules"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env={**os.environ, "PYTHONPATH": root})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["name"] == "shop"
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")} == before
