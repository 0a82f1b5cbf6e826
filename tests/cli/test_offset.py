"""`tailrace offset …` as an operator uses it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tailrace.log.consumers import Consumers
from tailrace.log.session import ConsumerSession
from tests.cli.conftest import Tailrace


@pytest.fixture
def sink(shop: Path, tailrace: Tailrace) -> Path:
    """A consumer `sink` that has acknowledged 0 to 3."""
    assert tailrace("offset", "register", "sink").status == 0
    with ConsumerSession(Consumers(shop), "sink") as session:
        session.commit(3)
    return shop


def position(tailrace: Tailrace) -> int:
    found: int = tailrace("offset", "show", "sink", "--json").json["position"]
    return found


def test_list_shows_lag_in_messages_bytes_and_seconds(tailrace: Tailrace, sink: Path) -> None:
    (stat,) = tailrace("offset", "list", "--json").json
    assert (stat["name"], stat["position"], stat["state"], stat["hold"]) == ("sink", 3, "live", "hold")
    assert stat["lag"]["messages"] == 6
    assert stat["lag"]["bytes"] > 0
    assert stat["lag"]["seconds"] > 0
    assert "sink" in tailrace("offset", "list").out


def test_ack_lets_one_message_pass(tailrace: Tailrace, sink: Path) -> None:
    assert tailrace("offset", "ack", "sink", 4, "--reason", "broken").out == "sink went from 3 to 4\n"
    assert tailrace("offset", "ack", "sink", 6, "--reason", "ahead", "--json").json["after"] == 4
    assert tailrace("offset", "show", "sink", "--json").json["acknowledged_ahead"] == [4, 6]
    trail = tailrace("offset", "audit", "--json").json_lines
    assert [(line["action"], line["offset"], line["reason"]) for line in trail] == [
        ("ack", 4, "broken"),
        ("ack", 6, "ahead"),
    ]
    assert "broken" in tailrace("offset", "audit").out


def test_ack_needs_a_reason(tailrace: Tailrace, sink: Path) -> None:
    assert tailrace("offset", "ack", "sink", 4).status == 2
    assert tailrace("offset", "ack", "sink", 4, "--reason", " ").status == 2
    assert position(tailrace) == 3


@pytest.mark.parametrize("offset", [10, 99, -1])
def test_outside_the_log(tailrace: Tailrace, sink: Path, offset: int) -> None:
    for arguments in (("mark", "sink", "--yes"), ("ack", "sink", "--reason", "x")):
        outcome = tailrace("offset", *arguments, "--", offset)
        assert outcome.status == 2
        assert "offset.outside_log" in outcome.err
        assert "from 0 to 9" in outcome.err
    assert position(tailrace) == 3


def test_mark_goes_forward_and_rewind_back(tailrace: Tailrace, sink: Path) -> None:
    assert tailrace("offset", "mark", "sink", 7, "--yes").status == 0
    assert position(tailrace) == 7
    backwards = tailrace("offset", "mark", "sink", 5, "--yes")
    assert backwards.status == 2
    assert "next: tailrace offset rewind sink 6" in backwards.err
    forwards = tailrace("offset", "rewind", "sink", 9)
    assert forwards.status == 2
    assert "next: tailrace offset mark sink 8" in forwards.err
    assert tailrace("offset", "rewind", "sink", 2, "--json").json == {"consumer": "sink", "before": 7, "after": 1}
    assert tailrace("offset", "rewind", "sink", "oldest").status == 0
    assert position(tailrace) == -1


def test_one_namespace_moves_alone(tailrace: Tailrace, sink: Path) -> None:
    tailrace("offset", "mark", "sink", 9, "--yes")
    tailrace("offset", "rewind", "sink", 5, "--namespace", "shop.items")
    shown = tailrace("offset", "show", "sink", "--json").json
    assert shown["namespaces"] == {"shop.items": 4, "shop.orders": 9}
    assert shown["position"] == 4
    tailrace("offset", "mark", "sink", 9, "--namespace", "shop.items", "--yes")
    assert position(tailrace) == 9


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


def test_mark_and_delete_ask(tailrace: Tailrace, sink: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (("mark", "sink", 9), ("delete", "sink")):
        assert "next: the same command with --yes" in tailrace("offset", *arguments).err
        monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
        assert tailrace("offset", *arguments).status == 1
        monkeypatch.undo()
        monkeypatch.setenv("TAILRACE_LOG", str(sink))
    assert position(tailrace) == 3


def test_delete(tailrace: Tailrace, sink: Path) -> None:
    assert tailrace("offset", "delete", "sink", "--yes", "--reason", "gone").out == "sink is forgotten\n"
    assert tailrace("offset", "list", "--json").json == []
    assert tailrace("offset", "audit", "--json").json["action"] == "delete"


def test_a_consumer_in_use_is_not_moved(tailrace: Tailrace, sink: Path) -> None:
    with ConsumerSession(Consumers(sink), "sink"):
        for arguments in (
            ("mark", "sink", 9, "--yes"),
            ("ack", "sink", 4, "--reason", "x"),
            ("rewind", "sink", 0),
            ("delete", "sink", "--yes"),
        ):
            outcome = tailrace("offset", *arguments)
            assert outcome.status == 1
            assert "consumer.locked" in outcome.err
        assert tailrace("offset", "list", "--json").json[0]["in_use"] is True
    assert position(tailrace) == 3


def test_register_with_a_cap(tailrace: Tailrace, shop: Path) -> None:
    tailrace("offset", "register", "capped", "--hold", "cap", "--cap-bytes", "1kB", "--cap-age", "7d", "--ttl", "1h")
    agreement = tailrace("offset", "show", "capped", "--json").json["agreement"]
    assert agreement == {
        "hold": {"policy": "cap", "cap_bytes": 1000, "cap_age_s": 604800.0},
        "ttl_s": 3600.0,
        "invalidated": None,
    }
    assert tailrace("offset", "register", "capped").status == 2
    assert tailrace("offset", "register", "odd", "--hold", "hold", "--cap-bytes", "1kB").status == 2
    assert tailrace("offset", "register", "odd", "--hold", "never").status == 2


def test_a_consumer_past_its_cap_is_an_alarm_and_can_come_back(tailrace: Tailrace, shop: Path) -> None:
    tailrace("offset", "register", "capped", "--hold", "cap", "--cap-bytes", "1kB")
    assert "ALARM: consumer capped is invalidated" in tailrace("log", "retain").out
    assert tailrace("offset", "list", "--json").json[0]["state"] == "invalidated"
    assert "invalidated: it held back" in tailrace("offset", "show", "capped").out
    assert tailrace("offset", "rewind", "capped", "oldest").status == 0
    assert tailrace("offset", "list", "--json").json[0]["state"] == "live"
