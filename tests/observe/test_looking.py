"""Looking at what a file declares, and `tailrace top`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.message import Message, Offset, Op, now
from tailrace.observe.looking import look_at
from tests.cli.conftest import Tailrace, tailrace

__all__ = ["tailrace"]  # a fixture

SHOP = "pipeline: shop\nlog: log\nread: {sqlite: {path: shop.db}}\nwrite:\n  - {name: copy, sqlite: {path: copy.db}}\n"
NODE = "node: berlin\ndata: ./berlin\nlisten: 127.0.0.1:4700\nfounder: true\n"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop.yml").write_text(SHOP)
    Path("berlin.yml").write_text(NODE)


@pytest.fixture
def log() -> None:
    with CommitLog.open("log") as opened:
        opened.append_messages([Message(Op.INSERT, now(), "main.orders", {"id": number}) for number in range(10)])
    Consumers("log").register("copy", start=Offset(4))


def test_a_pipeline(log: None) -> None:
    found = look_at("shop.yml")()
    assert (found.what, found.name) == ("pipeline", "shop")


def test_a_node_that_never_ran() -> None:
    look = look_at("berlin.yml")
    with pytest.raises(TailraceError, match="no node has ever run"):
        look()


def test_what_is_wrong_with_a_file_is_told(tmp_path: Path) -> None:
    Path("odd.yml").write_text("pipelin: shop\n")
    with pytest.raises(TailraceError):
        look_at("odd.yml")
    with pytest.raises(TailraceError):
        look_at("nowhere.yml")


def test_top_once(tailrace: Tailrace, log: None) -> None:
    shown = tailrace("top", "shop.yml", "--once")
    assert (shown.status, shown.err) == (0, "")
    assert "pipeline shop" in shown.out
    assert "writer" in shown.out
    assert "10 messages" in shown.out


def test_top_shows_first_who_needs_somebody(tailrace: Tailrace, log: None) -> None:
    consumers = Consumers("log")
    for number in range(60):
        consumers.register(f"consumer-{number:02}", start=Offset(4))
    consumers.invalidate("consumer-59", "past its cap")
    shown = tailrace("top", "shop.yml", "--once").out
    assert "invalidated" in shown.partition("not running")[0]
    assert "--json has all" in shown


def test_top_says_what_status_says(tailrace: Tailrace, log: None) -> None:
    found, told = (tailrace(command, "shop.yml", "--json").json for command in ("top", "status"))
    for each in (found, told):
        del each["at_s"]
        for part in each["parts"]:
            part["seen_s_ago"] = part["seen_s_ago"] is not None
            part["lag"] = part["lag"] and part["lag"]["messages"]
    assert found == told
    assert [part["lag"] for part in told["parts"] if part["kind"] == "writer"] == [6]
    assert found["health"] == "waiting"


def test_nothing_that_a_terminal_obeys(tailrace: Tailrace, log: None) -> None:
    from tailrace.pipeline.failures import Failures

    Path("log/run").mkdir()
    Failures("log").note("copy", TailraceError("destination.unreachable", "no\x1b[2J [red]route", hint="mend it"))
    shown = tailrace("top", "shop.yml", "--once").out
    assert "\x1b" not in shown
    assert "[red]route" in shown
    assert "mend it" in shown
