"""Keys that no other node makes, however they are made."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.sync import ids
from tailrace.sync.database import Database, open_database
from tailrace.sync.entity import Entity
from tailrace.sync.ids import KeyMaker, KeyParts, add_key_function, decode, encode
from tailrace.sync.keysql import EPOCH_S
from tailrace.sync.names import Dialect
from tailrace.sync.store import SyncStore

TODO = 42
NOTE = 43
ENTITIES = (
    Entity("todo", TODO, "changed", generate_key=True),
    Entity("note", NOTE, "changed", generate_key=True),
)


class FakeTime:
    """A clock that goes on only while somebody waits."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.waits: list[float] = []

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def store(address: str) -> Iterator[SyncStore]:
    database = open_database(address)
    yield installed(database)
    database.close()


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    path = tmp_path / "node.db"
    with closing(open_database(str(path))) as database:
        installed(database)
    return path


def installed(database: Database) -> SyncStore:
    for table in ("todo", "note"):
        kind = "bigint" if database.dialect is Dialect.POSTGRES else "INTEGER"
        made = f"CREATE TABLE {table}(id {kind} PRIMARY KEY, title text, changed {kind} NOT NULL DEFAULT 0)"
        database.write(lambda link, made=made: link.run(made))  # type: ignore[misc]
    return SyncStore.install(database, ENTITIES)


def second_now() -> int:
    return int(time.time()) - EPOCH_S


def ask(store: SyncStore, query: str) -> list[tuple[Any, ...]]:
    return store.database.read(lambda link: link.rows(query))


def run(store: SyncStore, statement: str) -> None:
    store.database.write(lambda link: link.run(statement))


def number_so_far(store: SyncStore, second: int, sequence: int) -> None:
    """Let the numbering of `todo` be where it would be if these numbers had been given out."""
    if store.database.dialect is Dialect.POSTGRES:
        ask_write = f"SELECT setval('door_{TODO}_keys', {second << 20 | sequence})"
        store.database.write(lambda link: link.rows(ask_write))
    else:
        run(store, f"UPDATE DoorKey SET lastTick = {second << 12 | sequence} WHERE tableId = {TODO}")


@given(
    st.builds(KeyParts, st.integers(0, ids.SECOND_MAX), st.integers(0, ids.NODE_MAX), st.integers(0, ids.SEQUENCE_MAX))
)
def test_a_key_says_what_it_is_made_of(parts: KeyParts) -> None:
    key = encode(parts)
    assert 0 <= key < 1 << 63
    assert decode(key) == parts


@given(st.integers(0, (1 << 63) - 1))
def test_every_number_of_63_bits_is_a_key(key: int) -> None:
    assert encode(decode(key)) == key


@pytest.mark.parametrize(
    "parts", [KeyParts(-1, 0, 0), KeyParts(1 << 31, 0, 0), KeyParts(0, 1 << 20, 0), KeyParts(0, 0, 4096)]
)
def test_parts_that_have_no_room_are_refused(parts: KeyParts) -> None:
    with pytest.raises(TailraceError):
        encode(parts)


@pytest.mark.parametrize("key", [-1, 1 << 63])
def test_what_is_no_key_is_refused(key: int) -> None:
    with pytest.raises(TailraceError):
        decode(key)


def test_ten_thousand_keys_of_one_thread_are_different(store: SyncStore) -> None:
    maker = KeyMaker(store.database)
    before = second_now()
    keys = [maker.next(TODO) for _ in range(10_000)]
    parts = [decode(key) for key in keys]
    assert len(set(keys)) == len(keys) and keys == sorted(keys)
    assert {each.node for each in parts} == {store.key_node}
    assert before <= parts[0].second and parts[-1].second <= second_now()


def test_keys_of_several_threads_are_different(store: SyncStore) -> None:
    maker = KeyMaker(store.database)
    with ThreadPoolExecutor(4) as pool:
        keys = list(pool.map(lambda _: maker.next(TODO), range(10_000)))
    assert len(set(keys)) == len(keys)


