"""Parts of a node's log for pipelines: whole transactions that happened, each once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.log.batch import batches_of, decode_body
from tailrace.message import Lsn, Message, NodeId, Op, now
from tailrace.relay.inquiry import Plan, Range, Spot
from tailrace.relay.limbo import Control, Kind
from tailrace.relay.reading import Readings
from tailrace.relay.vclock import Vclock
from tests.node.shops import Shop
from tests.relay.test_journal import group

CLUSTER = str(uuid.UUID(int=9))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path / "a", CLUSTER) as made:
        yield made


@pytest.fixture
def readings(shop: Shop) -> Readings:
    return shop.service.readings()


def rows(*numbers: int, namespace: str = "main.n") -> list[Any]:
    return list(batches_of(Message(Op.INSERT, now(), namespace, {"n": n}, lsn=Lsn(n)) for n in numbers))


def say(shop: Shop, kind: Kind, *numbers: int, lsn: int = 0) -> int:
    """What a leader of term 1 says, and the rows that it is about."""
    control = Control(kind=kind, term=1, lsn=lsn)
    return shop.journal.append_local([*batches_of([control.message()]), *rows(*numbers)])[shop.id]


def read(readings: Readings, since: Spot, upto: Spot, namespaces: list[str] | None = None) -> list[int]:
    planned = readings.plan(Plan(since=since, upto=upto, namespaces=namespaces))
    found: list[int] = []
    for span in planned.spans:
        wish = Range(log=planned.log, start=span.start, end=span.end, namespaces=namespaces, vclock=span.vclock)
        for frames in readings.range(wish):
            for _, body in frames:
                data: Any = decode_body(body).column("data")
                found += data.field("n").to_pylist()
    return found


def test_what_is_wanted(shop: Shop, readings: Readings) -> None:
    start = readings.where("p")
    shop.journal.append_local([*rows(1, namespace="main.a"), *rows(2, namespace="main.b")])
    shop.journal.append_local(rows(3, namespace="main.b"))
    end = readings.where("p")
    assert read(readings, start, end) == [1, 2, 3]
    assert read(readings, start, end, ["main.b"]) == [2, 3]
    assert readings.plan(Plan(since=start, upto=end, namespaces=["main.c"])).spans == []


def test_what_is_known_does_not_come(shop: Shop, readings: Readings) -> None:
    """As when the place is one in another node's log."""
    start = readings.where("p")
    shop.journal.append_local(rows(1))
    known = shop.journal.vclock
    shop.journal.append_group(group(1, 2))
    shop.journal.append_local(rows(2))
    end = readings.where("p")
    elsewhere = Spot(log="0" * 16, offset=12345, vclock=known)
    assert len(read(readings, start, end, ["main.n"])) == 2
    assert read(readings, elsewhere, end, ["main.n"]) == [2]


def test_only_what_happened(shop: Shop, readings: Readings) -> None:
    """Transactions that were rolled back are in the log, too; while one waits nothing behind it is read."""
    start = readings.where("p")
    say(shop, Kind.PROMOTE)
    first = say(shop, Kind.BEGIN, 1)
    say(shop, Kind.CONFIRM, lsn=first)
    second = say(shop, Kind.BEGIN, 2)
    shop.journal.append_local(rows(3))
    waiting = readings.where("p")
    assert read(readings, start, waiting) == [1]
    rolled_back = say(shop, Kind.ROLLBACK, lsn=second)
    assert readings.where("p") == waiting  # a successor could still let it happen
    say(shop, Kind.CONFIRM, lsn=rolled_back)
    end = readings.where("p")
    assert end.vclock == shop.journal.vclock
    assert read(readings, waiting, end) == [3]
    assert read(readings, start, end) == [1, 3]


def test_the_clock_where_something_waits(shop: Shop, readings: Readings) -> None:
    say(shop, Kind.PROMOTE)
    shop.journal.append_local(rows(1))
    before = shop.journal.vclock
    say(shop, Kind.BEGIN, 2)
    shop.journal.append_group(group(1, 2))
    spot = readings.where("p")
    assert spot.vclock == before
    assert spot.offset == shop.journal.limbo.pending[0].offset


def test_a_clock_that_is_not_covered(shop: Shop, readings: Readings) -> None:
    shop.journal.begin_at(Vclock({NodeId(77): Lsn(10)}))
    with pytest.raises(TailraceError) as caught:
        readings.check(Spot(log="0" * 16, offset=0, vclock=Vclock({NodeId(77): Lsn(9)})))
    assert caught.value.code == "relay.gap"
    readings.check(Spot(log="0" * 16, offset=0, vclock=Vclock({NodeId(77): Lsn(10)})))


def test_a_place_behind_the_end(readings: Readings) -> None:
    spot = readings.where("p")
    with pytest.raises(TailraceError) as caught:
        readings.check(spot.model_copy(update={"offset": spot.offset + 1}))
    assert caught.value.code == "relay.gap"
