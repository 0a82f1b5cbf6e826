"""Acknowledgements as Arrow: they say the same as JSON, are checked alike, and go only to nodes that know them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_ROWS_MAX
from tailrace.sync.ackform import as_arrow, read_arrow
from tailrace.sync.address import PeerAddress
from tailrace.sync.arrowform import MEDIA_TYPE
from tailrace.sync.content import JSON
from tailrace.sync.exchange import ANY_NODE, Ack, Acks, Tracker
from tailrace.sync.httplink import Answer, HttpLink
from tailrace.sync.httppeer import HttpPeer
from tailrace.sync.round import Progress, sync_round
from tailrace.sync.store import SyncStore
from tailrace.sync.wire import Wire
from tests.sync.conftest import Places
from tests.sync.cutting import CuttingProxy
from tests.sync.places import Place
from tests.sync.test_client import served
from tests.sync.test_wire import HASH, LONG, NODE, PAIR, SHAPE, WHY, stream
from tests.sync.todo import TABLE_ID, node, put, remove, trackers, version, whats

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PART = st.one_of(LONG, TEXT, st.booleans(), st.sampled_from([{"$bytes": "00ff"}, {"$real": "inf"}]))
MADE_BY = NODE | st.just(ANY_NODE)
CONFIRMING = "/replication/markReplicateTrackersAsProcessed"


@given(st.lists(st.tuples(PART, TEXT, LONG, TEXT, MADE_BY, WHY), min_size=1, max_size=8))
def test_acknowledgements_come_back(told: list[tuple[Any, ...]]) -> None:
    for shape, parts, made in ((SHAPE, 1, 2), (PAIR, 2, 2), (HASH, 1, 3)):
        acks = [Ack(Tracker(each[:parts], each[made], each[4]), each[5]) for each in told]
        wire = Wire(shape)
        found = list(read_arrow(wire, as_arrow(Acks.of(acks))))
        assert found == acks == list(wire.read_acks(wire.acks(acks)))
        assert [tuple(map(type, ack.tracker.key)) for ack in found] == [
            tuple(map(type, ack.tracker.key)) for ack in acks
        ]


@pytest.mark.parametrize(
    "changed",
    [
        *({"primaryKey": [None]}, {"primaryKey": None}, {"versionId": ["x"]}, {"versionId": [None]}),
        *({"versionId": [True]}, {"versionId": None}, {"changedBy": ["x"]}, {"changedBy": [-1]}, {"changedBy": None}),
        *({"refused": [5]}, {"primaryKey1": [1]}, {"more": [1]}, {"primaryKey": [[1]]}),
    ],
)
def test_what_is_no_acknowledgement_is_refused(changed: dict[str, list[Any] | None]) -> None:
    sound = {"primaryKey": [1], "versionId": [1], "changedBy": [1]}
    assert list(read_arrow(Wire(SHAPE), stream(pa.table(sound)))) == [Ack(Tracker((1,), 1, 1))]
    told = {name: values for name, values in {**sound, **changed}.items() if values is not None}
    with pytest.raises(TailraceError) as caught:
        read_arrow(Wire(SHAPE), stream(pa.table(told)))
    assert caught.value.code == "sync.malformed"


def test_too_many_acknowledgements_are_refused() -> None:
    many = list(range(SYNC_ROWS_MAX + 1))
    with pytest.raises(TailraceError) as caught:
        read_arrow(Wire(SHAPE), as_arrow(Acks([many], many, many)))
    assert caught.value.code == "sync.too_large"


@contextmanager
def calling(store: SyncStore, url: str, form: str) -> Iterator[HttpPeer]:
    """Another node, which says that it knows one form of acknowledgements."""
    with HttpLink(PeerAddress.of(url), store.node_id, store.secret) as link:
        peer = HttpPeer.greet(link, store.shape)
        store.meet(peer.node_id, 1)
        assert peer.greeting.ack_formats == {JSON, MEDIA_TYPE}
        yield HttpPeer(link, store.shape, replace(peer.greeting, ack_formats=frozenset({JSON, form})))


@pytest.mark.parametrize("form", [JSON, MEDIA_TYPE])
def test_a_round_confirms_in_the_form_that_the_other_node_knows(places: Places, dialect: str, form: str) -> None:
    laptop, central = places("sqlite"), places(dialect)
    one, other = node(laptop, batch_rows=7), node(central, batch_rows=7)
    for number in range(20):
        put(central, number, f"of central {number}")
    with served(other) as url, CuttingProxy(url) as proxy, calling(one, proxy.url, form) as peer:
        assert sync_round(one, peer) == Progress(fetched=20)
        assert {seen.headers["content-type"] for seen in proxy.seen if seen.path == CONFIRMING} == {form}
    assert whats(laptop) == whats(central)
    assert all(is_done for _, _, _, is_done in trackers(central))


@pytest.mark.parametrize("form", [JSON, MEDIA_TYPE])
def test_a_row_that_was_changed_since_its_page_stays_pending(places: Places, place: Place, form: str) -> None:
    """And so does one that was deleted meanwhile; what the other node has is remembered."""
    one, other = node(places("sqlite")), node(place)
    for number in range(10):
        put(place, number, "as it was")
    with served(other) as url, calling(one, url, form) as peer:
        peer.pending_tables()
        page = peer.pending_rows(TABLE_ID, None, 100)
        old = version(place, 3)
        put(place, 3, "changed")
        remove(place, 5)
        values = page.by_column.values
        peer.mark_processed(TABLE_ID, Acks([values[0]], values[-1], values[-3]))
        assert [key for key, _, _, is_done in trackers(place) if not is_done] == [3, 5]
        assert [has for key, _, has, _ in trackers(place) if key == 3] == [old]
        assert [each.key for each in peer.pending_trackers(TABLE_ID, None, 100)] == [(3,), (5,)]
        assert sync_round(one, peer) == Progress(fetched=2)
    assert all(is_done for _, _, _, is_done in trackers(place))


@pytest.mark.parametrize("form", [JSON, MEDIA_TYPE])
def test_what_is_refused_is_told_with_its_reason(places: Places, place: Place, form: str) -> None:
    one, other = node(places("sqlite")), node(place)
    put(place, 1, "wanted")
    put(place, 2, "not wanted")
    with served(other) as url, calling(one, url, form) as peer:
        peer.pending_tables()
        values = peer.pending_rows(TABLE_ID, None, 100).by_column.values
        peer.mark_processed(TABLE_ID, Acks([values[0]], values[-1], values[-3], {1: "no, thanks"}))
    assert [(each.key, each.reason) for each in other.quarantined()] == [([2], "no, thanks")]
    assert all(is_done for _, _, _, is_done in trackers(place))


class OldLink(HttpLink):
    """To a node that does not say in which forms it can be told, as one of Door."""

    def ask(self, *arguments: Any, **named: Any) -> Answer:
        answer = super().ask(*arguments, **named)
        if not arguments[1].endswith("/node"):
            return answer
        said = orjson.loads(answer.body)
        del said["ackFormats"]
        return replace(answer, body=orjson.dumps(said))


def test_a_node_that_does_not_say_is_told_in_json(places: Places) -> None:
    central = places("sqlite")
    one, other = node(places("sqlite")), node(central)
    put(central, 1, "of central")
    with served(other) as url, CuttingProxy(url) as proxy:
        with OldLink(PeerAddress.of(proxy.url), one.node_id, one.secret) as link:
            peer = HttpPeer.greet(link, one.shape)
            one.meet(peer.node_id, 1)
            assert sync_round(one, peer) == Progress(fetched=1)
        assert [seen.headers["content-type"] for seen in proxy.seen if seen.path == CONFIRMING] == [JSON]
