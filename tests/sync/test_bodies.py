"""Bodies that are too large, too deep, forged or none at all: an error of the caller each, and nothing breaks."""

from __future__ import annotations

import gzip
import http.client
import socket
import zlib
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from tailrace.errors import TailraceError
from tailrace.limits import (
    MIB,
    SYNC_BODY_BYTES_MAX,
    SYNC_DEPTH_MAX,
    SYNC_PACKED_BYTES_MAX,
    SYNC_ROWS_MAX,
    SYNC_VALUES_MAX,
)
from tailrace.sync import arrowform
from tailrace.sync.bodies import Room
from tests.sync.served import ALICE, SECRETS, Served, serve, served

__all__ = ["serve", "served"]  # fixtures

ROW = {"id": 1, "what": "sweep", "is_done": False, "weight": 1.5, "changed": 1000}
GZIP = {"Content-Encoding": "gzip"}
BODIES = ["receive", "markReplicateTrackersAsProcessed", "checkForEntitiesAlreadyReceived"]


def send(served: Served, name: str, content: bytes, **headers: str) -> int:
    """What becomes of a body; the answer to a bad one says why."""
    method = "POST" if name.startswith("check") else "PUT"
    answer = served.client().request(method, f"{name}?tableId=42", content=content, headers=headers)
    if answer.status_code >= 400:
        told = answer.json()["error"]
        assert set(told) == {"code", "what", "hint"}
        assert all(told.values())
    return answer.status_code


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


NO_BODIES: list[tuple[bytes, int]] = [
    *((b"", 400), (b"{", 400), (b"null", 400), (b"{}", 400), (b'"x"', 400), (b"[1]", 400), (b"[null]", 400)),
    *((b"[[]]", 400), (b"[{}]", 400), (b'[{"id": NaN}]', 400), (b"\xff\xfe", 400), (b'["\\ud800"]', 400)),
    *((nested(SYNC_DEPTH_MAX + 1), 400), (nested(100_000), 400)),
    (b'[{"id":1,"primaryKey":1,"versionId":1,"x":' + b"[" * 40 + b"]" * 40 + b"}]", 400),
    (b"[" + b",".join([b"{}"] * (SYNC_ROWS_MAX + 1)) + b"]", 413),
    (b"[" + b"1," * (SYNC_VALUES_MAX + 1) + b"1]", 413),
    (b" " * (SYNC_BODY_BYTES_MAX + 1), 413),
]


@pytest.mark.parametrize("name", BODIES)
def test_what_is_no_body(served: Served, name: str) -> None:
    for content, status in NO_BODIES:
        assert send(served, name, content) == status, content[:80]


def test_gzip_both_ways(served: Served) -> None:
    rows = [{**ROW, "id": key, "what": "sweep" * 20} for key in range(100)]
    assert send(served, "receive", gzip.compress(orjson.dumps(rows)), **GZIP) == 200
    client = served.client(7_000_000_000_000_000_002)
    client.get("pending")
    plain = client.get("pendingReplication?tableId=42", headers={"Accept-Encoding": "identity"})
    packed = client.get("pendingReplication?tableId=42", headers={"Accept-Encoding": "br, gzip;q=0.5"})
    never = client.get("pendingReplication?tableId=42", headers={"Accept-Encoding": "gzip;q=0"})
    assert [answer.headers.get("content-encoding") for answer in (plain, packed, never)] == [None, "gzip", None]
    assert plain.json() == packed.json() == never.json()
    assert int(packed.headers["content-length"]) * 4 < int(plain.headers["content-length"])


@pytest.mark.parametrize("media_type", ["application/json", arrowform.MEDIA_TYPE])
def test_bombs_and_broken_gzip(served: Served, media_type: str) -> None:
    headers = {**GZIP, "Content-Type": media_type}
    bomb = gzip.compress(b" " * (SYNC_BODY_BYTES_MAX + 1), 9)
    assert len(bomb) < MIB
    whole = gzip.compress(b"[]")
    cases = [
        *((bomb, 413), (b"not gzip", 400), (b"", 400), (whole[:-4], 400), (whole[:10], 400), (whole + whole, 400)),
        *((whole + b"x", 400), (zlib.compress(b"[]"), 400), (b"\x1f\x8b" + b"\0" * 100, 400)),
    ]
    for content, status in cases:
        assert send(served, "receive", content, **headers) == status
    assert send(served, "receive", b"\0" * (SYNC_PACKED_BYTES_MAX + 1), **headers) == 413


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/html"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Encoding": "br"},
        {"Content-Encoding": "gzip, gzip"},
    ],
)
def test_types_that_nobody_reads(served: Served, headers: dict[str, str]) -> None:
    assert send(served, "receive", b"[]", **headers) == 415


