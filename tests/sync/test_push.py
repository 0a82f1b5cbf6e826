"""Changes are told at once to nodes that are connected."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tailrace.limits import SYNC_CHANNELS_PER_NODE_MAX
from tailrace.sync.auth import KEPT_S
from tailrace.sync.push import Processing
from tests.sync.served import ALICE, BOB, MARK, TODO, Served, serve, served

__all__ = ["serve", "served"]  # fixtures


class Listener:
    """What a connected node hears."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        self._lines = answer.iter_lines()

    def next(self) -> tuple[str, str]:
        """The next event; waits for it."""
        kind = ""
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                return kind, value
        return "end", ""


@contextmanager
def listening(served: Served, node: int = ALICE) -> Iterator[Listener]:
    with served.client(node).stream("GET", "subscribe") as answer:
        yield Listener(answer)


def test_a_change_of_another_connection_is_told(served: Served) -> None:
    with listening(served) as alice, listening(served, BOB) as bob:
        for each in (alice, bob):
            assert each.next() == ("INIT", str(served.store.node_id))
        served.run("INSERT INTO todo(id, what, changed) VALUES (1, 'sweep', 1000)")
        assert alice.next() == bob.next() == ("INVALIDATE", str(TODO))
        served.run("INSERT INTO mark(person, place, changed) VALUES ('p', 1, 1000)")
        assert alice.next() == bob.next() == ("INVALIDATE", str(MARK))


def test_who_connects_hears_all_that_is_pending(served: Served) -> None:
    served.run("INSERT INTO todo(id, what, changed) VALUES (1, 'sweep', 1000)")
    served.run("INSERT INTO mark(person, place, changed) VALUES ('p', 1, 1000)")
    with listening(served) as alice:
        assert alice.next()[0] == "INIT"
        assert alice.next() == ("INVALIDATE", f"{TODO},{MARK}")


def test_who_has_asked_is_told_again(served: Served) -> None:
    client = served.client()
    with listening(served) as alice:
        assert alice.next()[0] == "INIT"
        for key in (1, 2, 3):
            served.run(f"INSERT INTO todo(id, what, changed) VALUES ({key}, 'sweep', {key})")
            assert alice.next() == ("INVALIDATE", str(TODO))
            rows = client.get("pendingReplication?tableId=42").json()
            assert [row["id"] for row in rows] == [key]
            acks = [{"primaryKey": row["id"], "versionId": row["trkrVersionId"]} for row in rows]
            assert client.put("markReplicateTrackersAsProcessed?tableId=42", json=acks).status_code == 204


def test_who_was_told_of_something_that_is_done_by_now_is_told_of_the_next(served: Served) -> None:
    """A node may hear of a row that it is about to confirm. It asks, finds nothing, and waits for the next one."""
    client = served.client()
    with listening(served) as alice:
        assert alice.next()[0] == "INIT"
        for key in (1, 2):
            served.run(f"INSERT INTO todo(id, what, changed) VALUES ({key}, 'sweep', {key})")
            assert alice.next() == ("INVALIDATE", str(TODO))
            ack = [{"primaryKey": key, "versionId": key}]
            assert client.put("markReplicateTrackersAsProcessed?tableId=42", json=ack).status_code == 204
            assert client.get("pending").json()["tables"] == []


def test_who_asks_what_there_is_before_it_confirms_is_told_of_the_next(served: Served) -> None:
    """A round does so with rows of a higher batch: what they refer to may have come meanwhile."""
    client = served.client()
    with listening(served) as alice:
        assert alice.next()[0] == "INIT"
        for key in (1, 2, 3):
            served.run(f"INSERT INTO mark(person, place, changed) VALUES ('p', {key}, {key})")
            assert alice.next() == ("INVALIDATE", str(MARK))
            assert len(client.get(f"pendingReplication?tableId={MARK}").json()) == 1
            assert client.get("pending").json()["tables"] == [MARK]
            ack = [{"primaryKey": ["p", key], "versionId": key}]
            assert client.put(f"markReplicateTrackersAsProcessed?tableId={MARK}", json=ack).status_code == 204


def test_what_is_found_when_a_node_asks_is_told_too(served: Served) -> None:
    """It may ask for the sake of another table."""
    client = served.client()
    with listening(served) as alice:
        assert alice.next()[0] == "INIT"
        served.run("INSERT INTO todo(id, what, changed) VALUES (1, 'sweep', 1000)")
        assert client.get("pending").json()["tables"] == [TODO]
        assert alice.next() == ("INVALIDATE", str(TODO))


