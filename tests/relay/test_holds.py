"""Holds: the log is kept for readers beside the cluster's nodes, for a while."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.consumers import PREFIX, Consumers, State
from tailrace.log.segment import segment_name
from tailrace.log.session import ConsumerSession
from tailrace.message import Offset
from tailrace.relay.holds import Holds, anonymous_name
from tests.relay.nodes import TestNode

NAME = anonymous_name(5)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TestNode]:
    with TestNode(tmp_path / "a", str(uuid.UUID(int=7))) as found:
        found.write(1, 2, 3)
        yield found


def make_older(node: TestNode, seconds: float) -> None:
    """As if a reader had been silent for so long."""
    for name in (segment_name(Offset(0)), "consumer.json"):
        path = os.path.join(node.log.directory, PREFIX + NAME, name)
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def consumers(node: TestNode) -> Consumers:
    return Consumers(node.log.directory)


def test_what_was_not_heard_of_is_let_go(node: TestNode) -> None:
    """By whichever process looks: the time is on disk."""
    Holds(consumers(node), 100).keep(NAME, Offset(1))
    assert Holds(consumers(node), 100).sweep() == []
    make_older(node, 101)
    (held,) = Holds(consumers(node), 100).all()
    assert held.age_s > 100
    assert consumers(node).get(NAME).state is State.EXPIRED
    assert Holds(consumers(node), 100).sweep() == [NAME]
    assert NAME not in consumers(node).names()


def test_a_sign_of_life(node: TestNode) -> None:
    holds = Holds(consumers(node), 100)
    holds.keep(NAME, Offset(1))
    make_older(node, 101)
    Holds(consumers(node), 100).show_life(NAME)
    assert holds.sweep() == []


def test_one_that_is_connected_stays(node: TestNode) -> None:
    holds = Holds(consumers(node), 100)
    holds.keep(NAME, Offset(1))
    with ConsumerSession(consumers(node), NAME):
        make_older(node, 101)
        assert holds.sweep() == []


def test_others_are_left_alone(node: TestNode) -> None:
    """Those of registered nodes never expire."""
    node.service.keep_for(9)
    assert Holds(consumers(node), 1e-9).all() == []
    assert Holds(consumers(node), 1e-9).sweep() == []


def test_another_time_to_live(node: TestNode) -> None:
    Holds(consumers(node), 100).keep(NAME, Offset(1))
    Holds(consumers(node), 500).keep(NAME, Offset(2))
    found = consumers(node).get(NAME)
    assert found.agreement.ttl_s == 500
    assert consumers(node).position(found) == 0, "it held the log from an earlier offset on"