def test_all_bodies_together_have_their_room() -> None:
    room = Room(100)
    room.take(60)
    with pytest.raises(TailraceError) as caught:
        room.take(41)
    assert caught.value.code == "sync.busy"
    room.give(60)
    room.take(100)


TOO_LATE = 1 << 60
HOSTILE_ROWS: list[tuple[Any, int]] = [
    ({**ROW, "id": None}, 400),
    ({**ROW, "id": []}, 400),
    ({**ROW, "id": {}}, 400),
    ({**ROW, "id": {"$bytes": "zz"}}, 400),
    ({**ROW, "id": {"$real": "5"}}, 400),
    ({"what": "no key", "changed": 1}, 400),
    ({**ROW, "changed": None}, 400),
    ({**ROW, "changed": "soon"}, 400),
    ({**ROW, "changed": 1.5}, 400),
    ({**ROW, "changed": True}, 400),
    ({**ROW, "changed": -1}, 400),
    ({**ROW, "changed": TOO_LATE}, 200),  # the row is refused, not all that came with it
    ({**ROW, "changed": 1 << 63}, 400),
    ({**ROW, "doorTime": 5}, 400),
    ({**ROW, "doorNode": -5}, 400),
    ({**ROW, "doorNode": "me"}, 400),
    ({**ROW, "doorNode": 1 << 63}, 400),
    ({**ROW, "doorDeleted": "no"}, 400),
    ({**ROW, "doorDeleted": {}}, 400),
    ({**ROW, "doorDeleted": 2}, 400),
    ({**ROW, "what": ["a"]}, 400),
    ({**ROW, "what": {"a": {"b": 1}}}, 400),
    ({**ROW, 'what"; DROP TABLE todo; --': 1, "\0": 2, "": 3, "$1": 4, "x" * 10_000: 5}, 200),
    ({**ROW, "what": "'); DROP TABLE todo; --"}, 200),
    ({**ROW, "what": "a" * MIB}, 200),
    ({**ROW, "fromNodeId": 5, "trkrDestinationNode": {}, "trkrVersionId": [], "trkrProcessed": "x"}, 200),
]


def test_hostile_rows(served: Served) -> None:
    for row, status in HOSTILE_ROWS:
        assert send(served, "receive", _dumped([row])) == status, row
        found = served.ask("SELECT what FROM todo")
        is_taken = status == 200 and row["changed"] != TOO_LATE
        assert found == ([(row["what"],)] if is_taken else [])
        served.run("DELETE FROM todo")
        served.run("DELETE FROM todoStamp")


def test_a_row_that_the_table_does_not_want_does_not_keep_others_back(served: Served) -> None:
    """PostgreSQL has no text with a zero byte, and no number that is text; SQLite has both."""
    rows = [{**ROW, "id": 1, "what": "a\0b"}, {**ROW, "id": 2, "weight": "heavy"}, {**ROW, "id": 3}]
    answer = served.client().put("receive?tableId=42", json=rows)
    assert answer.status_code == 200
    refused = [each["primaryKey"] for each in answer.json()["refused"]]
    is_postgres = served.address.startswith("postgres")
    assert refused == ([1, 2] if is_postgres else [])
    assert (3, "sweep") in served.ask("SELECT id, what FROM todo")
    assert len(served.store.quarantined()) == len(refused)


def test_a_row_after_which_nothing_could_come_is_refused_alone(served: Served) -> None:
    answer = served.client().put("receive?tableId=42", json=[{**ROW, "id": 2, "changed": 1 << 60}, {**ROW, "id": 3}])
    assert answer.status_code == 200
    assert [each["primaryKey"] for each in answer.json()["refused"]] == [2]
    assert served.ask("SELECT id FROM todo") == [(3,)]


HOSTILE_KEYS: list[Any] = [
    *("abc", "a\0b", "1; DROP TABLE todo", 1.5, True, 1 << 62, {"$bytes": "00"}, {"$real": "nan"}, {"$text": "x"}),
    *("", "\\x00", "9" * 100, 1e300, {"$bytes": "0"}, {"$bytes": 1}, {"$nothing": 1}, 1 << 63, 1 << 64, -(1 << 70)),
]


