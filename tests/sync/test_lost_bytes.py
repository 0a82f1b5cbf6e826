"""Edits with bytes that lose when many rows come at once: what was in them can be read in quarantine."""

from __future__ import annotations

import pytest

from tailrace.sync import receiving
from tailrace.sync.address import PeerAddress
from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.entity import Entity
from tailrace.sync.exchange import Receipt
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tests.sync.conftest import Places

FILE = Entity("file", 5, "changed")
ROWS = 300
RAW = [bytes(range(256)), b"", b"\x00", b"\\x41", b"\xff\xfe", b"plain"]


def raw(key: int, whose: int) -> bytes:
    return RAW[key % len(RAW)] + bytes([whose, key % 256])


@pytest.mark.parametrize("other_dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize("loses", ["what is here", "what comes"])
@pytest.mark.parametrize("has_arrow", [False, True], ids=["json", "arrow"])
@pytest.mark.parametrize("way", ["sent", "fetched"])
def test_bytes_of_edits_that_lose_are_kept(
    places: Places,
    dialect: str,
    other_dialect: str,
    loses: str,
    has_arrow: bool,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def singly(*_: object) -> Receipt:
        raise AssertionError("rows were taken one by one")

    monkeypatch.setattr(receiving, "_receive_singly", singly)
    sender, receiver = places(other_dialect), places(dialect)
    for place in (sender, receiver):
        place.run("CREATE TABLE file(id bigint PRIMARY KEY, raw bytea, title text, changed bigint)")
    one, two = sender.install(FILE), receiver.install(FILE)
    came, here = (2000, 1000) if loses == "what is here" else (1000, 2000)
    for place, whose, changed in ((sender, 1, came), (receiver, 2, here)):
        for key in range(1, ROWS + 1):
            place.ask("INSERT INTO file VALUES (?, ?, ?, ?)", (key, raw(key, whose), f"of {whose}", changed + key))
    calling, called = (one, two) if way == "sent" else (two, one)
    with SyncServer(called, options=ServerOptions(Accept.ANYONE)) as server:
        node = SyncNode.over(calling)
        with node.meeting(PeerAddress.of(server.url)) as (peer, _):
            peer._has_arrow = has_arrow
            node.round(peer)
    lost = [each for each in (*one.quarantined(), *two.quarantined()) if each.why == "lost"]
    loser = 2 if loses == "what is here" else 1
    assert len(lost) == ROWS
    assert {each.key[0]: bytes.fromhex((each.row or {})["raw"].removeprefix("\\x")) for each in lost} == {
        key: raw(key, loser) for key in range(1, ROWS + 1)
    }
    assert {(each.row or {})["title"] for each in lost} == {f"of {loser}"}
    for place in (sender, receiver):
        found = {key: bytes(value) for key, value in place.ask("SELECT id, raw FROM file")}
        assert found == {key: raw(key, 3 - loser) for key in range(1, ROWS + 1)}