def test_who_does_not_want_a_table_does_not_hear_of_it_again_and_again(served: Served) -> None:
    client = served.client()
    with listening(served) as alice:
        assert alice.next()[0] == "INIT"
        served.run("INSERT INTO todo(id, what, changed) VALUES (1, 'sweep', 1000)")
        assert alice.next() == ("INVALIDATE", str(TODO))
        assert client.get("pending").json()["tables"] == [TODO]
        served.run("INSERT INTO mark(person, place, changed) VALUES ('p', 1, 1000)")
        assert alice.next() == ("INVALIDATE", str(MARK))


def test_a_row_of_one_node_is_told_to_the_others_only(served: Served) -> None:
    with listening(served) as alice, listening(served, BOB) as bob:
        assert alice.next()[0] == bob.next()[0] == "INIT"
        row = {"id": 1, "what": "sweep", "changed": 1000}
        assert served.client(ALICE).put("receive?tableId=42", json=[row]).status_code == 200
        assert bob.next() == ("INVALIDATE", str(TODO))
        served.run("INSERT INTO mark(person, place, changed) VALUES ('p', 1, 1000)")
        assert alice.next() == ("INVALIDATE", str(MARK))


def test_what_somebody_else_has_worked_off_is_told_too(served: Served) -> None:
    """Another process that serves the same database, say."""
    with listening(served) as alice:
        assert alice.next()[0] == "INIT"
        store = served.store
        store.database.write(
            lambda link: [
                link.run("INSERT INTO todo(id, what, changed) VALUES (1, 'sweep', 1000)"),
                link.run("DELETE FROM ChangeLog"),
                link.run(f"INSERT INTO todoReplicate(trkrEntityPrimaryKey, trkrDestinationNode) VALUES (1, {ALICE})"),
            ]
        )
        assert alice.next() == ("INVALIDATE", str(TODO))


def test_one_node_has_so_many_connections_and_no_more(served: Served) -> None:
    client = served.client()
    for _ in range(3):  # those that end make room
        asked = [client.build_request("GET", "subscribe") for _ in range(SYNC_CHANNELS_PER_NODE_MAX)]
        answers = [client.send(each, stream=True) for each in asked]
        assert {answer.status_code for answer in answers} == {200}
        refused = client.get("subscribe")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "sync.busy")
        assert "retry-after" in refused.headers
        with listening(served, BOB) as bob:
            assert bob.next()[0] == "INIT"
        for answer in answers:
            answer.close()
        _wait_until_free(client)


def _wait_until_free(client: httpx.Client) -> None:
    """A server notices in its own time that connections are closed."""
    while True:
        with client.stream("GET", "subscribe") as answer:
            if answer.status_code == 200:
                return


def test_who_was_there_is_written_down_before_the_server_ends(served: Served) -> None:
    for node in (ALICE, BOB):
        assert served.client(node).get("pending").status_code == 200
    served.server.stop()
    assert set(served.store.status().nodes) == {ALICE, BOB}
    assert all(seen_ms > 1_600_000_000_000 for seen_ms in served.store.status().nodes.values())


def test_a_server_that_ends_lets_go(served: Served) -> None:
    with listening(served) as alice:
        assert alice.next()[0] == "INIT"
        ended = threading.Thread(target=served.server.stop)
        ended.start()
        assert alice.next()[0] == "end"
        ended.join()
    with pytest.raises(httpx.ConnectError):
        served.client().get("node")


def test_a_node_that_is_removed_hears_no_more(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.sync.push.HEARTBEAT_S", KEPT_S / 2)
    with listening(served) as alice:
        assert alice.next()[0] == "INIT"
        served.store.forget(ALICE)
        assert alice.next()[0] == "end"


def test_those_who_ask_at_once_are_served_by_one_look(served: Served) -> None:
    """All that was committed before somebody asks is seen, however many ask."""
    processing = Processing(served.store)
    seen: list[bool] = []

    def ask(key: int) -> None:
        served.run(f"INSERT INTO todo(id, what, changed) VALUES ({key}, 'sweep', {key})")
        processing.catch_up()
        found = served.store.pending_trackers(TODO, ALICE, None, 1000)
        seen.append(any(tracker.key == (key,) for tracker in found))

    threads = [threading.Thread(target=ask, args=(key,)) for key in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 12
