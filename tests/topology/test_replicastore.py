"""Stores of replicas: filled, kept up, late, without some tables, and filled anew when their log is cut."""

from __future__ import annotations

import os
import random
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.log.cursor import Cursor
from tailrace.log.selection import EVERYTHING
from tailrace.log.view import LogView
from tailrace.message import Offset
from tailrace.node.load import load_node
from tailrace.node.node import Node
from tailrace.relay.decisions import Decisions
from tailrace.relay.request import Change, Commit
from tailrace.topology.applynow import ask
from tailrace.topology.copied import promote
from tailrace.topology.form import ReplicaSpec
from tailrace.topology.load import load_any
from tailrace.topology.replicanode import ReplicaNode
from tailrace.topology.thinning import Thinning
from tests.relay.nodes import wait_for
from tests.topology.logs import TOKEN, segments

Rows = list[tuple[Any, ...]]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


class Root:
    """A node with the tables t and u."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self.database = directory / "root.db"
        self.log = directory / "root" / "log"
        for table in ("t", "u"):
            run(self.database, f"CREATE TABLE IF NOT EXISTS {table}(id INTEGER PRIMARY KEY, word TEXT)")
        run(self.database, "INSERT OR IGNORE INTO t VALUES (1, 'old')", "INSERT OR IGNORE INTO u VALUES (1, 'old')")
        file = directory / "root.yml"
        file.write_text(
            f"node: root\ndata: ./root\nlisten: 127.0.0.1:0\nheartbeat: 200ms\nfounder: true\nsegment_bytes: 20kB\n"
            f"tokens: {{all: {TOKEN}}}\nstore: {{sqlite: {{path: root.db}}}}\n"
            "synchronous: {acks: 0}\n"
        )
        self.node = stack.enter_context(Node(load_node(str(file)), lambda _: None))

    def run(self, *statements: str) -> None:
        run(self.database, *statements)

    def end(self) -> int:
        return LogView(str(self.log)).head().next_offset


class Kept:
    """A replica with a store, in this process."""

    def __init__(
        self,
        directory: Path,
        port: int,
        name: str = "copy",
        store: str = "sqlite: {path: copy.db}",
        *,
        rows_from: int | None = None,
        **keys: str,
    ) -> None:
        self.said: list[str] = []
        self.data = directory / name
        self.database = directory / f"{name}.db"
        lines = [f"node: {name}", f"data: ./{name}", "listen: 127.0.0.1:0", "heartbeat: 200ms"]
        lines += [f"tokens: {{all: {TOKEN}}}", *(f"{key}: {text}" for key, text in keys.items())]
        lines += [f"store: {{{store.replace('copy.db', f'{name}.db')}}}", "replicate_from:", "  blocking: true"]
        lines += [f"  sources: [{{name: root, address: '127.0.0.1:{port}', token: {TOKEN}}}]"]
        if rows_from is not None:
            lines += [f"  rows_from: [{{name: top, address: '127.0.0.1:{rows_from}', token: {TOKEN}}}]"]
        file = directory / f"{name}.yml"
        file.write_text("\n".join(lines))
        spec = load_any(str(file))
        assert isinstance(spec, ReplicaSpec)
        self.node = ReplicaNode(spec, self.said.append)

    def __enter__(self) -> Kept:
        self.node.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.node.__exit__()

    @property
    def applied(self) -> int | None:
        assert self.node.store is not None
        return self.node.store.applied

    def rows(self, table: str = "t") -> Rows:
        return rows(self.database, table)

    def reaches(self, root: Root, table: str = "t") -> None:
        wait_for(lambda: self._is_equal(root, table), 60)

    def _is_equal(self, root: Root, table: str) -> bool:
        try:
            return self.rows(table) == rows(root.database, table)
        except sqlite3.OperationalError:
            return False


def run(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def rows(database: Path, table: str) -> Rows:
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()


def test_a_store_is_filled_and_kept_up(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    root.run("INSERT INTO t VALUES (2, 'before')")
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root)
        root.run("UPDATE t SET word = 'new' WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO u VALUES (2, '')")
        copy.reaches(root)
        copy.reaches(root, "u")
        assert copy.node.status()["store"]["applied"] == copy.applied
    root.run("INSERT INTO t VALUES (3, 'while it was away')")
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root)
        assert not any("rows, as of" in line for line in copy.said), "it is not filled twice"


def test_programs_cannot_write_it(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root)
        root.run("INSERT INTO t VALUES (2, 'told')")
        copy.reaches(root)

        def is_refused() -> bool:
            try:
                run(copy.database, "UPDATE t SET word = 'mine' WHERE id = 1")
            except sqlite3.IntegrityError:
                return True
            run(copy.database, "UPDATE t SET word = 'old' WHERE id = 1")
            return False

        wait_for(is_refused, 30)


def test_a_table_with_rows_of_its_own_is_not_replaced(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    run(tmp_path / "copy.db", "CREATE TABLE t(id INTEGER PRIMARY KEY, word TEXT)", "INSERT INTO t VALUES (9, 'mine')")
    with Kept(tmp_path, root.node.port) as copy:
        wait_for(lambda: any("relay.not_empty" in line for line in copy.said), 30)
        assert copy.rows() == [(9, "mine")]


def test_received_at_once_applied_late(stack: ExitStack, tmp_path: Path) -> None:
    """A copy of the delayed replica is not delayed, nobody is alarmed, and an operator can make it apply."""
    root = Root(stack, tmp_path)
    watchful = "{physrep_hung_replicant_threshold: 1s, physrep_hung_replicant_check_freq_sec: 1s}"
    copy = stack.enter_context(Kept(tmp_path, root.node.port, replicate_wait="1h", tunables=watchful))
    wait_for(lambda: copy.applied is not None, 60)
    root.run("INSERT INTO t VALUES (2, 'a mistake')", "DELETE FROM t WHERE id = 1")
    wait_for(lambda: segments(copy.data / "log") == segments(root.log) and root.end() > (copy.applied or 0), 30)
    below = stack.enter_context(Kept(tmp_path, copy.node.port, "below"))
    wait_for(lambda: (below.data / "log").exists() and segments(below.data / "log") == segments(root.log), 30)
    status = copy.node.status()
    assert status["store"]["applied"] < status["next_offset"] == root.end()
    assert copy.rows() == [(1, "old")]
    assert copy.node._report_of().applied == copy.applied
    assert copy.node._report_of().received == root.end()
    looked_s = copy.node._watched_s
    wait_for(lambda: copy.node._watched_s > looked_s + 2.5, 30)
    assert not [line for line in copy.said if "applying has stood still" in line], "what is meant to wait does not hang"
    assert ask(str(copy.data)) == root.end()
    wait_for(lambda: copy.applied == root.end(), 30)
    assert copy.rows() == rows(root.database, "t") == [(2, "a mistake")]
    root.run("INSERT INTO t VALUES (3, 'waits again')")
    wait_for(lambda: LogView(str(copy.data / "log")).head().next_offset == root.end(), 30)
    assert copy.rows() == [(2, "a mistake")]


def test_a_replica_cannot_give_the_rows_to_begin_with(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    copy = stack.enter_context(Kept(tmp_path, root.node.port))
    copy.reaches(root)
    below = stack.enter_context(Kept(tmp_path, copy.node.port, "below"))
    wait_for(lambda: any("rows_from" in line for line in below.said), 60)
    assert below.applied is None


def test_an_ignored_table_is_copied_and_not_applied(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    with Kept(tmp_path, root.node.port, physrep_ignore="[main.u]") as copy:
        copy.reaches(root)
        root.run("INSERT INTO u VALUES (2, 'ignored')", "INSERT INTO t VALUES (2, 'not')")
        copy.reaches(root)
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            copy.rows("u")
        wait_for(lambda: segments(copy.data / "log") == segments(root.log), 30)
        with Kept(tmp_path, copy.node.port, "below", rows_from=root.node.port) as below:
            below.reaches(root, "u")
            root.run("INSERT INTO u VALUES (3, 'through the one that ignores it')")
            below.reaches(root, "u")


def test_a_table_comes_back_from_the_log(stack: ExitStack, tmp_path: Path) -> None:
    """What it had in the beginning, what came since, what moved, what is gone; also after it was ignored twice."""
    root = Root(stack, tmp_path)
    root.run(*(f"INSERT INTO u VALUES ({number}, 'early')" for number in range(10, 40)))
    with Kept(tmp_path, root.node.port, physrep_ignore="[main.u]") as copy:
        copy.reaches(root)
        root.run(
            "UPDATE u SET word = 'changed' WHERE id < 20",
            "DELETE FROM u WHERE id = 30",
            "UPDATE u SET id = 100 WHERE id = 31",
            "INSERT INTO u VALUES (200, 'late')",
            "UPDATE u SET word = 'later' WHERE id = 200",
            "INSERT INTO t VALUES (2, 'mark')",
        )
        copy.reaches(root)
    with Kept(tmp_path, root.node.port) as copy:
        root.run("INSERT INTO u VALUES (300, 'meanwhile')", "DELETE FROM u WHERE id = 32")
        wait_for(lambda: any("main.u is back" in line for line in copy.said), 120)
        copy.reaches(root, "u")
        root.run("INSERT INTO u VALUES (301, 'afterwards')")
        copy.reaches(root, "u")
    with Kept(tmp_path, root.node.port, physrep_ignore="[main.u]") as copy:
        wait_for(lambda: copy.rows("u") == [], 30)
        root.run("UPDATE u SET word = 'again' WHERE id = 12", "DELETE FROM u WHERE id = 13")
        wait_for(lambda: segments(copy.data / "log") == segments(root.log), 30)
    with Kept(tmp_path, root.node.port) as copy:
        wait_for(lambda: any("main.u is back" in line for line in copy.said), 120)
        assert copy.rows("u") == rows(root.database, "u")
        assert (12, "again") in copy.rows("u")
        assert not os.path.exists(copy.data / "backfill")


def test_a_table_that_the_log_does_not_tell_is_fetched_again(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    with Kept(tmp_path, root.node.port, physrep_ignore="[main.u]") as copy:
        copy.reaches(root)
        numbers = count(10)
        while len(list(root.log.glob("*.log"))) < 3:
            root.run(f"INSERT INTO u VALUES ({next(numbers)}, '{secrets.token_hex(500)}')")
        root.run("INSERT INTO t VALUES (2, 'mark')")
        copy.reaches(root)
    first = sorted((copy.data / "log").glob("*.log"))[0]
    for path in (copy.data / "log").glob(f"{first.stem}*"):
        path.unlink()
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root, "u")
        copy.reaches(root)
        assert any("filled anew" in line for line in copy.said)


def test_a_log_that_is_cut_takes_the_store_along(stack: ExitStack, tmp_path: Path) -> None:
    """What a replica has applied of a log that was promoted elsewhere never happened."""
    with ExitStack() as first:
        root = Root(first, tmp_path)
        root.run("INSERT INTO t VALUES (2, 'kept')")
        with Kept(tmp_path, root.node.port) as copy:
            copy.reaches(root)
            wait_for(lambda: segments(copy.data / "log") == segments(root.log), 30)
        kept = segments(root.log)
        database = root.database.read_bytes()
        with Kept(tmp_path, root.node.port) as copy:
            root.run("INSERT INTO t VALUES (3, 'lost')", "UPDATE t SET word = 'lost' WHERE id = 1")
            copy.reaches(root)
    for path in root.log.iterdir():
        if path.is_file() and path.name != "log.id":
            path.unlink()
    for name, raw in kept.items():
        (root.log / name).write_bytes(raw)
    for path in tmp_path.glob("root.db*"):
        path.unlink()
    root.database.write_bytes(database)
    root = Root(stack, tmp_path)
    root.run("INSERT INTO t VALUES (4, 'new')")
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root)
        assert [word for _, word in copy.rows()] == ["old", "kept", "new"]
        assert any("filled anew" in line for line in copy.said)


def test_synchronous_transactions_that_happened_and_that_did_not(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    root.node.promote()
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root)
        root.node.commit(commit(2, acks=0))
        with pytest.raises(TailraceError, match="rolled_back"):
            root.node.commit(commit(3, acks=1))
        root.node.commit(commit(4, acks=0))
        wait_for(lambda: (4, "synchronous") in rows(root.database, "t"), 30)
        copy.reaches(root)
        assert [number for number, _ in copy.rows()] == [1, 2, 4]
    view = LogView(str(root.log))
    (undone,) = Decisions(view).undone(view.bases()[0], view.head().next_offset)
    with closing(Cursor(view, Offset(undone.start), EVERYTHING)) as cursor:
        told = [entry.message for frame in cursor.advance(Offset(undone.stop)) for entry in frame.entries()]
    assert [message.data for message in told if message.namespace == "main.t"] == [{"id": 3, "word": "synchronous"}]


def commit(number: int, *, acks: int) -> Commit:
    change = Change(op="insert", namespace="main.t", data={"id": number, "word": "synchronous"})
    return Commit(changes=[change], acks=acks, timeout_s=0.3)


def test_a_store_of_postgres(stack: ExitStack, tmp_path: Path, postgres_address: str) -> None:
    root = Root(stack, tmp_path)
    store = f"postgres: {{url: '{postgres_address}'}}"

    def found(table: str = "t") -> Rows:
        with psycopg.connect(postgres_address) as connection:
            return connection.execute(f"SELECT * FROM main.{table} ORDER BY id").fetchall()

    def is_equal(table: str = "t") -> bool:
        try:
            return found(table) == rows(root.database, table)
        except psycopg.errors.UndefinedTable:
            return False

    with Kept(tmp_path, root.node.port, store=store):
        wait_for(is_equal, 60)
        root.run("UPDATE t SET word = 'new' WHERE id = 1", "INSERT INTO t VALUES (2, 'more')")
        wait_for(is_equal, 60)
        wait_for(lambda: is_equal("u"), 30)
    with Kept(tmp_path, root.node.port, store=store, physrep_ignore="[main.u]"):
        wait_for(lambda: found("u") == [], 30)
        root.run("INSERT INTO u VALUES (2, 'ignored')", "DELETE FROM t WHERE id = 1")
        wait_for(is_equal, 60)
        assert found("u") == []

        def is_refused() -> bool:
            try:
                with psycopg.connect(postgres_address) as connection:
                    connection.execute("INSERT INTO main.t VALUES (9, 'mine')")
                    connection.rollback()
            except psycopg.Error:
                return True
            return False

        wait_for(is_refused, 30)


@pytest.mark.long
def test_a_table_of_postgres_comes_back_from_the_log(stack: ExitStack, tmp_path: Path, postgres_address: str) -> None:
    root = Root(stack, tmp_path)
    store = f"postgres: {{url: '{postgres_address}'}}"

    def is_equal(table: str) -> bool:
        with psycopg.connect(postgres_address) as connection:
            try:
                return connection.execute(f"SELECT * FROM main.{table} ORDER BY id").fetchall() == rows(
                    root.database, table
                )
            except psycopg.errors.UndefinedTable:
                return False

    with Kept(tmp_path, root.node.port, store=store):
        wait_for(lambda: is_equal("t") and is_equal("u"), 60)
    with Kept(tmp_path, root.node.port, store=store, physrep_ignore="[main.u]"):
        root.run("INSERT INTO u VALUES (2, 'new')", "UPDATE u SET word = 'other' WHERE id = 1")
        root.run("INSERT INTO u VALUES (3, 'short')", "DELETE FROM u WHERE id = 3", "INSERT INTO t VALUES (2, 'mark')")
        wait_for(lambda: is_equal("t"), 60)
        assert not is_equal("u")
    with Kept(tmp_path, root.node.port, store=store) as copy:
        root.run("INSERT INTO u VALUES (4, 'meanwhile')")
        wait_for(lambda: any("main.u is back" in line for line in copy.said), 120)
        wait_for(lambda: is_equal("u"), 60)


@pytest.mark.crash
def test_kills_lose_and_repeat_nothing(stack: ExitStack, tmp_path: Path) -> None:
    """While it is filled and while it applies."""
    root = Root(stack, tmp_path)
    root.run(*(f"INSERT INTO t VALUES ({number}, 'early')" for number in range(10, 2000)))
    Kept(tmp_path, root.node.port)  # its file
    chance = random.Random(3)
    number = 2000
    for _ in range(5):
        with open(tmp_path / "said", "ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "tailrace", "serve", "copy.yml"], cwd=tmp_path, stdout=said, stderr=said
            )
        seen = [line for line in (tmp_path / "said").read_text().splitlines() if "listens" in line]
        wait_for(lambda: (tmp_path / "said").read_text().count("listens") > len(seen), 60)  # noqa: B023
        for _ in range(chance.randrange(5, 25)):
            root.run(f"INSERT INTO t VALUES ({number}, 'late')", f"DELETE FROM t WHERE id = {number - 1900}")
            number += 1
        process.kill()
        process.wait()
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root)


def test_what_a_file_cannot_say(tmp_path: Path) -> None:
    file = tmp_path / "copy.yml"
    said = "node: copy\ndata: ./copy\nreplicate_from: {sources: [{name: a, address: '127.0.0.1:1', token: x}]}\n"
    file.write_text(f"{said}replicate_wait: 1h\n")
    with pytest.raises(TailraceError, match="says how a `store` is kept up"):
        load_any(str(file))
    file.write_text(f"{said}store: {{sqlite: {{path: a.db}}, conflict: stop}}\n")
    with pytest.raises(TailraceError, match="the last write stays"):
        load_any(str(file))


def test_a_promoted_copy_can_be_written(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root)
    promote(str(copy.data / "log"))
    with CommitLog.open(copy.data / "log") as risen:
        assert risen.next_offset > 0


def test_two_replicas_with_one_store(stack: ExitStack, tmp_path: Path) -> None:
    """What one puts aside the other would miss."""
    root = Root(stack, tmp_path)
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root)
    store = "sqlite: {path: copy.db}"
    (tmp_path / "other.db").symlink_to(tmp_path / "copy.db")
    with Kept(tmp_path, root.node.port, "other", store) as other:
        wait_for(lambda: any("is the store of another replica" in line for line in other.said), 30)
    with Kept(tmp_path, root.node.port) as copy:
        root.run("INSERT INTO t VALUES (2, 'goes on')")
        copy.reaches(root)


def test_nothing_is_held_for_rows_that_were_fetched(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    with Kept(tmp_path, root.node.port) as copy:
        copy.reaches(root)
        assert [held.name for held in root.node.held()] == ["replica-copy"]


def test_names_that_are_no_tables_are_told(stack: ExitStack, tmp_path: Path) -> None:
    root = Root(stack, tmp_path)
    with Kept(tmp_path, root.node.port, physrep_ignore="[main.uu, main.u]") as copy:
        wait_for(lambda: any("there is no table main.uu yet" in line for line in copy.said), 60)
        assert not any("no table main.u yet" in line for line in copy.said)
    with pytest.raises(TailraceError, match="names no schema"):
        Kept(tmp_path, root.node.port, physrep_ignore="[u]")


def test_a_backfill_ends_with_its_replica(tmp_path: Path) -> None:
    """Whoever holds its standard input is gone."""
    work = Thinning(str(tmp_path), "main.t", ("id",), 0, 0, (), str(tmp_path / "to"))
    process = subprocess.Popen([sys.executable, "-m", "tailrace.topology.thinning"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(work.encode().encode() + b"\n")
    process.stdin.close()
    assert process.wait(60) == 1
