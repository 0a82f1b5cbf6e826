"""Sending inside the application's own transaction."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
import sqlalchemy

from tailrace.errors import TailraceError
from tailrace.log.group import OffsetRange
from tailrace.message import Offset
from tailrace.queues import RoutingQueue
from tailrace.queues.entries import PAYLOAD_BYTES_MAX, Outgoing
from tailrace.queues.fullness import Fullness, WhenFull
from tailrace.queues.sent import Sent
from tests.queues.outboxes import KINDS, PostgresPlace, SqlitePlace, TestPlace

ORDER = "INSERT INTO orders VALUES (1)"


def write(connection: Any) -> None:
    """Something of the application's own, in the same transaction."""
    run = connection.execute
    run(sqlalchemy.text(ORDER) if not isinstance(connection, sqlite3.Connection | psycopg.Connection) else ORDER)


def code_of(queue: RoutingQueue, connection: Any, payload: Any, sites: Any, **options: Any) -> str:
    with pytest.raises(TailraceError) as caught:
        queue.transmit(connection, payload, sites, **options)
    assert caught.value.hint
    return caught.value.code


@pytest.mark.parametrize("kind", KINDS)
class TestTransaction:
    """Acceptance test 15."""

    def test_that_commits_sends(self, place: TestPlace, kind: str) -> None:
        queue, connection = RoutingQueue("shop"), place.connect(kind)
        write(connection)
        queue.transmit(connection, b"one", ["plant"])
        assert place.payloads() == []
        connection.commit()
        assert place.payloads() == [b"one"]

    def test_in_which_nothing_else_is_written_sends_too(self, place: TestPlace, kind: str) -> None:
        queue, connection = RoutingQueue("shop"), place.connect(kind)
        queue.transmit(connection, b"one", ["plant", "store"])
        connection.commit()
        assert place.payloads() == [b"one"]

    @pytest.mark.parametrize("is_written_first", [True, False])
    def test_that_aborts_leaves_no_message(self, place: TestPlace, kind: str, is_written_first: bool) -> None:
        queue, connection = RoutingQueue("shop"), place.connect(kind)
        if is_written_first:
            write(connection)
        queue.transmit(connection, b"one", ["plant"])
        connection.rollback()
        connection.close()
        assert place.payloads() == []
        assert place.ask("SELECT * FROM orders") == []

    def test_that_is_never_ended_leaves_no_message(self, place: TestPlace, kind: str) -> None:
        connection = place.connect(kind)
        RoutingQueue("shop").transmit(connection, b"one", ["plant"])
        connection.close()
        assert place.payloads() == []

    def test_with_several_calls_is_one(self, place: TestPlace, kind: str) -> None:
        queue, connection = RoutingQueue("shop"), place.connect(kind)
        for first in (b"1", b"3"):
            write(connection)
            queue.transmit(connection, first, ["plant"])
            queue.transmit_all(connection, [(b"again", ["store"]), (b"end", ["plant", "store"])])
            connection.execute(sqlalchemy.text("DELETE FROM orders") if kind != "driver" else "DELETE FROM orders")
            connection.commit()
        (batch,) = place.read_all()
        told = [[entry.payload for entry in entries] for _, entries in batch.transactions]
        assert told == [[b"1", b"again", b"end"], [b"3", b"again", b"end"]]
        assert len({name for name, _ in batch.transactions}) == 2
        assert batch.transactions[0][1][2] == Outgoing("shop", b"end", ("plant", "store"))

    def test_goes_on_after_a_refusal(self, place: TestPlace, kind: str) -> None:
        queue, connection = RoutingQueue("shop"), place.connect(kind)
        write(connection)
        assert code_of(queue, connection, b"one", ["plant", "nowhere"]) == "queue.unknown_destination"
        connection.commit()
        assert place.payloads() == []
        assert place.ask("SELECT * FROM orders") == [(1,)]


