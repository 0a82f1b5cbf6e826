"""One peer does not shut out the others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tailrace.errors import TailraceError
from tailrace.limits import JOINS_PER_TOKEN_MAX, NODES_PER_TOKEN_MAX
from tailrace.relay import flight
from tailrace.relay.flight import Call, RelayServer, ask
from tailrace.relay.inquiry import Forget, Hold, Inquiry, Reading, Spot
from tailrace.relay.paper import Paper
from tailrace.relay.request import Join, Register, Subscribe
from tailrace.relay.room import Room
from tailrace.relay.vclock import Vclock
from tests.node.shops import Shop

CLUSTER = str(uuid.UUID(int=9))
TOKENS = {"paris": "canary-paris", "berlin": "canary-berlin"}


class Asked:
    """A node with a store, as two peers see it."""

    def __init__(self, shop: Shop, stack: ExitStack) -> None:
        self._server = RelayServer(shop.service, location="grpc://127.0.0.1:0", tokens=TOKENS)
        stack.callback(self._server.stop)
        self.client = stack.enter_context(fl.connect(f"grpc://127.0.0.1:{self._server.port}"))

    def code(self, peer: str, call: Call | Inquiry, paper: Paper) -> str:
        try:
            ask(self.client, call, paper, TOKENS[peer])
        except TailraceError as error:
            return error.code
        return ""

    def followed(self, peer: str, node: int) -> tuple[str, fl.FlightStreamReader | None]:
        ticket = Subscribe(node=node, cluster=CLUSTER, vclock=Vclock(), is_anonymous=True).packed()
        try:
            reader = self.client.do_get(fl.Ticket(ticket), flight.options(TOKENS[peer]))
            reader.read_chunk()
        except (fl.FlightError, pa.ArrowException) as error:
            return flight.ours(error).code, None
        return "", reader


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def shop(stack: ExitStack, tmp_path: Path) -> Shop:
    return stack.enter_context(Shop(tmp_path / "a", CLUSTER))


@pytest.fixture
def asked(shop: Shop, stack: ExitStack) -> Asked:
    return Asked(shop, stack)


def test_places() -> None:
    room = Room("things", each_max=2, all_max=3)
    room.take("a")
    with room.taken("a"), pytest.raises(TailraceError) as caught:
        room.take("a")
    assert caught.value.code == "relay.busy"
    room.take("a")
    room.take("b")
    with pytest.raises(TailraceError):
        room.take("c")
    room.leave("a")
    room.take("c")


def test_what_a_pipeline_holds_is_its_own(shop: Shop, asked: Asked, stack: ExitStack) -> None:
    """Also after a restart; and until it is given back."""
    assert asked.code("paris", Inquiry.HOLD, Hold(consumer="reports")) == ""
    spot = shop.service.readings().where("reports")
    foreign: list[tuple[Inquiry, Paper]] = [
        (Inquiry.HOLD, Hold(consumer="reports")),
        (Inquiry.RELEASE, Reading(consumer="reports")),
        (Inquiry.WHERE, Reading(consumer="reports")),
        (Inquiry.COPY, Reading(consumer="reports")),
        (Inquiry.COPIED, Reading(consumer="reports")),
        (Inquiry.FORGET, Forget(consumer="reports", upto=Spot(log=spot.log, offset=1, vclock=Vclock()))),
    ]
    for _ in range(2):
        node = Asked(shop, stack)
        assert {node.code("berlin", inquiry, paper) for inquiry, paper in foreign} == {"relay.no_rights"}
        assert [held.name for held in shop.service.holds.all()] == ["pipeline-reports"]
        shop.serve_pipelines()
    assert asked.code("paris", Inquiry.RELEASE, Reading(consumer="reports")) == ""
    assert asked.code("berlin", Inquiry.HOLD, Hold(consumer="reports")) == ""


def test_nodes_of_one_token(asked: Asked) -> None:
    def register(peer: str, node: int) -> str:
        paper = Register(node=node, cluster=CLUSTER, vclock=Vclock(), is_newcomer=True)
        return asked.code(peer, Call.REGISTER, paper)

    found = [register("paris", 1000 + number) for number in range(NODES_PER_TOKEN_MAX + 2)]
    assert found == [""] * NODES_PER_TOKEN_MAX + ["relay.busy"] * 2
    assert register("berlin", 2000) == ""


def test_joins_of_one_token(asked: Asked) -> None:
    found = [asked.code("paris", Call.JOIN, Join(node=1000 + number)) for number in range(JOINS_PER_TOKEN_MAX + 1)]
    assert found == [""] * JOINS_PER_TOKEN_MAX + ["relay.busy"]
    assert asked.code("berlin", Call.JOIN, Join(node=2000)) == ""
    assert asked.code("paris", Call.JOIN, Join(node=1000)) == "", "one that begins again has its place"


def test_subscriptions_of_one_token(shop: Shop, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop.service, "_room", Room("subscriptions", each_max=2, all_max=9))
    found = [asked.followed("paris", 1000 + number) for number in range(3)]
    other = asked.followed("berlin", 2000)
    assert [code for code, _ in found] == ["", "", "relay.busy"]
    assert other[0] == ""
    for _, reader in (*found, other):
        if reader is not None:
            reader.cancel()
