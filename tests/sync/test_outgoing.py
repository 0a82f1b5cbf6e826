"""Rows that are too large: pages are cut before them, and one that fits nowhere is put aside and holds up nobody."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from tailrace.errors import TailraceError
from tailrace.limits import MIB, SYNC_BODY_BYTES_MAX
from tailrace.sync import content, httplink
from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.exchange import PAGE_LENGTH_MAX, Receipt, RowBatch
from tailrace.sync.httplink import Answer, HttpLink
from tailrace.sync.httppeer import HttpPeer
from tailrace.sync.room import RoomLimit
from tailrace.sync.round import sync_round
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import SyncStore
from tests.sync.conftest import Places
from tests.sync.direct import DirectPeer, meet, sync
from tests.sync.hostile import JSON, HostileServer, Said
from tests.sync.places import Place
from tests.sync.todo import TABLE_ID, node, put, todo, whats

LIMIT = 300_000
"""Bodies that a test takes for the largest."""
LARGE = "x" * (LIMIT + 1)


@contextmanager
def served(store: SyncStore) -> Iterator[str]:
    with SyncServer(store, options=ServerOptions(Accept.ANYONE)) as server:
        yield server.url


@pytest.fixture(params=["json", "arrow"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How rows travel."""
    if request.param == "json":
        usual = HttpPeer.__init__

        def without_arrow(self: HttpPeer, *told: Any) -> None:
            usual(self, *told)
            self._has_arrow = False

        monkeypatch.setattr(HttpPeer, "__init__", without_arrow)
    return str(request.param)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody read more than that."""
    monkeypatch.setattr(content, "SYNC_BODY_BYTES_MAX", LIMIT)


def kept(store: SyncStore) -> list[tuple[str, list[Any], int, Any]]:
    return sorted((each.why.value, each.key, each.node, each.row) for each in store.quarantined())


@pytest.mark.usefixtures("form", "small")
@pytest.mark.parametrize("direction", ["sent", "fetched"])
def test_a_row_that_fits_nowhere_holds_up_no_other(place: Place, other: Place, direction: str) -> None:
    one, two = node(place), node(other)
    source, sender, receiver = (place, one, two) if direction == "sent" else (other, two, one)
    target = other if source is place else place
    for key, what in enumerate(("a", LARGE, "b", LARGE, LARGE, "c")):
        put(source, key, what)
    calling = SyncNode.over(one)
    with served(two) as url:
        done = calling.sync_with(url)
        assert whats(target) == {0: "a", 2: "b", 5: "c"}
        assert kept(sender) == [("rejected", [key], receiver.node_id, {"id": key}) for key in (1, 3, 4)]
        assert kept(receiver) == []
        reason = sender.quarantined()[0].reason
        assert f"{LIMIT:,}" in reason and f"{LIMIT + 1:,}"[:4] in reason
        if direction == "sent":
            assert (done.sent, done.refused) == (3, 3)
            assert "todo are too large" in done.warnings[0] and reason.partition(" bytes")[2] in done.warnings[0]
        assert sender.nodes_with_pending() == {}
        assert calling.sync_with(url).warnings == ()
        put(source, 3, "small by now")
        put(source, 4, LARGE + "still not")
        calling.sync_with(url)
        assert whats(target) == {0: "a", 2: "b", 3: "small by now", 5: "c"}
        source.run("DELETE FROM todo WHERE id = 1")
        calling.sync_with(url)
        assert sender.nodes_with_pending() == {}


@pytest.mark.usefixtures("form", "small")
def test_rows_that_are_too_large_only_together_all_come(place: Place, other: Place) -> None:
    one, two = node(place), node(other)
    rows = {key: f"{key}" + "y" * (LIMIT // 3 if key % 4 == 0 else 10) for key in range(60)}
    for key, what in rows.items():
        put(place, key, what)
        put(other, 100 + key, what)
    with served(two) as url:
        done = SyncNode.over(one).sync_with(url)
        assert (done.sent, done.fetched, done.refused, done.warnings) == (60, 60, 0, ())
        assert whats(place) == whats(other) and len(whats(place)) == 120
    assert kept(one) == kept(two) == []


@pytest.mark.usefixtures("form")
def test_signs_that_are_longer_on_the_wire_count_as_they_are_there(places: Places) -> None:
    """In JSON a sign can take six bytes: these rows are within the limit as they stand in the table."""
    place, other = places("sqlite"), places("sqlite")
    one, two = node(place), node(other)
    for key in range(3):
        put(place, key, "\x01" * (SYNC_BODY_BYTES_MAX // 5))
        put(other, 10 + key, "\x01" * (SYNC_BODY_BYTES_MAX // 5))
    put(place, 5, "small")
    put(other, 15, "small")
    with served(two) as url:
        SyncNode.over(one).sync_with(url)
    assert whats(other)[5] == whats(place)[15] == "small"
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}
    assert len(kept(one)) + len(whats(other)) == 3 + 1 + 4


@pytest.mark.parametrize("packs", [True, False])
def test_a_row_beyond_the_real_limit(place: Place, other: Place, packs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httplink, "is_loopback_host", lambda _host: not packs)
    one, two = node(place), node(other)
    for source, first in ((place, 0), (other, 10)):
        put(source, first, "before")
        put(source, first + 1, "z" * (SYNC_BODY_BYTES_MAX + 1))
        put(source, first + 2, "after")
    with served(two) as url:
        SyncNode.over(one).sync_with(url)
    assert {*whats(other)} == {0, 2, 10, 11, 12} and {*whats(place)} == {0, 1, 2, 10, 12}
    assert [each.key for each in one.quarantined()] == [[1]]
    assert [each.key for each in two.quarantined()] == [[11]]
    assert "67,108,864" in one.quarantined()[0].reason


def test_what_does_not_pack_well_goes_as_it_is(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httplink, "is_loopback_host", lambda _host: False)
    monkeypatch.setattr(httplink, "SYNC_PACKED_BYTES_MAX", 1000)
    monkeypatch.setattr("tailrace.sync.answers.SYNC_PACKED_BYTES_MAX", 1000)
    monkeypatch.setattr("tailrace.sync.bodies.SYNC_PACKED_BYTES_MAX", 1000)
    place, other = places("sqlite"), places("sqlite")
    one, two = node(place), node(other)
    noise = random.Random(1).randbytes(10_000).hex()
    put(place, 1, noise)
    put(other, 2, noise)
    with served(two) as url:
        assert SyncNode.over(one).sync_with(url).refused == 0
    assert whats(place) == whats(other) == {1: noise, 2: noise}


class SmallPeer(DirectPeer):
    """A node behind something that lets only so much through."""

    def __init__(self, caller: SyncStore, store: SyncStore, most: int) -> None:
        super().__init__(caller, store)
        self._most = most
        self.sizes: list[int] = []

    def receive(self, table_id: int, batch: RowBatch) -> Receipt:
        size = len(orjson.dumps(batch.rows))
        if size > self._most:
            raise TailraceError("sync.too_large", f"it answered 413 to {size} bytes", hint="send less")
        self.sizes.append(len(batch))
        return super().receive(table_id, batch)


def test_what_another_node_takes_for_too_large_is_sent_in_parts(place: Place, other: Place) -> None:
    one, two = node(place), node(other)
    for key in range(200):
        put(place, key, "w" * 100)
    put(place, 77, "w" * 3000)
    meet(one, two)
    peer = SmallPeer(one, two, 2000)
    done = sync_round(one, peer)
    assert (done.sent, done.refused) == (199, 1)
    assert "413" in done.warnings[0]
    assert {*whats(other)} == {*range(200)} - {77}
    assert kept(one) == [("rejected", [77], two.node_id, {"id": 77})]
    assert max(peer.sizes) > 1
    (entry,) = one.quarantined()
    assert one.send_again(entry.id)
    sync(one, two)
    assert whats(other)[77] == "w" * 3000


def test_who_takes_nothing_fills_no_more_than_its_room(places: Places) -> None:
    place, other = places("sqlite"), places("sqlite")
    node(place)
    one = SyncStore(place.database(), [todo()], RoomLimit(rows_max=3))
    two = node(other)
    for key in range(10):
        put(place, key, "w")
    meet(one, two)
    done = sync_round(one, SmallPeer(one, two, 0))
    assert (done.refused, done.left) == (3, 7)
    assert len(one.quarantined()) == 3
    assert one.nodes_with_pending() == {two.node_id: [TABLE_ID]}


@pytest.mark.parametrize("said", [Said(b"<html>too large</html>", "text/html", 413), Said(b"{}", JSON, 413)])
def test_a_proxy_with_its_own_limit(places: Places, said: Said) -> None:
    place = places("sqlite")
    store = node(place)
    put(place, 1, "x")
    with HostileServer() as server:
        server.answers["receive"] = said
        done = SyncNode.over(store).sync_with(server.url)
    assert done.refused == 1 and "answered 413 to" in done.warnings[0]
    assert [each.key for each in store.quarantined()] == [[1]]


def test_pages_are_cut_by_what_is_in_them(place: Place, other: Place) -> None:
    one, two = node(place), node(other)
    meet(one, two)
    for key in range(12):
        put(place, key, "p" * MIB if key >= 3 else "p")
    one.process_changes()
    after, sizes = None, []
    while len(rows := one.pending_rows(TABLE_ID, two.node_id, after, 1000)):
        assert rows.by_column.text_length() <= PAGE_LENGTH_MAX
        sizes.append((len(rows), rows.was_cut))
        after = rows.key_at(-1, ("id",))
    assert sizes == [(6, True), (4, True), (2, False)]


def test_an_answer_that_is_too_large_is_asked_for_in_parts(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that do not know the limit of answers are asked for fewer rows."""
    usual = HttpLink.ask

    def ask(self: HttpLink, method: str, path: str, **more: Any) -> Answer:
        return usual(self, method, path, **{"bytes_max": LIMIT, **more})

    monkeypatch.setattr(HttpLink, "ask", ask)
    place, other = places("sqlite"), places("sqlite")
    one, two = node(place), node(other)
    for key in range(20):
        put(other, key, "q" * (LIMIT // 5))
    with served(two) as url:
        assert SyncNode.over(one).sync_with(url).fetched == 20
    assert whats(place) == whats(other)


def test_who_sends_the_same_rows_for_ever_is_told_so(places: Places) -> None:
    store = node(places("sqlite"))
    row = {"id": 5, "what": "x", "is_done": False, "changed": 1000, "doorTime": 1000, "doorNode": 9}
    with HostileServer() as server:
        server.answers["pendingReplication"] = Said(orjson.dumps([row]), headers={"door-more": "true"})
        with pytest.raises(TailraceError, match="the same rows"):
            SyncNode.over(store).sync_with(server.url)