def test_makers_of_several_connections_share_one_numbering(store: SyncStore) -> None:
    makers = [KeyMaker(store.database) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda maker: [maker.next(TODO) for _ in range(2_500)], makers)
        keys = [key for part in found for key in part]
    assert len(keys) == len(set(keys)) == 10_000


def test_keys_of_several_processes_are_different(store: SyncStore, address: str) -> None:
    program = (
        "import sys\n"
        "from tailrace.sync.database import open_database\n"
        "from tailrace.sync.ids import KeyMaker\n"
        "maker = KeyMaker(open_database(sys.stdin.readline().strip()))\n"
        f"print(*(maker.next({TODO}) for _ in range(1500)))\n"
    )
    command = [sys.executable, "-c", program]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = []
    with ThreadPoolExecutor(3) as pool:
        said = list(pool.map(lambda process: process.communicate(address + "\n", timeout=120)[0], started))
    assert [process.returncode for process in started] == [0, 0, 0]
    keys = [int(word) for text in said for word in text.split()]
    assert len(keys) == len(set(keys)) == 4_500


def test_tables_have_numberings_of_their_own(store: SyncStore) -> None:
    maker = KeyMaker(store.database)
    number_so_far(store, second_now() + 3600, 7)
    assert decode(maker.next(TODO)).sequence == 8
    assert decode(maker.next(NOTE)).second <= second_now()


def test_a_clock_that_is_set_back_repeats_nothing_and_makes_nobody_wait(store: SyncStore) -> None:
    """To the numbering a clock that was set back is one that is behind what was given out."""
    ahead = second_now() + 3600
    number_so_far(store, ahead, 4_000)
    keys = KeyMaker(store.database).take(TODO, 5_000)
    assert len(set(keys)) == 5_000
    assert decode(keys[0]) == KeyParts(ahead, store.key_node, 4_001)
    assert {decode(key).second for key in keys} == {ahead, ahead + 1, ahead + 2}


def test_a_numbering_that_is_set_back_repeats_nothing_a_second_later(sqlite_path: Path) -> None:
    """As with a backup that is restored."""
    with closing(open_database(str(sqlite_path))) as database:
        time_ = FakeTime(EPOCH_S + 1000.0)
        maker = KeyMaker(database, time_.clock, time_.wait)
        maker.take(TODO, 10)
        backup = database.read(lambda link: link.rows("SELECT * FROM DoorKey"))
        lost = maker.take(TODO, 5000)
        database.write(lambda link: link.run("DELETE FROM DoorKey"))
        marks = ", ".join("?" * len(backup[0]))
        database.write(lambda link: link.run_many(f"INSERT INTO DoorKey VALUES ({marks})", backup))
        time_.now += 1
        assert not {*lost} & {*maker.take(TODO, 5000)}


def test_who_wants_more_than_a_second_has_waits_for_the_next(store: SyncStore) -> None:
    keys = KeyMaker(store.database).take(TODO, 5_000)
    assert len(set(keys)) == 5_000
    assert decode(keys[-1]).second <= second_now(), "no key is from a second that has not come"
    assert len({decode(key).second for key in keys}) > 1


def test_numbers_go_on_after_a_restart(store: SyncStore, address: str) -> None:
    ahead = second_now() + 3600  # so that only what was kept can tell
    number_so_far(store, ahead, 10)
    before = [KeyMaker(store.database).next(TODO) for _ in range(3)]
    store.close()
    with closing(open_database(address)) as again:
        after = [KeyMaker(again).next(TODO) for _ in range(3)]
    assert len({*before, *after}) == 6
    assert min(after) > max(before)


def test_a_table_that_is_no_entity_has_no_keys(store: SyncStore) -> None:
    with pytest.raises(TailraceError) as error:
        KeyMaker(store.database).next(99)
    assert error.value.code == "sync.unknown_table"


def test_a_used_up_second_is_waited_out_to_its_end(sqlite_path: Path) -> None:
    at = FakeTime(EPOCH_S + 1000.25)
    with closing(open_database(str(sqlite_path))) as database:
        maker = KeyMaker(database, at.clock, at.wait)
        assert {decode(key).second for key in maker.take(TODO, 4096)} == {1000}
        assert at.waits == []
        assert decode(maker.next(TODO))[::2] == (1001, 0)
        assert at.waits == [0.75]


