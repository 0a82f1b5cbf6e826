"""What applications need to be allowed in PostgreSQL: what the guide says, and no more."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.queues import RoutingQueue
from tailrace.queues.answers import Ack, Answer
from tailrace.queues.application import application_of
from tailrace.queues.entries import Kind
from tailrace.queues.fullness import Fullness
from tailrace.queues.incoming import Incoming
from tailrace.queues.outboxpostgres import PostgresOutbox
from tailrace.queues.receiving import Receiver
from tests.queues.arrivals import arrive
from tests.queues.outboxes import SITE

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "queues.md"
PASSWORD = "few-rights"


class Rights:
    """A database in which nobody may do anything but what the guide's statements allow."""

    def __init__(self, address: str) -> None:
        (block,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        self._before, _, self._after = block.partition("-- when the site has run once")
        self._address = address
        self.admin = psycopg.connect(address, autocommit=True)
        self.admin.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        for role in ("site", "shop"):
            self.admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
        self._grant(self._before)
        self.outbox = PostgresOutbox(self.address("site"), SITE)
        self.outbox.set_destinations("stock", {"office": Fullness()})
        self._grant(self._after)

    def address(self, role: str) -> str:
        return re.sub(r"//[^@]*@", f"//{role}:{PASSWORD}@", self._address)

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.address("shop"))

    def close(self) -> None:
        self.outbox.close()
        for role in ("site", "shop"):
            self.admin.execute(f"DROP OWNED BY {role} CASCADE")
            self.admin.execute(f"DROP ROLE {role}")
        self.admin.close()

    def _grant(self, statements: str) -> None:
        for statement in re.sub(r"--.*|^;.*", "", statements).split(";"):
            if re.match(r"\s*(CREATE|ALTER|GRANT)", statement):
                self.admin.execute(statement.encode())


@pytest.fixture
def rights(database: str) -> Iterator[Rights]:
    made = Rights(database)
    yield made
    made.close()


def test_sending_and_supplying(rights: Rights) -> None:
    queue = RoutingQueue("stock")
    with rights.connect() as connection:
        queue.transmit(connection, b"bolts", ["office"])
    rights.outbox.ask("r1", "stock", ["office"])
    providing = queue.provide_snapshots(rights.connect, lambda context: context.transmit(b"all"))
    with rights.connect() as connection:
        assert providing.step(application_of(connection), threading.Event())
    batch = rights.outbox.read(None)
    assert batch is not None
    assert [entry.payload for _, entries in batch.transactions for entry in entries] == [b"bolts"]
    assert [(rows.kind, rows.payloads) for rows in batch.snapshots] == [
        (Kind.SNAPSHOT, [b"all"]),
        (Kind.SNAPSHOT_END, [b""]),
    ]
    rights.outbox.forget(batch.position)
    assert rights.outbox.read(batch.position) is None


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT payload FROM LRQ_Send_LogEntries",
        "DELETE FROM LRQ_Send_LogEntries",
        "INSERT INTO LRQ_Send_LogEntries (client, payload, destinations, xid) VALUES ('stock', '', '[]', '9')",
        "INSERT INTO LRQ_Destinations VALUES ('stock', 'elsewhere', false, 'block')",
        "DELETE FROM LRQ_Requests",
    ],
)
def test_what_is_not_allowed(rights: Rights, statement: str) -> None:
    with rights.connect() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())


def test_receiving_without_the_right_to_make_tables(rights: Rights, tmp_path: Path) -> None:
    with rights.connect() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("CREATE TABLE queues.t ()")
    rights.admin.execute("""CREATE TABLE queues.LRQ_Received (log text, client text, listener text, source text,
        replay text, place bigint, snapshot text, PRIMARY KEY (log, client, listener, source, replay))""")
    rights.admin.execute("GRANT SELECT, INSERT, UPDATE ON queues.LRQ_Received TO shop")
    stopping = threading.Event()
    seen: list[bytes | Exception] = []

    def apply(_connection: object, _source: str, message: Incoming) -> Answer:
        seen.append(message.payload)
        stopping.set()
        return Ack()

    def give_up(_source: str, error: Exception) -> None:
        seen.append(error)
        stopping.set()

    with CommitLog.open(tmp_path / "queues") as log:
        arrive(log, "stock", "north", "bolts")
        Receiver(log.directory, "stock").listen_in(rights.connect, apply, stopping, give_up)
    assert seen == [b"bolts"]
