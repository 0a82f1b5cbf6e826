"""Each endpoint with Door's name, method and body, over real HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.sync.served import ALICE, BOB, MARK, NOTE, TODO, Serve, Served, serve, served

__all__ = ["serve", "served"]  # fixtures


def told(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def row(key: int, changed: int, what: str = "sweep", **more: Any) -> dict[str, Any]:
    return {"id": key, "what": what, "is_done": False, "weight": 1.5, "changed": changed, **more}


def add(served: Served, key: int, changed: int, what: str = "sweep") -> None:
    served.run(f"INSERT INTO todo VALUES ({key}, '{what}', false, 1.5, {changed})")


def test_node_says_who_is_there_and_reserves_numbers_for_keys(served: Served) -> None:
    alice, bob = (told(served.client(node).get("node")) for node in (ALICE, BOB))
    assert alice["nodeId"] == served.store.node_id
    assert alice["tables"]["42"] == {"table": "todo", "batch": 100}
    assert "application/json" in alice["formats"]
    numbers = [alice["keyNode"], bob["keyNode"], served.store.key_node]
    assert len(set(numbers)) == 3
    assert all(0 < number < 1 << 20 for number in numbers[:2])
    assert told(served.client(ALICE).get("node"))["keyNode"] == alice["keyNode"]


def test_pending_tells_tables_and_which_never_had_a_row(served: Served) -> None:
    client = served.client()
    assert told(client.get("pending")) == {"tables": [], "empty": [TODO, MARK, NOTE], "deletions": []}
    add(served, 1, 1000)
    assert told(client.get("pending")) == {"tables": [TODO], "empty": [MARK, NOTE], "deletions": []}


def test_a_round_by_hand(served: Served) -> None:
    add(served, 123, 1000)
    client = served.client()
    told(client.get("pending"))
    tracker = {"primaryKey": 123, "versionId": 1000, "changedBy": served.store.node_id}
    for name in ("pendingtrackers", "findPendingReplicationTrackers"):
        assert told(client.get(name, params={"tableId": TODO})) == [tracker]
    assert told(client.post("checkForEntitiesAlreadyReceived?tableId=42", json=[tracker])) == [tracker]
    for name in ("pendingReplication", "findPendingReplication"):
        (found,) = told(client.get(name, params={"tableId": TODO}))
        assert found == {
            **row(123, 1000),
            "trkrEntityPrimaryKey": 123,
            "trkrDestinationNode": ALICE,
            "trkrVersionId": 1000,
            "trkrProcessed": False,
            "doorTime": 1000,
            "doorNode": served.store.node_id,
            "doorDeleted": False,
        }
    assert client.put("markReplicateTrackersAsProcessed?tableId=42", json=[tracker]).status_code == 204
    assert told(client.get("pending"))["tables"] == []
    assert told(client.get("pendingReplication?tableId=42")) == []


def test_a_client_of_the_seed_knows_only_keys_and_versions(served: Served) -> None:
    client = served.client()
    mine = {**row(1, 5000), "trkrEntityPrimaryKey": 1, "trkrDestinationNode": 99, "trkrVersionId": 0}
    assert told(client.put("receive?tableId=42", json=[{**mine, "trkrProcessed": False}]))["refused"] == []
    add(served, 2, 6000)
    told(client.get("pending"))
    trackers = [
        {"primaryKey": t["primaryKey"], "versionId": t["versionId"]}
        for t in told(client.get("pendingtrackers?tableId=42"))
    ]
    assert trackers == [{"primaryKey": 2, "versionId": 6000}]
    both = [{"primaryKey": 1, "versionId": 5000}, {"primaryKey": 2, "versionId": 5999}]
    assert told(client.post("checkForEntitiesAlreadyReceived?tableId=42", json=both)) == both[:1]
    older = [{"primaryKey": 2, "versionId": 5999}]
    assert client.put("markReplicateTrackersAsProcessed?tableId=42", json=older).status_code == 204
    assert told(client.get("pending"))["tables"] == [TODO]
    assert client.put("markReplicateTrackersAsProcessed?tableId=42", json=trackers).status_code == 204
    assert told(client.get("pending"))["tables"] == []


def test_received_rows_go_on_to_others_and_not_back(served: Served) -> None:
    alice, bob = served.client(ALICE), served.client(BOB)
    assert told(alice.put("receive?tableId=42", json=[row(1, 5000)])) == {"refused": [], "older": []}
    assert told(alice.get("pending"))["tables"] == []
    assert told(bob.get("pending"))["tables"] == [TODO]
    (found,) = told(bob.get("pendingReplication?tableId=42"))
    assert (found["what"], found["doorNode"]) == ("sweep", ALICE)


def test_receive_tells_what_is_older_and_what_is_refused(served: Served) -> None:
    client = served.client()
    add(served, 1, 9000, "newer")
    receipt = told(client.put("receive?tableId=42", json=[row(1, 5000), row(2, 1 << 60)]))
    assert receipt["older"] == [{"primaryKey": 1, "versionId": 5000, "changedBy": ALICE}]
    (lost,) = receipt["refused"]
    assert lost["primaryKey"] == 2
    assert "ahead of this node's clock" in lost["reason"]


def test_a_deletion_travels(served: Served) -> None:
    alice, bob = served.client(ALICE), served.client(BOB)
    told(alice.put("receive?tableId=42", json=[row(1, 5000)]))
    told(bob.get("pending"))
    (found,) = told(bob.get("pendingReplication?tableId=42"))
    gone = {"id": 1, "doorTime": 6000, "doorNode": BOB, "doorDeleted": True}
    assert told(bob.put("receive?tableId=42", json=[gone])) == {"refused": [], "older": []}
    assert served.ask("SELECT count(*) FROM todo") == [(0,)]
    told(alice.get("pending"))
    (found,) = told(alice.get("pendingReplication?tableId=42"))
    assert (found["id"], found["doorDeleted"], found["what"], found["doorNode"]) == (1, True, None, BOB)


def test_rows_with_different_columns_change_only_those(served: Served) -> None:
    client = served.client()
    told(client.put("receive?tableId=42", json=[row(1, 1000), row(2, 1000), row(3, 1000)]))
    mixed = [
        {"id": 1, "what": "mop", "changed": 2000},
        {"id": 2, "changed": 2000, "is_done": True},
        {"id": 3, "doorDeleted": True, "doorTime": 2000, "doorNode": ALICE},
    ]
    assert told(client.put("receive?tableId=42", json=mixed)) == {"refused": [], "older": []}
    found = served.ask("SELECT id, what, is_done FROM todo ORDER BY id")
    assert [(key, what, bool(done)) for key, what, done in found] == [(1, "mop", False), (2, "sweep", True)]


def test_keys_of_several_columns(served: Served) -> None:
    client, bob = served.client(), served.client(BOB)
    mine = [{"person": f"p{n}", "place": n, "why": "y", "changed": 1000 + n} for n in range(5)]
    assert told(client.put("receive?tableId=43", json=mine)) == {"refused": [], "older": []}
    told(bob.get("pending"))
    first = told(bob.get("pendingtrackers?tableId=43&limit=2"))
    assert [each["primaryKey"] for each in first] == [["p0", 0], ["p1", 1]]
    rest = told(bob.get("pendingReplication", params={"tableId": MARK, "after": '["p1", 1]'}))
    assert [each["trkrEntityPrimaryKey1"] for each in rest] == ["p2", "p3", "p4"]
    assert bob.get("pendingtrackers", params={"tableId": MARK, "after": '"p1"'}).status_code == 400


def test_versions_that_are_hashes(served: Served) -> None:
    alice, bob = served.client(ALICE), served.client(BOB)
    mine = [{"id": 1, "body": "b", "etag": "abc", "doorTime": 1000, "doorNode": ALICE}]
    assert told(alice.put("receive?tableId=44", json=mine)) == {"refused": [], "older": []}
    told(bob.get("pending"))
    (tracker,) = told(bob.get("pendingtrackers?tableId=44"))
    assert (tracker["primaryKey"], tracker["versionId"]) == (1, "abc")
    assert bob.put("markReplicateTrackersAsProcessed?tableId=44", json=[tracker]).status_code == 204
    gone = [{"id": 1, "doorTime": 2000, "doorNode": ALICE, "doorDeleted": True}]
    assert told(alice.put("receive?tableId=44", json=gone)) == {"refused": [], "older": []}
    told(bob.get("pending"))
    (found,) = told(bob.get("pendingReplication?tableId=44"))
    assert found["doorDeleted"]
    ack = [{"primaryKey": 1, "versionId": found["trkrVersionId"]}]
    assert bob.put("markReplicateTrackersAsProcessed?tableId=44", json=ack).status_code == 204
    assert told(bob.get("pending"))["tables"] == []


def test_pages_follow_each_other(served: Served) -> None:
    client, bob = served.client(), served.client(BOB)
    told(client.put("receive?tableId=42", json=[row(key, 1000 + key) for key in range(25)]))
    told(bob.get("pending"))
    seen: list[int] = []
    while page := told(
        bob.get("pendingReplication", params={"tableId": 42, "limit": 10, **({"after": str(seen[-1])} if seen else {})})
    ):
        seen += [each["id"] for each in page]
    assert seen == list(range(25))


def test_a_refusal_of_the_other_side_is_kept(served: Served) -> None:
    add(served, 1, 1000)
    client = served.client()
    told(client.get("pending"))
    (tracker,) = told(client.get("pendingtrackers?tableId=42"))
    ack = [{**tracker, "refused": "not allowed here"}]
    assert client.put("markReplicateTrackersAsProcessed?tableId=42", json=ack).status_code == 204
    (kept,) = served.store.quarantined()
    assert (kept.why, kept.reason, kept.node) == ("rejected", "not allowed here", ALICE)
    assert told(client.get("pending"))["tables"] == []


def test_numbers_of_64_bits_are_text_for_who_wants_it(served: Served) -> None:
    big = (1 << 62) + 1
    script = served.client(ALICE, **{"door-longs": "string"})
    mine = {"id": str(big), "what": "7", "is_done": True, "weight": 0.5, "changed": "1000", "doorTime": "1000"}
    assert told(script.put("receive?tableId=42", json=[{**mine, "doorNode": str(ALICE)}])) == {
        "refused": [],
        "older": [],
    }
    assert served.ask("SELECT id, what, changed FROM todo") == [(big, "7", 1000)]
    other = served.client(BOB, **{"door-longs": "string"})
    told(other.get("pending"))
    (tracker,) = told(other.get("pendingtrackers?tableId=42"))
    assert tracker == {"primaryKey": str(big), "versionId": "1000", "changedBy": str(ALICE)}
    (found,) = told(other.get("pendingReplication?tableId=42"))
    assert [found[name] for name in ("id", "trkrEntityPrimaryKey", "changed", "doorTime", "doorNode", "what")] == [
        *(str(big), str(big), "1000", "1000", str(ALICE), "7")
    ]
    assert told(other.get("pendingtrackers", params={"tableId": 42, "after": f'"{big}"'})) == []
    assert told(other.post("checkForEntitiesAlreadyReceived?tableId=42", json=[tracker])) == [tracker]
    assert other.put("markReplicateTrackersAsProcessed?tableId=42", json=[tracker]).status_code == 204
    assert told(other.get("pending"))["tables"] == []
    assert told(other.get("node"))["nodeId"] == str(served.store.node_id)


def test_names_of_columns_may_differ_in_their_letters(served: Served) -> None:
    mine = {"ID": 1, "What": "sweep", "CHANGED": 1000, "DoorTime": 1000, "doornode": BOB}
    assert told(served.client().put("receive?tableId=42", json=[mine])) == {"refused": [], "older": []}
    assert served.ask("SELECT id, what, changed FROM todo") == [(1, "sweep", 1000)]


@pytest.mark.parametrize("place", ["/healthz", "/openapi.json"])
def test_what_everybody_may_know(served: Served, place: str) -> None:
    answer = httpx.get(served.server.url + place)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert "door-node" not in answer.headers


def test_pages_of_named_origins_may_call(serve: Serve) -> None:
    served = serve(origins=("https://todo.example",))
    asked = {
        "Origin": "https://todo.example",
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "door-node,door-longs,content-type",
    }
    answer = served.client(None).options("receive?tableId=42", headers=asked)
    assert answer.headers["access-control-allow-origin"] == "https://todo.example"
    assert (
        "access-control-allow-origin"
        not in served.client().get("node", headers={"Origin": "https://evil.example"}).headers
    )


def test_nobody_else_may(served: Served) -> None:
    answer = served.client().get("node", headers={"Origin": "https://todo.example"})
    assert "access-control-allow-origin" not in answer.headers
