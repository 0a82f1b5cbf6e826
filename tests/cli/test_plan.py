"""`tailrace plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.message import Message, Micros, Mode, Offset, Op
from tailrace.source.bookmark import bookmark
from tailrace.source.phase import Phase, Progress, TableProgress
from tests.cli.conftest import Tailrace
from tests.pipeline.shelf import offer

SHOP = r"""
pipeline: shop
log: log
read:
  shelf: {path: in.json}
  namespace: main\..*
write:
  - {name: all, sink: {path: all.json}}
  - {name: orders, sink: {path: orders.json}, namespace: orders$}
"""


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offer(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("shop.yml").write_text(SHOP)
    rows = [{"id": number} for number in range(3)]
    Path("in.json").write_text(json.dumps({"main.orders": rows, "main.items": rows[:1], "temp.orders": rows}))


def files(directory: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.rglob("*") if path.is_file()}


def test_before_the_first_run_everything_is_copied(tailrace: Tailrace, tmp_path: Path) -> None:
    found = tailrace("plan", "shop.yml", "--json").json
    assert not found["log_exists"]
    assert [
        (each["namespace"], each["phase"], each["rows"], each["pieces"], each["writers"])
        for each in found["namespaces"]
    ] == [("main.items", "copy", 1, 1, ["all"]), ("main.orders", "copy", 3, 3, ["all", "orders"])]
    assert [(each["name"], each["is_new"], each["resumes_at"], each["namespaces"]) for each in found["writers"]] == [
        ("all", True, 0, ["main.items", "main.orders"]),
        ("orders", True, 0, ["main.orders"]),
    ]
    assert not (tmp_path / "log").exists()


def test_later_it_says_where_everybody_goes_on(tailrace: Tailrace, tmp_path: Path) -> None:
    tables = {
        "main.orders": TableProgress(Phase.COPY, ("id",), pieces=3, done=((0, 1),)),
        "main.items": TableProgress(Phase.SYNC, ("id",), pieces=1, done=((0, 0),)),
    }
    with CommitLog.open("log") as log:
        messages = [Message(Op.INSERT, Micros(number), "main.orders", {"id": number}) for number in range(10)]
        log.append_messages(messages, mode=Mode.COPY)
        log.append(list(bookmark(Progress(), Progress(tables=tables), Micros(11))))
        consumers = Consumers("log")
        consumers.register("all", start=Offset(4))
    before = files(tmp_path)
    found = tailrace("plan", "shop.yml", "--json").json
    assert found["log_exists"]
    assert [(each["namespace"], each["phase"], each["pieces"]) for each in found["namespaces"]] == [
        ("main.items", "sync", 0),
        ("main.orders", "copy", 1),
    ]
    everything, orders = found["writers"]
    assert (everything["is_new"], everything["resumes_at"], everything["state"]) == (False, 4, "live")
    assert everything["messages_behind"] == found["log_end"] - 4
    assert (orders["is_new"], orders["resumes_at"]) == (True, 0)
    assert files(tmp_path) == before


def test_for_people(tailrace: Tailrace) -> None:
    outcome = tailrace("plan", "shop.yml")
    assert outcome.status == 0
    assert "is not there yet and will be made" in outcome.out
    assert "main.orders" in outcome.out
    assert "temp.orders" not in outcome.out
    assert "begins at offset 0" in outcome.out


def test_nothing_to_read(tailrace: Tailrace) -> None:
    Path("in.json").write_text("{}")
    assert "no namespace that the pipeline reads" in tailrace("plan", "shop.yml").out


def test_what_cannot_be_read_is_told(tailrace: Tailrace) -> None:
    Path("in.json").write_text(json.dumps({"main.a/b": [], "temp.a/b": [], "main.orders": []}))
    assert tailrace("plan", "shop.yml", "--json").json["left_out"] == {"main.a/b": "it has a slash"}
    out = tailrace("plan", "shop.yml").out
    assert "main.a/b: left out: it has a slash\n" in out
    assert "temp.a/b" not in out
