"""A pipeline as the status model has it: what `tailrace status` says, in the same words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tailrace.deliver.deadletter import dead_letters
from tailrace.deliver.trouble import Trouble, TroubleFile
from tailrace.errors import TailraceError
from tailrace.gauge import Gauge
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.session import ConsumerSession
from tailrace.message import Message, Micros, Mode, Offset, Op
from tailrace.observe.metrics import exposition
from tailrace.observe.model import Health, Kind, Overview, Part
from tailrace.observe.pipelines import overview_of_pipeline
from tailrace.pipeline.failures import Failures
from tailrace.pipeline.leftout import LeftOut
from tailrace.pipeline.load import load
from tailrace.pipeline.names import READING, RUN
from tailrace.source.bookmark import bookmark
from tailrace.source.phase import Phase, Progress, TableProgress
from tests.pipeline.shelf import offer

SHOP = """
pipeline: shop
log: log
read: {shelf: {path: nowhere.json}}
write:
  - {name: all, sink: {path: all.json}, through: [{omit: [email]}]}
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


def look() -> Overview:
    return overview_of_pipeline(load("shop.yml"))


def part(overview: Overview, name: str) -> Part:
    return next(each for each in overview.parts if each.name == name)


def test_before_the_first_run() -> None:
    found = look()
    assert (found.name, found.what, found.is_running, found.log) == ("shop", "pipeline", False, None)
    assert [(each.kind, each.state) for each in found.parts] == [
        (Kind.READER, "not running"),
        (Kind.WRITER, "new"),
        (Kind.WRITER, "new"),
    ]
    assert found.health is Health.WAITING


def test_what_is_left_out_is_told_with_its_cure(log: None) -> None:
    Path("log/run").mkdir()
    LeftOut("log").note({f"main.{number:02}/x": "it has a slash" for number in range(22)})
    reader = look().of(Kind.READER)[0]
    assert (reader.state, reader.health, reader.more["left out"]) == ("not running", Health.TROUBLED, 22)
    assert reader.wrong is not None
    assert reader.wrong.what.startswith("main.00/x is left out: it has a slash; main.01/x is")
    assert reader.wrong.what.endswith("main.19/x is left out: it has a slash; and 2 more")
    assert "`namespace`" in reader.wrong.cure
    Failures("log").note(READING, TailraceError("source.unreachable", "no route", hint="look at the network"))
    reader = look().of(Kind.READER)[0]
    assert reader.wrong is not None
    assert (reader.wrong.code, reader.health) == ("source.unreachable", Health.BAD), "what is worse comes first"
    Failures("log").clear(READING)
    LeftOut("log").note({})
    assert look().of(Kind.READER)[0].wrong is None
    Path("log/run/left-out.json").write_text("[")
    assert look().of(Kind.READER)[0].wrong is None, "it is only for people"


def test_a_writer_that_runs_and_one_that_does_not(log: None) -> None:
    with CommitLog.open("log"), ConsumerSession(Consumers("log"), "all"):
        found = look()
    assert (part(found, "all").health, part(found, "orders").health) == (Health.GOOD, Health.WAITING)
    assert part(found, "all").steps == ("omit",)
    assert found.health is Health.GOOD


def test_a_writer_that_is_stuck(log: None) -> None:
    TroubleFile("log", "all").write(Trouble(5, 9, "no such table", time.time() - 60, is_single=False))
    found = part(look(), "all")
    assert (found.state, found.health) == ("stopped", Health.BAD)
    assert found.stuck is not None
    assert (found.stuck.first, found.stuck.last, found.stuck.is_single) == (5, 9, False)
    assert found.stuck.age_s >= 60
    assert look().health is Health.BAD


def test_errors_keep_their_cures(log: None) -> None:
    failures = Failures("log")
    Path("log/run").mkdir()
    failures.note(READING, TailraceError("source.unreachable", "no such file", hint="make the file"))
    failures.note(RUN, TailraceError("spark.unavailable", "there is no Java", hint="install it"))
    found = look()
    reader = found.parts[0]
    assert reader.wrong is not None
    assert (reader.state, reader.health, reader.wrong.cure) == ("failed", Health.BAD, "make the file")
    assert [(wrong.code, wrong.cure) for wrong in found.wrong] == [("spark.unavailable", "install it")]


