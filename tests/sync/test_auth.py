"""Who may call, and as whom."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.errors import TailraceError
from tailrace.sync.auth import KEPT_S, Accept, Caller, Gate, hashed, matches, read_caller
from tailrace.sync.database import open_database
from tailrace.sync.nodes import CALLS_US, WE_CALL
from tailrace.sync.store import SyncStore
from tests.sync.served import ALICE, BOB, ENTITIES, SECRETS, TABLES, TODO, Serve, Served, serve, served

__all__ = ["serve", "served"]  # fixtures

STRANGER = 5
SECRET = "a-secret-of-a-stranger"
ENROL = "the-word-for-newcomers"
OPEN = {"/healthz", "/openapi.json"}


def test_a_hash_is_salted_and_tells_nothing() -> None:
    one, two = hashed(SECRET), hashed(SECRET)
    assert one != two
    assert SECRET not in one
    assert matches(one, SECRET)
    assert matches(two, SECRET)
    assert not matches(one, SECRET + "x")
    assert not matches(None, SECRET)
    assert not matches("", "")
    assert not matches("md5" + one[6:], SECRET)


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "/", "7", "7/", "/secretsecretsecret", "x/secretsecretsecret", "-7/secretsecretsecret"),
        *("0/secretsecretsecret", "007/secretsecretsecret", f"{1 << 63}/secretsecretsecret", "7/short"),
        *("7/secret secret secret", "7/" + "x" * 300, "9" * 5000 + "/secretsecretsecret", "\u0667/secretsecretsecret"),
    ],
)
def test_a_caller_says_number_and_secret(header: str | None) -> None:
    with pytest.raises(TailraceError) as caught:
        read_caller(header)
    assert caught.value.code == "sync.no_rights"
    assert "secretsecret" not in str(caught.value)


def test_a_secret_may_have_a_slash() -> None:
    assert read_caller("7/abc/def/ghi/jkl/mno") == Caller(7, "abc/def/ghi/jkl/mno")
    assert "abc" not in repr(read_caller("7/abc/def/ghi/jkl/mno"))


def test_every_route_refuses_who_is_not_let_in(served: Served) -> None:
    from starlette.routing import Route

    from tailrace.sync.server import app

    wrong = [
        ({}, 401),
        ({"door-node": f"{ALICE}/{SECRETS[ALICE][:-1]}x"}, 401),
        ({"door-node": f"{ALICE}/{SECRETS[BOB]}"}, 401),
        ({"door-node": f"{STRANGER}/{SECRETS[ALICE]}"}, 403),
        ({"door-node": str(ALICE)}, 401),
        ({"door-node": f"{served.store.node_id}/{served.store.secret}"}, 409),
        ({"Authorization": f"Bearer {SECRETS[ALICE]}"}, 401),
    ]
    routes = [route for route in app(served.store).routes if isinstance(route, Route)]
    seen = 0
    for route in routes:
        (method,) = route.methods or {""}
        for headers, status in wrong:
            if route.path in OPEN:
                continue
            url = f"{served.server.url}{route.path}?tableId={TODO}"
            answer = httpx.request(method, url, headers=headers, json=[] if method != "GET" else None)
            assert answer.status_code == status, (route.path, headers)
            told = answer.json()["error"]
            assert told["code"].startswith("sync.")
            assert not any(secret in answer.text for secret in SECRETS.values())
            seen += 1
    assert seen == len(wrong) * (len(routes) - len(OPEN))
    assert len(routes) == 12


def test_a_secret_in_the_address_lets_nobody_in_and_is_not_told(served: Served) -> None:
    url = f"{served.server.url}/replication/node"
    pair = f"{ALICE}/{SECRETS[ALICE]}"
    assert httpx.get(url, params={"door-node": pair}).status_code == 401
    answer = served.client().get("node", params={"door-node": pair})
    assert answer.status_code == 400
    assert SECRETS[ALICE] not in answer.text


def test_a_node_sees_and_acknowledges_only_its_own(served: Served) -> None:
    alice, bob = served.client(ALICE), served.client(BOB)
    served.run("INSERT INTO todo(id, what, changed) VALUES (1, 'sweep', 1000)")
    alice.get("pending")
    tracker = alice.get("pendingtrackers?tableId=42").json()
    for forged in ({"trkrDestinationNode": BOB}, {"nodeId": BOB}, {"fromNodeId": BOB}):
        ack = [{**tracker[0], **forged}]
        assert alice.put("markReplicateTrackersAsProcessed?tableId=42", json=ack).status_code == 204
    assert alice.get("pending").json()["tables"] == []
    assert bob.get("pending").json()["tables"] == [TODO]
    for name in ("nodeId", "node", "trkrDestinationNode", "fromNodeId"):
        assert alice.get("pendingtrackers", params={"tableId": TODO, name: str(BOB)}).status_code == 400
    assert bob.get("pendingtrackers?tableId=42").json() == tracker


def test_only_registered_nodes_are_let_in_unless_said(served: Served) -> None:
    stranger = served.client(STRANGER, SECRET)
    answer = stranger.get("node")
    assert answer.status_code == 403
    assert f"sync node add {STRANGER}" in answer.json()["error"]["hint"]
    assert stranger.get("node", headers={"door-enrol": ENROL}).status_code == 403
    assert served.store.node(STRANGER) is None


def test_anyone_who_comes_first_is_that_node(serve: Serve) -> None:
    served = serve(accept=Accept.ANYONE)
    served.run("INSERT INTO todo(id, what, changed) VALUES (1, 'sweep', 1000)")
    assert served.client(STRANGER, SECRET).get("pending").json()["tables"] == [TODO]
    assert served.client(STRANGER, SECRET + "x").get("pending").status_code == 401
    assert served.client(ALICE, SECRET).get("pending").status_code == 401
    known = served.store.node(STRANGER)
    assert known is not None
    assert known.auth is not None
    assert SECRET not in known.auth
    assert known.rel == CALLS_US


def test_of_many_who_come_first_at_once_one_is_the_node(serve: Serve) -> None:
    served = serve(accept=Accept.ANYONE)
    clients = [served.client(STRANGER, f"{SECRET}-{number}") for number in range(8)]
    together = threading.Barrier(len(clients))

    def call(client: httpx.Client) -> int:
        together.wait()
        return client.get("node").status_code

    with ThreadPoolExecutor(len(clients)) as pool:
        found = sorted(pool.map(call, clients))
    assert found == [200] + [401] * 7


def test_a_newcomer_with_the_word_is_let_in(serve: Serve) -> None:
    served = serve(enrol=ENROL)
    assert served.client(STRANGER, SECRET).get("node").status_code == 403
    assert served.client(STRANGER, SECRET, **{"door-enrol": ENROL + "x"}).get("node").status_code == 403
    assert served.client(STRANGER, SECRET, **{"door-enrol": ENROL}).get("node").status_code == 200
    assert served.client(STRANGER, SECRET).get("node").status_code == 200
    assert served.client(STRANGER, SECRET + "x", **{"door-enrol": ENROL}).get("node").status_code == 401


def test_a_node_that_we_call_must_be_let_in_to_call_us(served: Served) -> None:
    served.store.meet(STRANGER, WE_CALL)
    assert served.client(STRANGER, SECRET).get("node").status_code == 403
    served.store.register(STRANGER, hashed(SECRET))
    assert served.client(STRANGER, SECRET).get("node").status_code == 200
    known = served.store.node(STRANGER)
    assert known is not None
    assert known.rel == WE_CALL | CALLS_US


@pytest.mark.parametrize("options", [{"enrol": ENROL}, {"accept": Accept.ANYONE}])
def test_a_newcomer_cannot_be_a_node_that_is_called(serve: Serve, options: dict[str, Any]) -> None:
    """It would get what is meant for that one."""
    served = serve(**options)
    served.store.call(STRANGER, "central")
    served.run("INSERT INTO todo(id, what, changed) VALUES (1, 'for central', 1000)")
    answer = served.client(STRANGER, SECRET, **{"door-enrol": ENROL}).get("pending")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "sync.not_admitted")
    known = served.store.node(STRANGER)
    assert known is not None and known.auth is None


def test_a_node_that_is_removed_is_let_in_for_some_seconds_only(address: str) -> None:
    place = open_database(address)
    place.write(lambda link: [link.run(table) for table in TABLES])
    store = SyncStore.install(place, ENTITIES)
    store.register(ALICE, hashed(SECRETS[ALICE]))
    moment = 0.0
    gate = Gate(store, now=lambda: moment)
    caller = Caller(ALICE, SECRETS[ALICE])
    gate.check(caller)
    assert store.forget(ALICE)
    assert gate.remembers(caller)
    assert not gate.remembers(Caller(ALICE, SECRETS[BOB]))
    moment = KEPT_S + 1
    assert not gate.remembers(caller)
    with pytest.raises(TailraceError) as caught:
        gate.check(caller)
    assert caught.value.code == "sync.not_admitted"
    place.close()


def test_a_new_secret_counts_at_once(served: Served) -> None:
    client = served.client(ALICE)
    assert client.get("node").status_code == 200
    served.store.register(ALICE, hashed(SECRET))
    assert served.client(ALICE, SECRET).get("node").status_code == 200
    assert client.get("node").status_code == 401


def test_numbers_for_keys_are_each_given_once(address: str) -> None:
    place = open_database(address)
    place.write(lambda link: [link.run(table) for table in TABLES])
    store = SyncStore.install(place, ENTITIES)
    nodes = list(range(1, 33))
    for node in nodes:
        store.meet(node, CALLS_US)
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(store.key_node_of, nodes * 2))
    assert numbers[:32] == numbers[32:]
    assert len({*numbers, store.key_node}) == 33
    place.close()


def test_secrets_are_in_no_log(
    serve: Serve, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    served = serve(enrol=ENROL)
    for client in (
        served.client(),
        served.client(STRANGER, SECRET, **{"door-enrol": ENROL}),
        served.client(ALICE, SECRET),
    ):
        client.get("node")
        client.put("receive?tableId=42", content=b"{")
        client.get("nothing")
    shown = "".join([caplog.text, *capfd.readouterr()])
    for secret in (*SECRETS.values(), SECRET, ENROL, served.store.secret):
        assert secret not in shown
    assert SECRETS[ALICE] not in repr(served.store.node(ALICE))