def test_a_clock_that_is_set_back_while_somebody_waits(sqlite_path: Path) -> None:
    at = FakeTime(EPOCH_S + 5000.5)

    def step_back(_: float) -> None:
        at.now -= 3600

    with closing(open_database(str(sqlite_path))) as database:
        maker = KeyMaker(database, at.clock, step_back)
        keys = maker.take(TODO, 4097)
    assert len(set(keys)) == 4097
    assert decode(keys[-1])[::2] == (5001, 0)


def test_keys_that_were_taken_ahead_are_not_given_out_late(sqlite_path: Path) -> None:
    at = FakeTime(EPOCH_S + 1000.0)
    with closing(open_database(str(sqlite_path))) as database:
        maker = KeyMaker(database, at.clock, at.wait)
        for _ in range(4):
            maker.next(TODO)
        at.now += 60
        assert decode(maker.next(TODO)).second == 1060


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("clock"), st.integers(-7200, 7200)),
        st.tuples(st.just("maker"), st.integers(1, 5000)),
        st.tuples(st.just("next"), st.integers(1, 20)),
        st.tuples(st.just("function"), st.integers(1, 20)),
        st.tuples(st.just("trigger"), st.integers(1, 20)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example([("next", 3), ("clock", -3600), ("next", 3), ("restart", 0), ("clock", 3600), ("next", 3)])
@example([("maker", 4096), ("trigger", 2), ("function", 2), ("clock", -1), ("maker", 5000), ("next", 9)])
@given(STEPS)
def test_no_key_comes_twice_whatever_happens(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """All ways to make keys, in any order, with a clock that jumps and programs that end."""
    path = tmp_path_factory.mktemp("keys") / "node.db"
    at, made = FakeTime(time.time()), list[int]()
    with ExitStack() as stack:
        database = stack.enter_context(closing(open_database(str(path))))
        installed(database)
        maker = KeyMaker(database, at.clock, at.wait)
        connection = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
        add_key_function(connection, at.clock, at.wait)
        for kind, number in steps:
            match kind:
                case "clock":
                    at.now += number
                case "maker":
                    made += maker.take(TODO, number)
                case "next":
                    made += [maker.next(TODO) for _ in range(number)]
                case "function":
                    made += [connection.execute(f"SELECT door_next_key({TODO})").fetchone()[0] for _ in range(number)]
                case "trigger":
                    connection.executemany("INSERT INTO todo(id) VALUES (0)", [()] * number)
                case "restart":
                    maker = KeyMaker(database, at.clock, at.wait)
        made += [key for (key,) in connection.execute("SELECT id FROM todo")]
    assert len(set(made)) == len(made)


def test_rows_without_a_key_get_one_and_are_noticed_under_it(store: SyncStore) -> None:
    for number in range(3):
        run(store, f"INSERT INTO todo(id, title) VALUES (0, 'task {number}')")
    run(store, "INSERT INTO todo(id, title) VALUES (7, 'with a key')")
    keys = [key for (key,) in ask(store, "SELECT id FROM todo ORDER BY id")]
    assert keys[0] == 7 and {decode(key).node for key in keys[1:]} == {store.key_node}
    assert ask(store, "SELECT title FROM todo ORDER BY id")[1:] == [("task 0",), ("task 1",), ("task 2",)]
    stamped = [key for (key,) in ask(store, "SELECT stEntityPrimaryKey FROM todoStamp ORDER BY 1")]
    lines = ask(store, "SELECT chEntityPk, chType FROM ChangeLog ORDER BY chId")
    assert stamped == keys
    assert [(int(key), kind) for key, kind in lines] == [(key, 1) for key in (*keys[1:], 7)]
    versions = ask(store, "SELECT t.changed - s.stTime FROM todo t JOIN todoStamp s ON t.id = s.stEntityPrimaryKey")
    assert versions == [(0,)] * 4


def test_triggers_and_makers_share_one_numbering(store: SyncStore) -> None:
    maker = KeyMaker(store.database)
    keys = []
    for _ in range(20):
        keys.append(maker.next(TODO))
        run(store, "INSERT INTO todo(id) VALUES (0)")
    rows = [key for (key,) in ask(store, "SELECT id FROM todo")]
    assert len({*keys, *rows}) == 40


def test_a_row_of_another_node_keeps_the_key_0(store: SyncStore) -> None:
    from tailrace.sync.exchange import RowBatch

    store.meet(5, rel=2)
    store.receive(TODO, 5, RowBatch(("id", "title", "changed"), [(0, "theirs", 1000, 1000, 5, False, 1000)]))
    assert ask(store, "SELECT id, title, changed FROM todo") == [(0, "theirs", 1000)]


def test_a_row_that_moves_is_still_buried_under_its_old_key(store: SyncStore) -> None:
    run(store, "INSERT INTO todo(id) VALUES (7)")
    run(store, "UPDATE todo SET id = 8 WHERE id = 7")
    assert [
        (int(key), bool(gone))
        for key, gone in ask(store, "SELECT stEntityPrimaryKey, stDeleted FROM todoStamp ORDER BY 1")
    ] == [(7, True), (8, False)]


def test_uninstalling_one_table_forgets_no_number_of_it(store: SyncStore) -> None:
    from tailrace.sync import install

    number_so_far(store, second_now() + 3600, 10)
    dialect = store.database.dialect
    store.database.write(lambda link: install.uninstall(link, ENTITIES[:1], dialect))
    run(store, "INSERT INTO todo(id) VALUES (0)")
    assert ask(store, "SELECT id FROM todo") == [(0,)], "nothing of it is left"
    run(store, "DELETE FROM todo")
    again = SyncStore.install(store.database, ENTITIES)
    assert decode(KeyMaker(again.database).next(TODO)).second > second_now() + 1800
    store.database.write(lambda link: install.uninstall(link, ENTITIES, dialect))
    left = (
        "SELECT name FROM sqlite_master WHERE name LIKE 'door%' OR name LIKE '%Replicate' OR type = 'trigger'"
        if dialect is Dialect.SQLITE
        else """SELECT relname FROM pg_class WHERE relname LIKE 'door%'
            UNION SELECT proname FROM pg_proc WHERE proname LIKE 'door%'"""
    )
    assert ask(store, left) == []


def test_sqlite_goes_on_into_the_next_second_where_it_cannot_wait(sqlite_path: Path) -> None:
    """A trigger of plain SQLite; the connection knows nothing of Python."""
    with closing(sqlite3.connect(sqlite_path)) as connection:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO todo(id, title) VALUES (0, ?)", [(str(n),) for n in range(10_000)])
        connection.execute("COMMIT")
        keys = [key for (key,) in connection.execute("SELECT id FROM todo ORDER BY id")]
    assert len(set(keys)) == 10_000


def test_sqlite_says_which_key_was_made_last(sqlite_path: Path) -> None:
    with closing(sqlite3.connect(sqlite_path)) as connection, connection:
        connection.execute("INSERT INTO todo(id, title) VALUES (0, 'one')")
        (said,) = connection.execute("SELECT lastKey FROM DoorLastKey WHERE tableId = ?", (TODO,)).fetchone()
        assert connection.execute("SELECT title FROM todo WHERE id = ?", (said,)).fetchall() == [("one",)]


@pytest.mark.parametrize("columns", ["(title) VALUES ('x')", "(id, title) VALUES (NULL, 'x')"])
def test_sqlite_would_give_a_row_without_a_key_that_of_somebody_else(sqlite_path: Path, columns: str) -> None:
    with closing(sqlite3.connect(sqlite_path)) as connection:
        with pytest.raises(sqlite3.IntegrityError, match="insert the key 0"):
            connection.execute(f"INSERT INTO todo{columns}")
        assert connection.execute("SELECT count(*) FROM todo").fetchone() == (0,)


def test_replacing_rows_of_sqlite_take_keys_too(sqlite_path: Path) -> None:
    with closing(sqlite3.connect(sqlite_path)) as connection, connection:
        for title in ("one", "two"):
            connection.execute("INSERT OR REPLACE INTO todo(id, title) VALUES (0, ?)", (title,))
        assert connection.execute("SELECT title FROM todo ORDER BY id").fetchall() == [("one",), ("two",)]


@pytest.mark.parametrize("isolation", ["", None, "IMMEDIATE"])
def test_a_connection_to_sqlite_has_the_function(sqlite_path: Path, isolation: Any) -> None:
    with closing(sqlite3.connect(sqlite_path, isolation_level=isolation)) as connection:
        connection.row_factory = sqlite3.Row
        add_key_function(connection)
        (first,) = connection.execute("SELECT door_next_key(42)").fetchone()
        assert not connection.in_transaction, "a question opens no transaction"
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO todo(id, title) VALUES (door_next_key(42), ?)", [("a",), ("b",)])
        connection.execute("INSERT INTO todo(id, title) VALUES (0, 'c')")
        connection.execute("COMMIT")
        keys = [row["id"] for row in connection.execute("SELECT id FROM todo")]
    assert len({first, *keys}) == 4


def test_the_function_of_a_connection_waits(sqlite_path: Path) -> None:
    at = FakeTime(EPOCH_S + 1000.5)
    with closing(sqlite3.connect(sqlite_path)) as connection:
        add_key_function(connection, at.clock, at.wait)
        numbers = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 4100)"
        keys = [key for (key,) in connection.execute(f"{numbers} SELECT door_next_key(42) FROM n")]
    assert len(set(keys)) == 4100
    assert at.waits == [0.5]


def test_postgres_makes_keys_without_serialising_transactions(postgres_address: str) -> None:
    """Who inserts waits for nobody that has inserted and not committed, a second later too."""
    with closing(open_database(postgres_address)) as database:
        installed(database)
    insert = "INSERT INTO todo(title) VALUES (%s) RETURNING id"
    with psycopg.connect(postgres_address) as one, psycopg.connect(postgres_address) as other:
        other.execute("SET lock_timeout = '10s'")
        keys = [one.execute(insert, ("first",)).fetchone(), other.execute(insert, ("second",)).fetchone()]
        one.execute("SELECT pg_sleep(1.1)")
        keys += [one.execute(insert, ("third",)).fetchone(), other.execute(insert, ("fourth",)).fetchone()]
        other.commit()
        one.commit()
        found = one.execute("SELECT count(*) FROM todo").fetchone()
    assert found == (4,) and len(set(keys)) == 4


def test_postgres_takes_0_and_nothing_for_no_key(postgres_address: str) -> None:
    with closing(open_database(postgres_address)) as database:
        installed(database)
    with psycopg.connect(postgres_address) as connection:
        for values in ("(id, title) VALUES (0, 'x')", "(title) VALUES ('y')", "(id, title) VALUES (NULL, 'z')"):
            row = connection.execute(f"INSERT INTO todo{values} RETURNING id").fetchone()
            assert row is not None and row[0] > 1 << 32


def test_postgres_needs_room_for_64_bits(postgres_address: str) -> None:
    with closing(open_database(postgres_address)) as database:
        database.write(lambda link: link.run("CREATE TABLE todo(id integer PRIMARY KEY, changed bigint)"))
        with pytest.raises(TailraceError, match="bigint"):
            SyncStore.install(database, ENTITIES[:1])


def test_many_connections_of_postgres_at_once(postgres_address: str) -> None:
    """They meet where a second ends and its numbers are used up."""
    with closing(open_database(postgres_address)) as database:
        installed(database)

    def insert(_: int) -> None:
        with psycopg.connect(postgres_address) as connection:
            for _ in range(10):
                connection.execute("INSERT INTO todo(title) SELECT 'x' FROM generate_series(1, 250)")
                connection.commit()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(insert, range(4)))
    with psycopg.connect(postgres_address) as connection:
        assert connection.execute("SELECT count(DISTINCT id) FROM todo").fetchone() == (10_000,)
