"""Answers of a server that is hostile or broken: an error that says so each, and no more memory than is allowed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.limits import MIB, SYNC_BODY_BYTES_MAX, SYNC_REFUSAL_BYTES_MAX, SYNC_TABLES_MAX
from tailrace.sync import arrowform, httplink
from tailrace.sync.address import PeerAddress
from tailrace.sync.client import SyncNode
from tailrace.sync.exchange import RowBatch
from tailrace.sync.subscription import events
from tests.sync.conftest import Places
from tests.sync.hostile import ENDPOINTS, JSON, NODE, HostileServer, Said, as_a_node, said
from tests.sync.peak import peak_bytes
from tests.sync.places import Place
from tests.sync.todo import node, put

READ = [name for name in ENDPOINTS if not name.startswith("mark")]
"""Endpoints whose answers are looked at."""
_NUMBERS = count()


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer() as server:
        yield server


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a node elsewhere, with which everything is packed."""
    monkeypatch.setattr(httplink, "is_loopback_host", lambda _host: False)


def asked(place: Place, calling: SyncNode, server: HostileServer) -> TailraceError | None:
    """What comes of a round with something to send; nothing but a `TailraceError` may."""
    put(place, 1, f"edit {next(_NUMBERS)}")
    try:
        calling.sync_with(server.url)
    except TailraceError as error:
        return error
    return None


def bad(place: Place, calling: SyncNode, server: HostileServer, name: str, told: Said) -> str:
    server.answers = {**as_a_node(), name: told}
    error = asked(place, calling, server)
    assert error is not None and error.code == "sync.bad_answer", error
    return error.what


def test_it_answers_as_a_node(places: Places, server: HostileServer) -> None:
    place = places("sqlite")
    assert asked(place, SyncNode.over(node(place)), server) is None
    assert {*ENDPOINTS} - {*server.asked} <= {"markReplicateTrackersAsProcessed"}


@pytest.mark.parametrize("name", READ)
def test_encodings_that_were_not_asked_for(places: Places, server: HostileServer, name: str) -> None:
    place = places("sqlite")
    calling = SyncNode.over(node(place))
    body = as_a_node()[name].body
    for coding, content in (
        ("gzip", gzip.compress(body)),
        ("gzip, gzip", gzip.compress(gzip.compress(body))),
        ("deflate", zlib.compress(body)),
        ("br", body),
        ("zstd", body),
    ):
        told = Said(content, headers={"content-encoding": coding})
        assert "was not asked for" in bad(place, calling, server, name, told)


@pytest.mark.usefixtures("packing")
@pytest.mark.parametrize("name", READ)
def test_gzip_is_taken_once_and_unpacked_as_far_as_is_allowed(places: Places, server: HostileServer, name: str) -> None:
    place = places("sqlite")
    calling = SyncNode.over(node(place))
    body, packed = as_a_node()[name].body, {"content-encoding": "gzip"}
    server.answers = {**as_a_node(), name: Said(gzip.compress(body), headers=packed)}
    assert asked(place, calling, server) is None
    whole = gzip.compress(body)
    bomb = gzip.compress(b" " * (16 * SYNC_BODY_BYTES_MAX), 9)
    for content in (bomb, whole[:-4], whole + whole, whole + b"x", b"", b"no gzip"):
        told = Said(content, headers=packed)
        assert peak_bytes(lambda told=told: bad(place, calling, server, name, told)) < 5 * SYNC_BODY_BYTES_MAX  # type: ignore[misc]
    twice = Said(gzip.compress(whole), headers={"content-encoding": "gzip, gzip"})
    assert "was not asked for" in bad(place, calling, server, name, twice)


BIG = b"[" + b"{}," * (20 * MIB) + b"{}]"
LONG = b" " * (SYNC_BODY_BYTES_MAX + 1)


@pytest.mark.parametrize("content", [BIG, LONG], ids=["values", "bytes"])
@pytest.mark.parametrize("has_length", [True, False])
@pytest.mark.parametrize("name", READ)
def test_too_much_takes_little_room(
    places: Places, server: HostileServer, name: str, has_length: bool, content: bytes
) -> None:
    place = places("sqlite")
    calling = SyncNode.over(node(place))
    told = Said(content, has_length=has_length)
    assert peak_bytes(lambda: bad(place, calling, server, name, told)) < 5 * SYNC_BODY_BYTES_MAX


@pytest.mark.parametrize("name", ENDPOINTS)
@pytest.mark.parametrize("kind", [JSON, "text/html"])
def test_a_refusal_that_is_too_long_is_its_status(places: Places, server: HostileServer, name: str, kind: str) -> None:
    place = places("sqlite")
    calling = SyncNode.over(node(place))
    if name.startswith("mark"):
        return_rows(server)
    error = {"error": {"code": "sync.busy", "what": "x" * SYNC_REFUSAL_BYTES_MAX, "hint": ""}}
    server.answers[name] = Said(orjson.dumps(error), kind, 503)
    told = asked(place, calling, server)
    assert told is not None and told.code == "sync.bad_answer" and "answered 503" in told.what
    server.answers[name] = Said(BIG, kind, 500)
    assert peak_bytes(lambda: asked(place, calling, server)) < 2 * MIB