def test_hostile_keys(served: Served) -> None:
    """They match nothing, or are refused; never an error of the server."""
    client = served.client()
    assert send(served, "receive", _dumped([{**ROW, "id": 5}])) == 200
    for key in HOSTILE_KEYS:
        tracker = _dumped([{"primaryKey": key, "versionId": 1000}])
        for name in BODIES[1:]:
            assert send(served, name, tracker) in (200, 204, 400), key
        assert send(served, "receive", _dumped([{**ROW, "id": key}])) in (200, 400), key
        answer = client.get("pendingtrackers", params={"tableId": 42, "after": _dumped(key).decode()})
        assert answer.status_code in (200, 400), key
        assert client.get("pending").status_code == 200
    assert (5,) in served.ask("SELECT id FROM todo")


QUESTIONS = [
    *("", "tableId=", "tableId=x", "tableId=0", "tableId=-1", "tableId=1.5", "tableId=42&tableId=42", "tableId=4 2"),
    *("tableId=99999999999999999999", "tableId=42&limit=0", "tableId=42&limit=10001", "tableId=42&limit=x"),
    *("tableId=42&after=", "tableId=42&after={", "tableId=42&after=[1]", "tableId=42&after=null"),
    *("tableId=42&offset=5", "tableId=42&after=%ff", "tableId=%00", "tableId=42&a%00b=1", "tableId=%D9%A7"),
    "tableId=42&after=" + "[" * 5000,
]


def test_hostile_questions(served: Served) -> None:
    client = served.client()
    for query in QUESTIONS:
        for name in ("pendingtrackers", "pendingReplication"):
            answer = client.get(f"{name}?{query}")
            assert answer.status_code == 400, query
            assert answer.json()["error"]["code"] == "sync.malformed"
    assert client.get("pendingtrackers?tableId=41").status_code == 404
    assert client.get("node", headers={"door-longs": "maybe"}).status_code == 400


def raw(served: Served, request: bytes, *, is_cut: bool) -> bytes:
    """What a server says to bytes."""
    parts = urlsplit(served.server.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as link:
        link.sendall(request)
        if is_cut:
            link.shutdown(socket.SHUT_WR)
        found = b""
        with suppress(ConnectionResetError):  # it is not read to its end
            while part := link.recv(65536):
                found += part
        return found


def head(length: str, more: str = "") -> bytes:
    return (
        f"PUT /replication/receive?tableId=42 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"door-node: {ALICE}/{SECRETS[ALICE]}\r\nContent-Length: {length}\r\n{more}\r\n"
    ).encode()


FORGED: list[tuple[bytes, set[bytes]]] = [
    (head("99999999999") + b"[]", {b"413"}),
    (head("9" * 40) + b"[]", {b"400", b"413"}),
    (head("-5") + b"[]", {b"400"}),
    (head("two") + b"[]", {b"400"}),
    (head("2", "Content-Length: 3\r\n") + b"[]", {b"400"}),
    (head("50") + b"[]", {b""}),
    (head("1") + b"[]", {b"400"}),
    (head("2", "Transfer-Encoding: chunked\r\n") + b"xyz\r\n[]", {b"400"}),
    (head("2", "X: " + "a" * 2_000_000 + "\r\n") + b"[]", {b"400"}),
    (b"\0\xff\x16\x03\x01 nonsense\r\n\r\n", {b"400"}),
]


def test_forged_lengths(served: Served) -> None:
    client = served.client()
    for number, (request, statuses) in enumerate(FORGED):
        said = raw(served, request, is_cut=statuses == {b""})
        assert said[9:12] in statuses, (number, said[:200])
        assert client.get("node").status_code == 200
    assert served.ask("SELECT count(*) FROM todo") == [(0,)]


def test_a_body_in_parts_is_counted_while_it_comes(served: Served) -> None:
    parts = urlsplit(served.server.url)
    link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    link.putrequest("PUT", "/replication/receive?tableId=42")
    for name, value in (("door-node", f"{ALICE}/{SECRETS[ALICE]}"), ("Transfer-Encoding", "chunked")):
        link.putheader(name, value)
    link.endheaders()
    chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
    try:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(4 * SYNC_BODY_BYTES_MAX // MIB):
                link.send(chunk)
    finally:
        link.close()
    assert served.client().get("node").status_code == 200


def _dumped(value: Any) -> bytes:
    """JSON, also with numbers that are too large for most."""
    import json

    return json.dumps(value).encode()
