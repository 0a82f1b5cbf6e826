"""Every order in which a newcomer's steps, three writes, retention and a crash of the newcomer can come.

The steps are those of JOIN, SUBSCRIBE and its acknowledgements, done with the real parts, without a network between
them. Whatever the order: the newcomer gets everything once and without a hole (I8), and nothing that it still needs is
removed (I6).
"""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import combinations
from pathlib import Path

import pytest

from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions
from tailrace.log.batch import Batch, decode_body
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.reader import LogReader
from tailrace.log.retention import retain
from tailrace.message import NodeId
from tailrace.node.identity import Identity
from tailrace.node.store import Store
from tailrace.relay.join import Joins
from tailrace.relay.journal import Journal
from tailrace.relay.outgoing import Wish
from tailrace.relay.request import Chunk, FinalRows, Finish, Join, Joined, Register
from tailrace.relay.service import Service
from tailrace.relay.subscription import Subscription, consumer_name
from tailrace.relay.vclock import LOCAL

CLUSTER = "00000000-0000-0000-0000-000000000001"
STEPS = ("begin", "chunks", "finish", "publish", "follow", "retain", "follow")
WRITES = (
    "INSERT INTO t VALUES (10, 'first')",
    "UPDATE t SET word = 'second' WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
)


class Machine:
    """One node without a network."""

    def __init__(self, directory: Path, node: int) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.node = NodeId(node)
        self.path = directory / "t.db"
        self.run("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, word TEXT)")
        self.open()

    def open(self) -> None:
        self.log = CommitLog.open(self.directory / "log", LogConfig(segment_bytes=1))
        self.journal = Journal(self.log, self.node)
        reading = SqliteReaderOptions(path=str(self.path))
        self.store = Store(
            reading, SqliteWriterOptions(path=str(self.path), consumer="n"), self.journal, re.compile(".")
        )
        joins = Joins(self.journal, self.store, str(self.directory / "joins"))
        self.service = Service(Identity(self.node, CLUSTER), self.journal, joins)

    def close(self) -> None:
        self.store.close()
        self.log.close()

    def run(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute(statement)

    def rows(self) -> list[tuple[int, str]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute("SELECT * FROM t ORDER BY id").fetchall()

    def turn(self) -> None:
        self.store.capture()
        self.store.apply()


class World:
    """A source with two rows, and a newcomer with none."""

    def __init__(self, directory: Path) -> None:
        self.source = Machine(directory / "a", 1)
        self.source.run("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        self.source.turn()
        self.newcomer = Machine(directory / "b", 2)
        self.joined: Joined | None = None
        self.rows: list[Batch] = []
        self.is_finished = False
        self.is_member = False

    def write(self, number: int) -> None:
        self.source.run(WRITES[number])
        self.source.turn()

    def crash(self) -> None:
        """The newcomer loses what is not on disk; a join that was not published begins again."""
        self.newcomer.close()
        self.newcomer.open()
        self.joined, self.rows, self.is_finished = None, [], False

    def step(self, name: str) -> None:
        """One step, if the ones before it were done; otherwise those come first."""
        getattr(self, f"_{name}")()

    def _begin(self) -> None:
        if not self.is_member and self.joined is None:
            self.joined = self.source.service.join(Join(node=self.newcomer.node))

    def _chunks(self) -> None:
        self._begin()
        if self.is_member or self.rows or self.joined is None:
            return
        for number in range(self.joined.chunks):
            for group in self.source.service.chunk(Chunk(session=self.joined.session, chunk=number)):
                self.rows += [Batch(head.namespace, decode_body(bytes(body)), head.mode) for head, body in group]

    def _finish(self) -> None:
        self._chunks()
        if not self.is_member and not self.is_finished and self.joined is not None:
            self.source.service.finish(Finish(session=self.joined.session))
            self.is_finished = True

    def _publish(self) -> None:
        self._finish()
        if self.is_member or self.joined is None:
            return
        final = list(self.source.service.final(FinalRows(session=self.joined.session)))
        self.newcomer.store.load(self.rows)
        self.newcomer.journal.begin_at(self.joined.vclock)
        for group in final:
            self.newcomer.journal.append_group([(head, bytes(body)) for head, body in group])
        self.is_member = True

    def _follow(self) -> None:
        self._publish()
        name, since = consumer_name(self.newcomer.node), self.newcomer.journal.vclock
        if name not in self.source.service.consumers.names():
            self.source.service.register(Register(node=self.newcomer.node, cluster=CLUSTER, vclock=since))
        wish, consumers = Wish(self.newcomer.node), self.source.service.consumers
        with Subscription(self.source.journal, consumers, name, wish, since) as subscription:
            for group in subscription.groups():
                self.newcomer.journal.append_group([(head, bytes(body)) for head, body in group])
            subscription.acknowledge(subscription.sent)
        self.newcomer.turn()

    def _retain(self) -> None:
        self.source.journal.remember()
        retain(self.source.log.directory)

    def check(self) -> None:
        self._follow()
        assert self.newcomer.rows() == self.source.rows()
        assert self.newcomer.journal.vclock == self.source.journal.vclock
        entries = LogReader(self.newcomer.log.directory).entries()
        lsns = [entry.message.lsn for entry in entries if entry.message.origin != LOCAL]
        assert lsns == sorted(set(lsns))


def orders() -> Iterator[tuple[str, ...]]:
    """All of them: where the writes and the crash are among the steps."""
    total = len(STEPS) + len(WRITES)
    for places in combinations(range(total), len(WRITES)):
        steps, numbers = iter(STEPS), iter(range(len(WRITES)))
        order = [f"write {next(numbers)}" if at in places else next(steps) for at in range(total)]
        yield tuple(order)
        for crash in range(1, total + 1):
            yield (*order[:crash], "crash", *order[crash:])


def play(directory: Path, order: tuple[str, ...]) -> None:
    world = World(directory)
    try:
        for each in order:
            if each == "crash":
                world.crash()
            elif each.startswith("write"):
                world.write(int(each.split()[1]))
            else:
                world.step(each)
        world.check()
    except BaseException as error:
        error.add_note(f"in the order {order}")
        raise
    finally:
        with suppress(Exception):
            world.newcomer.close()
        world.source.close()
        shutil.rmtree(directory)


def test_some_orders(tmp_path: Path) -> None:
    chosen = random.Random().sample(list(orders()), 8)
    for number, order in enumerate(chosen):
        (tmp_path / str(number)).mkdir()
        play(tmp_path / str(number), order)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_every_order(tmp_path: Path) -> None:
    for number, order in enumerate(orders()):
        (tmp_path / str(number)).mkdir()
        play(tmp_path / str(number), order)
