"""Outboxes: what a site reads of them, and what it writes into them."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import psycopg
import pytest

from tailrace.errors import TailraceError
from tailrace.queues import RoutingQueue
from tailrace.queues.application import application_of
from tailrace.queues.claims import Claims
from tailrace.queues.entries import Kind
from tailrace.queues.fullness import Fullness, WhenFull
from tailrace.queues.outbox import Owner, Position
from tailrace.queues.outboxpostgres import PostgresOutbox
from tailrace.queues.outboxsqlite import SqliteOutbox
from tests.queues.outboxes import SITE, PostgresPlace, SqlitePlace, TestPlace
from tests.servers.postgres import PostgresServer


def send(place: TestPlace, *payloads: bytes) -> None:
    connection = place.connect()
    RoutingQueue("shop").transmit_all(connection, [(payload, ["plant"]) for payload in payloads])
    connection.commit()


class TestInstalling:
    def test_again_changes_nothing(self, place: TestPlace) -> None:
        send(place, b"1")
        place.outbox.install()
        other = place.make_outbox()
        other.install()
        (batch,) = place.read_all()
        assert other.read(None) == batch
        other.close()

    def test_at_once_from_everywhere(self, database: str) -> None:
        outboxes = [PostgresOutbox(database, SITE) for _ in range(4)]
        threads = [threading.Thread(target=outbox.install) for outbox in outboxes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with psycopg.connect(database) as connection:
            assert connection.execute("SELECT count(*) FROM LRQ_Outbox").fetchone() == (1,)
        for outbox in outboxes:
            outbox.close()

    def test_in_a_directory_that_is_missing_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(TailraceError, match=r"source\.unreachable"):
            SqliteOutbox(str(tmp_path / "nowhere" / "shop.db"), SITE).read(None)


class TestOwners:
    """An outbox is read by one site: two would each get a part of what is sent, and of what is supplied."""

    def test_a_second_site_is_refused(self, place: TestPlace) -> None:
        send(place, b"1")
        place.outbox.ask("r1", "shop", ["plant"])
        second = place.make_outbox(Owner("second", "1" * 16))
        for call in (
            second.install,
            lambda: second.read(None),
            lambda: second.forget(Position("any")),
            lambda: second.set_destinations("shop", {}),
            second.requests,
            lambda: second.withdraw("r1"),
        ):
            with pytest.raises(TailraceError, match=r"queue\.outbox_taken"):
                call()
        assert place.payloads() == [b"1"]
        assert [asked.request for asked in place.outbox.requests()] == ["r1"]
        assert len(place.ask("SELECT * FROM LRQ_Destinations")) == 2
        second.close()

    def test_one_that_is_handed_over_is_the_others(self, place: TestPlace) -> None:
        """The first notices when it reads the next time."""
        send(place, b"1")
        second = place.make_outbox(Owner("second", "1" * 16))
        place.change("DELETE FROM LRQ_Site")  # as the hint says
        second.install()
        batch = second.read(None)
        assert batch is not None
        assert len(batch) == 1
        assert place.outbox.read(None) is None
        with pytest.raises(TailraceError, match=r"queue\.outbox_taken"):
            place.outbox.read(None)
        second.close()


class TestReading:
    def test_goes_on_behind_a_position(self, place: TestPlace) -> None:
        assert place.outbox.read(None) is None
        send(place, b"1", b"2")
        first = place.outbox.read(None)
        assert first is not None
        assert place.outbox.read(first.position) is None
        send(place, b"3")
        second = place.outbox.read(first.position)
        assert second is not None
        assert [entry.payload for _, entries in second.transactions for entry in entries] == [b"3"]
        assert len(second) == 1

    def test_forgets_only_what_it_is_told(self, place: TestPlace) -> None:
        send(place, b"1")
        first = place.outbox.read(None)
        assert first is not None
        send(place, b"2")
        place.outbox.forget(first.position)
        assert place.payloads() == [b"2"]
        place.outbox.forget(first.position)
        assert place.payloads() == [b"2"]

    def test_batches_are_bounded_and_transactions_whole(self, place: TestPlace) -> None:
        for number in range(6):
            send(place, bytes([number]) * 400, bytes([number]) * 400)
        outbox = place.make_outbox(batch_bytes=1000)
        sizes, position = [], None
        while (batch := outbox.read(position)) is not None:
            assert all(len(entries) == 2 for _, entries in batch.transactions)
            sizes.append(len(batch.transactions))
            position = batch.position
        outbox.close()
        assert sizes == [2, 2, 2]

    def test_a_transaction_larger_than_a_batch_is_read_whole(self, place: TestPlace) -> None:
        connection, queue = place.connect(), RoutingQueue("shop")
        for number in range(20):
            queue.transmit(connection, bytes([number]) * 100, ["plant"])
        connection.commit()
        send(place, b"next")
        outbox = place.make_outbox(batch_bytes=500)
        batch = outbox.read(None)
        assert batch is not None
        assert [len(entries) for _, entries in batch.transactions] == [20]
        outbox.close()

    def test_two_clients_in_one_transaction_are_kept_apart(self, place: TestPlace) -> None:
        """Acceptance test 17, at the source."""
        place.outbox.set_destinations("stock", {"plant": Fullness()})
        connection = place.connect()
        RoutingQueue("shop").transmit(connection, b"1", ["plant"])
        RoutingQueue("stock").transmit(connection, b"2", ["plant"])
        connection.commit()
        (batch,) = place.read_all()
        ((_, entries),) = batch.transactions
        assert [(entry.client, entry.payload) for entry in entries] == [("shop", b"1"), ("stock", b"2")]

    def test_rows_that_make_no_sense_stop_it_until_they_are_gone(self, place: TestPlace) -> None:
        for sites in ("[]", "[1]", '["../x"]'):
            place.change(
                "INSERT INTO LRQ_Send_LogEntries (client, payload, destinations)"
                f" VALUES ('shop', {'X' if isinstance(place, SqlitePlace) else ''}'41', '{sites}')"
            )
            send(place, b"1")
            with pytest.raises(TailraceError, match=r"queue\.malformed"):
                place.outbox.read(None)
            place.change(f"DELETE FROM LRQ_Send_LogEntries WHERE destinations = '{sites}'")
        assert place.payloads() == [b"1"] * 3

    def test_rows_that_can_be_no_messages_are_refused_at_once(self, place: TestPlace) -> None:
        for sites in ("plant", "{}", '"plant"'):
            with pytest.raises(Exception, match=r"(?i)json|constraint"):
                place.change(
                    "INSERT INTO LRQ_Send_LogEntries (client, payload, destinations)"
                    f" VALUES ('shop', {'X' if isinstance(place, SqlitePlace) else ''}'41', '{sites}')"
                )

    def test_a_database_that_was_made_anew_is_another_outbox(self, place: TestPlace) -> None:
        send(place, b"old")
        (old,) = place.read_all()
        for table in ("LRQ_Send_LogEntries", "LRQ_Send_SnapSync", "LRQ_Outbox"):
            place.change(f"DROP TABLE {table}")
        place.outbox.install()
        send(place, b"new")
        place.outbox.forget(old.position)
        batch = place.outbox.read(old.position)
        assert batch is not None
        assert [entry.payload for _, entries in batch.transactions for entry in entries] == [b"new"]

    def test_a_database_that_was_restored_is_told(self, place: TestPlace) -> None:
        send(place, b"1")
        (batch,) = place.read_all()
        later = Position(batch.position.outbox, batch.position.entries + 10**9, batch.position.snapshots)
        with pytest.raises(TailraceError, match=r"source\.position_lost"):
            place.outbox.read(later)
        place.change("DELETE FROM LRQ_Outbox")  # as the hint says
        found = place.outbox.read(later) or place.outbox.read(later)  # the first may find that it is a new one
        assert found is not None
        assert len(found) == 1


class TestSlowTransactions:
    """Of PostgreSQL: one that commits late must not be missed, whatever was read meanwhile."""

    def test_are_waited_for(self, postgres_place: PostgresPlace) -> None:
        slow, queue = postgres_place.connect(), RoutingQueue("shop")
        queue.transmit(slow, b"slow", ["plant"])
        send(postgres_place, b"fast")
        assert postgres_place.payloads() == []
        slow.commit()
        assert sorted(postgres_place.payloads()) == [b"fast", b"slow"]

    def test_that_send_last_are_not_lost(self, postgres_place: PostgresPlace) -> None:
        """Their numbers are lower than those that were read."""
        slow, queue = postgres_place.connect(), RoutingQueue("shop")
        slow.execute("INSERT INTO orders VALUES (1)")
        send(postgres_place, b"before")
        batches = postgres_place.read_all()
        queue.transmit(slow, b"slow", ["plant"])
        send(postgres_place, b"after")
        batches += postgres_place.read_all(batches[-1].position if batches else None)
        slow.commit()
        batches += postgres_place.read_all(batches[-1].position if batches else None)
        found = [entry.payload for batch in batches for _, entries in batch.transactions for entry in entries]
        assert sorted(found) == [b"after", b"before", b"slow"]

    def test_that_are_rolled_back_hold_nobody_up(self, postgres_place: PostgresPlace) -> None:
        slow = postgres_place.connect()
        RoutingQueue("shop").transmit(slow, b"slow", ["plant"])
        send(postgres_place, b"fast")
        slow.rollback()
        assert postgres_place.payloads() == [b"fast"]

    def test_in_parts_are_whole(self, postgres_place: PostgresPlace) -> None:
        """Rows of savepoints belong to their transaction."""
        connection, queue = postgres_place.connect(), RoutingQueue("shop")
        queue.transmit(connection, b"1", ["plant"])
        with connection.transaction():
            queue.transmit(connection, b"2", ["plant"])
        with connection.transaction(force_rollback=True):
            queue.transmit(connection, b"3", ["plant"])
        connection.commit()
        (batch,) = postgres_place.read_all()
        assert [[entry.payload for entry in entries] for _, entries in batch.transactions] == [[b"1", b"2"]]

    def test_of_many_writers_lose_nothing(self, postgres_place: PostgresPlace) -> None:
        queue = RoutingQueue("shop")

        def write(writer: int) -> None:
            with psycopg.connect(postgres_place.address) as connection:
                for number in range(30):
                    queue.transmit_all(connection, [(f"{writer}.{number}".encode(), ["plant"])] * 2)
                    if number % 5 == 4:
                        connection.rollback()
                    connection.commit()

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        found: list[bytes] = []
        position = None
        while True:
            is_last = not any(writer.is_alive() for writer in writers)
            while (batch := postgres_place.outbox.read(position)) is not None:
                assert all(len(entries) == 2 for _, entries in batch.transactions)
                found += [entry.payload for _, entries in batch.transactions for entry in entries]
                position = batch.position
                postgres_place.outbox.forget(position)
            if is_last:
                break
        wanted = [f"{w}.{n}".encode() for w in range(4) for n in range(30) if n % 5 != 4 for _ in range(2)]
        assert sorted(found) == sorted(wanted)
        for number in range(4):
            start = f"{number}.".encode()
            assert [one for one in found if one.startswith(start)] == [one for one in wanted if one.startswith(start)]


class TestSqliteTransactions:
    def test_that_wrote_by_hand_are_not_split(self, sqlite_place: SqlitePlace) -> None:
        """A row that was not written by us says nothing about where its transaction begins."""
        connection = sqlite_place.connect()
        send(sqlite_place, b"0")
        connection.execute(
            "INSERT INTO LRQ_Send_LogEntries (client, payload, destinations) VALUES ('shop', X'41', '[\"plant\"]')"
        )
        RoutingQueue("shop").transmit(connection, b"B", ["plant"])
        connection.commit()
        outbox = SqliteOutbox(str(sqlite_place.path), SITE, batch_bytes=1)
        batch = outbox.read(None)
        assert batch is not None
        assert [entry.payload for _, entries in batch.transactions for entry in entries] == [b"0", b"A", b"B"]

    @pytest.mark.parametrize("spills", [True, False])
    def test_are_not_split_without_a_write_ahead_log(self, tmp_path: Path, spills: bool) -> None:
        path = tmp_path / "old.db"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE filler (x)")
        outbox = SqliteOutbox(str(path), SITE, batch_bytes=1)
        outbox.set_destinations("shop", {"plant": Fullness()})
        queue = RoutingQueue("shop")
        connection.execute("PRAGMA cache_size = 2")
        for number in range(3):
            if spills:  # then nobody else can read until the end
                connection.execute("INSERT INTO filler VALUES (randomblob(200000))")
            queue.transmit(connection, bytes([number]), ["plant"])
            queue.transmit(connection, bytes([number]), ["plant"])
            connection.commit()
        connection.close()
        queue.close()
        position, found = None, list[list[bytes]]()
        while (batch := outbox.read(position)) is not None:
            found.append([entry.payload for _, entries in batch.transactions for entry in entries])
            position = batch.position
        pairs = [[bytes([number])] * 2 for number in range(3)]
        assert found == ([[one for pair in pairs for one in pair]] if spills else pairs)


class TestSettings:
    def test_destinations_are_replaced(self, place: TestPlace) -> None:
        place.outbox.set_destinations("other", {"x": Fullness()})
        place.outbox.set_destinations("shop", {"new": Fullness(is_full=True, policy=WhenFull.SHED)})
        told = place.ask("SELECT client, site, is_full, policy FROM LRQ_Destinations ORDER BY client")
        assert told == [("other", "x", False, "block"), ("shop", "new", True, "shed")]
        place.outbox.set_destinations("shop", {})
        assert place.ask("SELECT client FROM LRQ_Destinations") == [("other",)]

    def test_requests_can_have_other_sites_until_they_are_claimed(self, place: TestPlace) -> None:
        assert place.outbox.ask("r1", "shop", ["plant"])
        assert place.outbox.ask("r1", "shop", ["store", "plant"])
        (asked,) = place.outbox.requests()
        assert (asked.request, asked.client, asked.sites, asked.attempt) == ("r1", "shop", ("plant", "store"), None)
        claim = Claims(application_of(place.connect())).claim("shop", "me", 60)
        assert claim is not None
        assert not place.outbox.ask("r1", "shop", ["plant"])
        assert place.outbox.ask("r1", "shop", ["plant", "store"])
        place.outbox.withdraw("r1")
        place.outbox.withdraw("r1")
        assert place.outbox.requests() == []


class TestSnapshotRows:
    def test_of_attempts_that_count_are_read(self, place: TestPlace) -> None:
        place.outbox.ask("r1", "shop", ["plant", "store"])
        claims = Claims(application_of(place.connect()))
        lost = claims.claim("shop", "dies", 60)
        assert lost is not None
        claims.supply(lost, [b"lost"], 1, None)
        claims.fail(lost, "died", 0)
        claim = claims.claim("shop", "lives", 60)
        assert claim is not None
        claims.supply(claim, [b"1", b"2"], 2, 3)
        claims.supply(claim, [b"3"], 3, 3)
        claims.finish(claim)
        (batch,) = place.read_all()
        told = [(rows.client, rows.attempt, rows.sites, rows.kind, rows.payloads) for rows in batch.snapshots]
        sites = ("plant", "store")
        assert told == [
            ("shop", claim.attempt, sites, Kind.SNAPSHOT, [b"1", b"2", b"3"]),
            ("shop", claim.attempt, sites, Kind.SNAPSHOT_END, [b""]),
        ]
        place.outbox.forget(batch.position)
        assert place.ask("SELECT count(*) FROM LRQ_Send_SnapSync") == [(0,)]

    def test_of_a_request_that_was_withdrawn_are_passed_over(self, place: TestPlace) -> None:
        place.outbox.ask("r1", "shop", ["plant"])
        claims = Claims(application_of(place.connect()))
        claim = claims.claim("shop", "me", 60)
        assert claim is not None
        claims.supply(claim, [b"1"], 1, None)
        place.outbox.withdraw("r1")
        (batch,) = place.read_all()
        assert len(batch) == 0
        place.outbox.forget(batch.position)
        assert place.outbox.read(batch.position) is None
        with pytest.raises(TailraceError, match=r"queue\.claim_lost"):
            claims.supply(claim, [b"2"], 2, None)
        with pytest.raises(TailraceError, match=r"queue\.claim_lost"):
            claims.finish(claim)
        assert place.ask("SELECT count(*) FROM LRQ_Send_SnapSync") == [(0,)]

    def test_are_read_in_pieces(self, place: TestPlace) -> None:
        place.outbox.ask("r1", "shop", ["plant"])
        claims = Claims(application_of(place.connect()))
        claim = claims.claim("shop", "me", 60)
        assert claim is not None
        for number in range(10):
            claims.supply(claim, [bytes([number]) * 100], number, None)
        outbox = place.make_outbox(batch_bytes=300)
        found, position, batches = [], None, 0
        while (batch := outbox.read(position)) is not None:
            found += [payload for rows in batch.snapshots for payload in rows.payloads]
            position, batches = batch.position, batches + 1
        outbox.close()
        assert found == [bytes([number]) * 100 for number in range(10)]
        assert batches == 4


class TestAway:
    def test_it_is_told_and_works_again(self) -> None:
        server = PostgresServer()
        server.start()
        try:
            outbox = PostgresOutbox(server.create("shop"), SITE)
            outbox.set_destinations("shop", {"plant": Fullness()})
            server.stop()
            for call in (lambda: outbox.read(None), outbox.requests, lambda: outbox.withdraw("r1")):
                with pytest.raises(TailraceError) as caught:
                    call()
                assert caught.value.code == "source.unreachable"
                assert "canary" not in str(caught.value)
            server.start()
            with psycopg.connect(server.url("shop")) as connection:
                RoutingQueue("shop").transmit(connection, b"1", ["plant"])
            assert outbox.read(None) is not None
            outbox.close()
        finally:
            server.remove()

    def test_positions_survive_being_written_down(self) -> None:
        position = Position("abc", 2**63, 5)
        assert Position.decode(json.loads(json.dumps(position.encode()))) == position