class TestStatementsThatCommit:
    """A connection without transactions: each call is one."""

    def test_of_drivers(self, place: TestPlace) -> None:
        queue, connection = RoutingQueue("shop"), place.connect("driver")
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
        else:
            connection.autocommit = True
        queue.transmit_all(connection, [(b"1", ["plant"]), (b"2", ["plant"])])
        queue.transmit(connection, b"3", ["plant"])
        (batch,) = place.read_all()
        assert [len(entries) for _, entries in batch.transactions] == [2, 1]

    def test_of_sqlalchemy(self, place: TestPlace) -> None:
        with place.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            RoutingQueue("shop").transmit_all(connection, [(b"1", ["plant"]), (b"2", ["plant"])])
        assert place.payloads() == [b"1", b"2"]

    def test_may_begin_one_themselves(self, sqlite_place: SqlitePlace) -> None:
        queue, connection = RoutingQueue("shop"), sqlite_place.connect("driver")
        connection.isolation_level = None
        connection.execute("BEGIN")
        queue.transmit(connection, b"1", ["plant"])
        connection.execute("ROLLBACK")
        assert sqlite_place.payloads() == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("payload", "sites", "code"),
        [
            (b"", [], "queue.no_destination"),
            (b"", ["elsewhere"], "queue.unknown_destination"),
            (b"", ["plant", "elsewhere"], "queue.unknown_destination"),
            (b"", "plant", "input.invalid"),
            (b"", [1], "input.invalid"),
            (b"", ["plant'; DROP TABLE orders; --"], "name.invalid"),
            (b"", ["../plant"], "name.invalid"),
            (b"", ["plant\0"], "name.invalid"),
            (b"", ["plänt"], "name.invalid"),
            (b"", [f"site{n}" for n in range(10_001)], "queue.too_many"),
            ("text", ["plant"], "queue.payload"),
            (None, ["plant"], "queue.payload"),
            (bytes(PAYLOAD_BYTES_MAX + 1), ["plant"], "queue.payload"),
        ],
        ids=lambda value: repr(value)[:30],
    )
    def test_write_nothing(self, place: TestPlace, payload: Any, sites: Any, code: str) -> None:
        connection = place.connect()
        assert code_of(RoutingQueue("shop"), connection, payload, sites) == code
        connection.commit()
        assert place.payloads() == []

    def test_of_one_message_refuse_all(self, place: TestPlace) -> None:
        connection = place.connect()
        with pytest.raises(TailraceError):
            RoutingQueue("shop").transmit_all(connection, [(b"1", ["plant"]), (b"2", ["elsewhere"])])
        connection.commit()
        assert place.payloads() == []

    def test_of_clients(self, place: TestPlace) -> None:
        assert code_of(RoutingQueue("other"), place.connect(), b"", ["plant"]) == "queue.unknown_destination"
        for name in ("", "a/b", "x' OR '1'='1", "_shop", "a" * 61):
            with pytest.raises(TailraceError, match=r"name\.invalid"):
                RoutingQueue(name)

    def test_of_connections(self, place: TestPlace) -> None:
        queue = RoutingQueue("shop")
        assert code_of(queue, object(), b"", ["plant"]) == "input.invalid"
        assert code_of(queue, None, b"", ["plant"]) == "input.invalid"

    def test_of_databases_without_an_outbox(self, place: TestPlace) -> None:
        for table in ("LRQ_Destinations", "LRQ_Send_LogEntries"):
            place.change(f"DROP TABLE {table}")
        assert code_of(RoutingQueue("shop"), place.connect(), b"", ["plant"]) == "queue.no_outbox"

    def test_largest_payload_is_sent(self, place: TestPlace) -> None:
        connection = place.connect()
        largest = bytes(PAYLOAD_BYTES_MAX)
        RoutingQueue("shop").transmit(connection, largest, ["plant"])
        RoutingQueue("shop").transmit(connection, b"", ["plant"])
        connection.commit()
        assert place.payloads() == [largest, b""]

    def test_hostile_payloads_are_only_bytes(self, place: TestPlace) -> None:
        connection = place.connect()
        payloads = [b"\0", b"'; DROP TABLE orders; --", bytes(range(256)), b"%s ? :x {now}"]
        RoutingQueue("shop").transmit_all(connection, [(payload, ["plant"]) for payload in payloads])
        connection.commit()
        assert place.payloads() == payloads


class TestRows:
    """The application may want its rows in a form of its own."""

    def test_of_sqlite(self, sqlite_place: SqlitePlace) -> None:
        connection = sqlite_place.connect()
        connection.row_factory = lambda cursor, row: {"row": row}
        connection.text_factory = bytes
        connection.execute(ORDER)
        RoutingQueue("shop").transmit(connection, b"1", ["plant"])
        connection.commit()
        assert sqlite_place.payloads() == [b"1"]

    def test_of_psycopg(self, postgres_place: PostgresPlace) -> None:
        connection = postgres_place.connect()
        connection.row_factory = psycopg.rows.dict_row
        RoutingQueue("shop").transmit(connection, b"1", ["plant"])
        connection.commit()
        assert postgres_place.payloads() == [b"1"]


def fill(place: TestPlace, *full: str, policy: WhenFull) -> None:
    place.outbox.set_destinations("shop", {site: Fullness(site in full, policy) for site in ("plant", "store")})


