"""`tailrace queue`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.message import now
from tailrace.queues.answers import Retry
from tailrace.queues.entries import Outgoing, outgoing_batches
from tailrace.queues.receiving import Receiver
from tests.cli.conftest import Tailrace
from tests.queues.arrivals import Notebook, arrive, arrive_snapshot, listening
from tests.relay.nodes import wait_for

QUEUE = "LRQ_Recv_stock_north"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    """That of a site in the directory `site`, with a message to two destinations, and things that came."""
    (tmp_path / "site").mkdir()
    with CommitLog.open(tmp_path / "site" / "queues") as log:
        entries = [Outgoing("stock", b"out", ("north", "south")), Outgoing("stock", b"out too", ("south",))]
        log.append(outgoing_batches([("t9", entries)], 0, now()))
        arrive_snapshot(log, "stock", "north", "r1", "a")
        arrive(log, "stock", "north", "b", "c")
        log.roll()
        arrive(log, "stock", "north", "d")
        arrive(log, "my_client", "far_away", "x")
        yield log


@pytest.fixture
def data(log: CommitLog, tmp_path: Path) -> Path:
    return tmp_path / "site"


def receive(log: CommitLog, count: int) -> Receiver:
    """Acknowledge some messages."""
    received = Receiver(log.directory, "stock")
    messages = received.messages(0)
    for _ in range(count):
        next(messages).ack()
    return received


def test_queues_are_listed(tailrace: Tailrace, log: CommitLog, data: Path) -> None:
    receive(log, 3)
    found = tailrace("queue", "list", data, "--json").json
    mine, others = found["received"][1], found["received"][0]
    assert (mine["name"], mine["client"], mine["source"], mine["messages"]) == (QUEUE, "stock", "north", 5)
    assert [(each["listener"], each["messages"]) for each in mine["waiting"]] == [("main", 2)]
    assert mine["waiting"][0]["oldest_age_s"] >= 0
    assert (others["client"], others["source"], others["waiting"]) == ("my_client", "far_away", [])
    assert found["sending"] == [
        {"name": "LRQ_Send_LogEntries", "messages": 2, "by_destination": {"north": 1, "south": 2}}
    ]
    shown = tailrace("queue", "list", data).out
    assert QUEUE in shown
    assert "nobody listens" in shown


def test_messages_are_shown(tailrace: Tailrace, log: CommitLog, data: Path) -> None:
    messages = tailrace("queue", "show", data, QUEUE, "--json").json["messages"]
    assert [message["kind"] for message in messages] == ["snapshot", "snapshot_end", *["log_entry"] * 3]
    assert (messages[0]["payload"], messages[0]["request"], messages[0]["transaction"]) == ("a", "r1", "r1")
    some = tailrace("queue", "show", data, QUEUE, "--offset", messages[3]["offset"], "--limit", 1)
    assert some.out.splitlines()[-1] == "    1 bytes: c"
    sent = tailrace("queue", "show", data, "LRQ_Send_LogEntries", "--json").json["messages"]
    assert [message["destinations"] for message in sent] == [["north", "south"], ["south"]]


def test_payloads_that_are_no_text(tailrace: Tailrace, log: CommitLog, data: Path) -> None:
    arrive(log, "stock", "west", "\x1b[2Jx")
    arrive(log, "stock", "west", "long" * 100)
    shown = tailrace("queue", "show", data, "LRQ_Recv_stock_west").out
    assert "\x1b" not in shown
    assert b"\x1b[2Jx".hex() in shown
    assert "long…" in shown


def test_a_message_is_parked_by_hand_while_its_listener_runs(tailrace: Tailrace, log: CommitLog, data: Path) -> None:
    told = Notebook()
    told.answers["b"] = [Retry(600.0)]
    offset = tailrace("queue", "show", data, QUEUE, "--json").json["messages"][2]["offset"]
    with listening(Receiver(log.directory, "stock"), told):
        wait_for(lambda: "b" in told.told("north"))
        assert tailrace("queue", "park", data, QUEUE, offset, "--reason", "in the way").status == 0
        wait_for(lambda: "d" in told.told("north"))
        (parked,) = tailrace("queue", "parked", data, "--json").json["parked"]
        assert (parked["offset"], parked["reason"], parked["payload"]) == (offset, "in the way", "b")
        assert tailrace("queue", "replay", data, parked["id"]).status == 0
        wait_for(lambda: told.told("north")[-1] == "b")
        wait_for(lambda: tailrace("queue", "parked", data).out == "no message is parked\n")
    assert told.messages[-1].is_replay


def test_parked_messages_are_thrown_away_when_somebody_says_yes(tailrace: Tailrace, log: CommitLog, data: Path) -> None:
    for message in Receiver(log.directory, "stock").messages(0):
        message.park("odd")
    assert tailrace("queue", "discard", data, 1).status == 2
    assert tailrace("queue", "discard", data, 1, "--yes", "--json").json == {"discarded": [1]}
    assert "odd" in tailrace("queue", "parked", data).out
    assert [each["id"] for each in tailrace("queue", "parked", data, "--json").json["parked"]] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("list", "nowhere"), "there are no queues here"),
        (("show", "site", "LRQ_Recv_stock_south"), "there is no queue"),
        (("park", "site", "LRQ_Send_LogEntries", 0, "--reason", "r"), "is no queue in which something comes"),
        (("park", "site", QUEUE, 0, "--reason", "r"), "is done with message 0 already"),
        (("park", "site", QUEUE, 7, "--reason", "r"), f"message 7 is none of {QUEUE}"),
        (("park", "site", QUEUE, 6, "--reason", "r", "--listener", "second"), "there is no consumer"),
        (("replay", "site", 99), "no message is parked under 99"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tailrace: Tailrace,
    log: CommitLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[object, ...],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    receive(log, 2)
    outcome = tailrace("queue", *command)
    assert (outcome.status, outcome.out) == (2, "")
    assert says in outcome.err


def test_looking_leaves_nothing_behind(tailrace: Tailrace, log: CommitLog, data: Path) -> None:
    before = sorted(Path(log.directory).iterdir())
    for command in (("list", data), ("show", data, QUEUE), ("parked", data)):
        assert tailrace("queue", *command).status == 0
    assert sorted(Path(log.directory).iterdir()) == before