def test_a_writer_whose_messages_are_gone(log: None) -> None:
    Consumers("log").invalidate("all", "past its cap")
    found = part(look(), "all")
    assert (found.state, found.health) == ("invalidated", Health.BAD)
    assert found.wrong is not None
    assert found.wrong.code == "consumer.invalidated"
    assert found.wrong.cure


def test_namespaces_and_dead_letters(log: None) -> None:
    tables = {
        "main.orders": TableProgress(Phase.COPY, ("id",), pieces=4, done=((0, 1), (3, 3)), rows=12, copied=9),
        "main.items": TableProgress(Phase.SYNC, ("id",), pieces=1, done=((0, 0),), copied=3),
    }
    with CommitLog.open("log") as opened:
        opened.append(list(bookmark(Progress(), Progress(tables=tables), Micros(11))))
        refused = {"offset": 3, "message": {}, "error": {"code": "x", "what": "y"}}
        opened.append_messages(dead_letters("orders", [refused]))
    found = look()
    by_name = {each.name: each for each in found.namespaces}
    assert (by_name["main.orders"].messages, by_name["main.orders"].phase) == (10, "copy")
    assert (by_name["main.orders"].rows, by_name["main.orders"].rows_copied) == (12, 9)
    assert (by_name["main.items"].messages, by_name["main.items"].phase) == (0, "sync")
    assert part(found, "orders").more["dead letters"] == 1


def test_others_who_read_the_log(log: None) -> None:
    Consumers("log").register("_ours", start=Offset(2))
    Consumers("log").register("somebody", start=Offset(2))
    found = {each.name: each for each in look().of(Kind.CONSUMER)}
    assert found["somebody"].lag is not None
    assert found["somebody"].lag.messages == 8
    assert found["_ours"].lag is None, "it keeps a place, and reads nothing"


class TestSlot:
    def test_nobody_waits_for_the_source(self, log: None) -> None:
        import threading

        asked, answer = threading.Event(), threading.Event()

        def ask() -> int:
            asked.set()
            assert answer.wait(30)
            return 4096

        gauge = Gauge(ask, 30)
        assert _slot(gauge) is None
        assert asked.wait(30)
        assert _slot(gauge) is None, "the source has not answered"
        answer.set()
        over_s = time.monotonic() + 30
        while _slot(gauge) != 4096:
            assert time.monotonic() < over_s

    def test_it_is_asked_seldom(self, log: None) -> None:
        import threading

        asked: list[int] = []
        answered = threading.Event()

        def ask() -> int:
            asked.append(1)
            answered.set()
            return 1

        gauge = Gauge(ask, 30)
        for _ in range(20):
            gauge.read()
        assert answered.wait(30)
        assert len(asked) == 1

    def test_a_source_that_does_not_answer_is_no_trouble(self, log: None) -> None:
        import threading

        failed = threading.Event()

        def ask() -> int:
            failed.set()
            raise TailraceError("source.unreachable", "no route")

        gauge = Gauge(ask, 30)
        gauge.read()
        assert failed.wait(30)
        assert _slot(gauge) is None


def _slot(gauge: Gauge[int]) -> object:
    return overview_of_pipeline(load("shop.yml"), gauge).parts[0].more["slot bytes"]


def test_a_writer_that_was_stuck_until_its_messages_were_gone(log: None) -> None:
    """What it was stuck at is not what keeps it from going on any more, and the alert about the latter must come."""
    Path("log/run").mkdir()
    Failures("log").note("all", TailraceError("destination.refused", "stopped before offset 5", hint="acknowledge"))
    TroubleFile("log", "all").write(Trouble(5, 9, "no", time.time(), is_single=True))
    assert part(look(), "all").stuck is not None
    Consumers("log").invalidate("all", "past its cap of 1 GB")
    found = part(look(), "all")
    assert (found.state, found.stuck) == ("invalidated", None)
    assert found.wrong is not None
    assert (found.wrong.code, found.wrong.what) == ("consumer.invalidated", "past its cap of 1 GB")
    assert found.wrong.cure.startswith(f"tailrace offset delete all --log {Path('log').absolute()}\n")
    assert 'tailrace_invalidated{kind="writer",name="all"} 1.0' in exposition(look()).decode()
