"""Faults of a node: callers hear that there is one, and only its own log and status what it is."""

from __future__ import annotations

import logging

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.faults import KEPT_S, Faults
from tests.sync.served import MARK, TODO, Served, serve, served

__all__ = ["serve", "served"]  # fixtures


def test_a_caller_hears_nothing_of_the_database(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.run("ALTER TABLE todoReplicate RENAME TO away")
    client, place = served.client(), served.store.database.place
    with caplog.at_level(logging.WARNING, "tailrace.sync.faults"):
        answers = [client.get("pendingReplication", params={"tableId": TODO}) for _ in range(2)]
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "sync.unreachable")
        assert place not in answer.text and "eplicate" not in answer.text
    assert [place in record.getMessage() for record in caplog.records] == [True], "it is said once"
    fault = served.server.fault
    assert fault is not None and place in fault.what
    assert client.get("pendingReplication", params={"tableId": MARK}).status_code == 200


def test_other_errors_of_this_side_are_no_more_talkative() -> None:
    told = Faults().told(TailraceError("config.invalid", "table secret has no key", hint="look into /srv/secret.yml"))
    assert told.code == "sync.failed" and "secret" not in str(told)
    assert Faults().told(TailraceError("sync.hook_failed", "SELECT secret", hint="")).code == "sync.hook_failed"


def test_a_fault_is_forgotten_after_a_while() -> None:
    moment = 0.0
    faults = Faults(lambda: moment)
    faults.told(TailraceError("sync.unreachable", "the disk is full", hint=""))
    assert faults.latest is not None
    moment = KEPT_S + 1
    assert faults.latest is None