def return_rows(server: HostileServer) -> None:
    row = {"id": 5, "what": "x", "is_done": False, "changed": 1000, "doorTime": 1000, "doorNode": NODE}
    server.answers["pendingReplication"] = said([row])


def test_names_and_numbers_of_tables_have_an_end(places: Places, server: HostileServer) -> None:
    place = places("sqlite")
    calling = SyncNode.over(node(place))
    many = list(range(1, SYNC_TABLES_MAX + 2))
    bad(place, calling, server, "pending", said({"tables": many, "empty": []}))
    greeting = orjson.loads(as_a_node()["node"].body)
    tables = {str(number): {"table": "t"} for number in many}
    bad(place, calling, server, "node", said({**greeting, "tables": tables}))
    long_name = {"7": {"table": "t" * MIB}, "42": {"table": "todo"}}
    server.answers = {
        **as_a_node(),
        "node": said({**greeting, "tables": long_name}),
        "pending": said({"tables": [7], "empty": []}),
    }
    (warning,) = calling.sync_with(server.url).warnings
    assert "is not synced here" in warning and len(warning) < 1000


def test_cookies_are_not_kept(places: Places, server: HostileServer) -> None:
    server.answers["node"] = Said(as_a_node()["node"].body, headers={"set-cookie": "a=b; Path=/"})
    with SyncNode.over(node(places("sqlite"))).meeting(PeerAddress.of(server.url)) as (peer, _):
        assert len(peer.link._client.cookies) == 0


def link() -> Any:
    return httplink.HttpLink(PeerAddress.of("http://127.0.0.1:1"), 1, "a-secret-of-somebody")


@pytest.mark.parametrize(
    "endless",
    [b"x" * 1000, b"data: x\n" * 100, b"event: x\n", b": x\n", b"data", b"\r"],
    ids=["no line end", "no event end", "names", "comments", "one line in parts", "carriage returns"],
)
def test_an_event_that_does_not_end(endless: bytes) -> None:
    def forever() -> Iterator[bytes]:
        while True:
            yield endless

    def listen() -> None:
        with pytest.raises(TailraceError) as caught:
            list(events(forever(), link()))
        assert caught.value.code == "sync.bad_answer"

    assert peak_bytes(listen) < 32 * MIB


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_come_in_any_parts(size: int) -> None:
    stream = b": hello\r\n\r\nevent: INIT\r\ndata: 5\r\n\r\nevent: A\ndata: 1\ndata: 2\n\n\ndata:x\n\n"
    parts = [stream[begin : begin + size] for begin in range(0, len(stream), size)]
    assert list(events(parts, link())) == [("INIT", "5"), ("A", "1\n2"), ("", "x")]


# Anything at all.

NAMES = [
    *("id", "what", "is_done", "changed", "doorTime", "doorNode", "doorDeleted", "doorVersion"),
    *("primaryKey", "versionId", "changedBy", "reason", "refused", "older", "left", "tables", "empty"),
    *("nodeId", "time", "keyNode", "formats", "error", "code", "hint", "42"),
]
NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1) | st.sampled_from([0, 1, 42, NODE, 1 << 53, (1 << 63) - 1])
MARKED = st.dictionaries(st.sampled_from(["$bytes", "$real", "$text"]), st.text() | st.just("inf"), max_size=1)
PLAIN = st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False) | st.text(max_size=20) | MARKED
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=8),
    max_leaves=12,
)
ROWS = st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES[:12], PLAIN)), max_size=4)
STREAM = arrowform.as_arrow(
    RowBatch(("id", "changed", "what", "is_done"), [(5, 1000, "x", False, 1000, NODE, False, 1000)])
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An Arrow stream of which some bytes are others."""
    content = bytearray(STREAM)
    for place in draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    return bytes(content[: draw(st.sampled_from([len(content), len(content) - 8, len(content) // 2]))])


BODIES = (VALUES | ROWS).map(orjson.dumps) | st.binary(max_size=200) | damaged()
ANSWERS = st.builds(
    Said,
    BODIES,
    st.sampled_from([JSON, arrowform.MEDIA_TYPE, "", "text/html"]),
    st.sampled_from([200, 200, 200, 204, 301, 400, 413, 500, 507]),
)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_nothing_but_an_error_of_ours_comes_of_any_answer(place: Place, server: HostileServer, name: str) -> None:
    calling = SyncNode.over(node(place))

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(ANSWERS)
    def check(told: Said) -> None:
        server.answers = as_a_node()
        if name.startswith("mark"):
            return_rows(server)
        body = b"" if told.status == 204 else told.body
        server.answers[name] = Said(body, told.kind, told.status)
        error = asked(place, calling, server)
        assert error is None or error.code != "sync.failed", error

    check()