class TestFull:
    def test_reject(self, place: TestPlace) -> None:
        fill(place, "plant", policy=WhenFull.REJECT)
        queue, connection = RoutingQueue("shop"), place.connect()
        assert code_of(queue, connection, b"1", ["plant", "store"]) == "queue.full"
        queue.transmit(connection, b"2", ["store"])
        connection.commit()
        assert place.payloads() == [b"2"]

    def test_shed(self, place: TestPlace) -> None:
        fill(place, "plant", policy=WhenFull.SHED)
        queue, connection = RoutingQueue("shop"), place.connect()
        sent = queue.transmit_all(connection, [(b"1", ["plant"]), (b"2", ["plant", "store"]), (b"3", ["store"])])
        assert sent.left_out == ("plant",)
        connection.commit()
        (batch,) = place.read_all()
        assert [(entry.payload, entry.sites) for entry in batch.transactions[0][1]] == [
            (b"2", ("store",)),
            (b"3", ("store",)),
        ]
        fill(place, policy=WhenFull.SHED)
        assert queue.transmit(connection, b"4", ["plant"]).left_out == ()

    def test_shed_of_everything_writes_nothing(self, place: TestPlace) -> None:
        fill(place, "plant", policy=WhenFull.SHED)
        connection = place.connect()
        assert RoutingQueue("shop").transmit(connection, b"1", ["plant"]).left_out == ("plant",)
        connection.commit()
        assert place.payloads() == []

    def test_block_gives_up_in_the_end(self, place: TestPlace) -> None:
        fill(place, "plant", policy=WhenFull.BLOCK)
        connection = place.connect()
        assert code_of(RoutingQueue("shop"), connection, b"1", ["plant"], timeout_s=0.1) == "queue.full"
        connection.commit()
        assert place.payloads() == []

    def test_block_waits_for_room(self, place: TestPlace) -> None:
        fill(place, "plant", policy=WhenFull.BLOCK)
        is_sent = threading.Event()

        def send() -> None:
            connection = place.driver()
            RoutingQueue("shop").transmit(connection, b"1", ["plant"])
            connection.commit()
            connection.close()
            is_sent.set()

        sender = threading.Thread(target=send)
        sender.start()
        assert not is_sent.wait(0.2)
        fill(place, policy=WhenFull.BLOCK)
        assert is_sent.wait(20)
        sender.join()
        assert place.payloads() == [b"1"]

    @pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
    def test_block_says_so_when_waiting_is_of_no_use(self, postgres_place: PostgresPlace, level: str) -> None:
        fill(postgres_place, "plant", policy=WhenFull.BLOCK)
        with postgres_place.engine.connect().execution_options(isolation_level=level) as connection:
            assert code_of(RoutingQueue("shop"), connection, b"1", ["plant"], timeout_s=None) == "queue.full"


class TestWriters:
    """SQLite lets one write at a time, and refuses who has seen an older state than the one that is to be changed."""

    def test_are_not_refused_for_what_a_site_forgets_meanwhile(self, sqlite_place: SqlitePlace) -> None:
        queue, connection, other = RoutingQueue("shop"), sqlite_place.connect(), sqlite_place.connect()
        connection.isolation_level = None
        for number in range(5):
            connection.execute("BEGIN")
            queue.transmit(other, b"other", ["plant"])
            other.commit()
            (batch,) = sqlite_place.read_all()
            sqlite_place.outbox.forget(batch.position)
            queue.transmit(connection, bytes([number]), ["plant"])
            connection.execute("COMMIT")
            assert sqlite_place.payloads() == [bytes([number])]

    def test_see_a_database_that_was_made_anew(self, sqlite_place: SqlitePlace) -> None:
        queue = RoutingQueue("shop")
        connection = sqlite_place.driver()
        queue.transmit(connection, b"old", ["plant"])
        connection.close()
        for file in sqlite_place.path.parent.glob("shop.db*"):
            file.unlink()
        sqlite_place.outbox.install()
        sqlite_place.outbox.set_destinations("shop", {"new": Fullness()})
        queue.transmit(connection := sqlite_place.connect(), b"new", ["new"])
        connection.commit()
        assert sqlite_place.payloads() == [b"new"]
        queue.close()


class FakeSite:
    def __init__(self) -> None:
        self.groups: list[list[Outgoing]] = []

    def transmit(self, entries: Sequence[Outgoing], *, timeout_s: float | None = None) -> Sent:
        self.groups.append(list(entries))
        return Sent(offsets=OffsetRange(Offset(7), Offset(7 + len(entries))))


class TestThroughASite:
    def test_each_call_is_one_group(self) -> None:
        site = FakeSite()
        queue = RoutingQueue("shop", site=site)
        assert queue.transmit_all(None, [(b"1", ["plant"]), (b"2", ["plant", "store"])]).offsets == (7, 9)
        queue.transmit(None, b"3", ["store"])
        assert site.groups == [
            [Outgoing("shop", b"1", ("plant",)), Outgoing("shop", b"2", ("plant", "store"))],
            [Outgoing("shop", b"3", ("store",))],
        ]

    def test_a_connection_is_refused(self, sqlite_place: SqlitePlace) -> None:
        site = FakeSite()
        assert code_of(RoutingQueue("shop", site=site), sqlite_place.connect(), b"1", ["plant"]) == "input.invalid"
        assert site.groups == []
