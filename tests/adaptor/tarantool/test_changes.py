"""What happens to spaces: changed, emptied, altered, renamed, dropped and made again, with the log that tells it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.tarantool.options import TarantoolReaderOptions
from tailrace.adaptor.tarantool.types import Numbers
from tailrace.deliver.clearing import COMMAND
from tailrace.errors import TailraceError
from tailrace.message import Message, Op
from tests.adaptor.contract import messages, plain
from tests.servers.tarantool import TarantoolServer

MAKE = """
local s = box.schema.space.create('t', {format = {{'id', 'unsigned'}, {'name', 'string'}}})
s:create_index('pk')
s:insert{1, 'one'} s:insert{2, 'two', 'more'}
"""


class Following:
    """A reader that goes on where it was, as a pipeline does."""

    def __init__(self, address: str, log: Path, **options: Any) -> None:
        said = {"address": address, "log": str(log), "pipeline": "test", **options}
        self.options = TarantoolReaderOptions.model_validate(said)
        with closing(self.options.open()) as reader:
            reader.install(reader.tables())
            self.position: Any = plain(reader.position())

    def read(self, *, keep: bool = True) -> list[Message]:
        """What has changed since; `keep` says whether it got into the log."""
        with closing(self.options.open()) as reader:
            pieces = reader.plan_changes(self.position, reader.position())
            found = messages(batch for piece in pieces for batch in reader.read_changes(plain(piece)))
            if keep and reader.reached() is not None:
                self.position = {**self.position, **plain(reader.reached())}
        return found


@pytest.fixture
def following(tarantool: TarantoolServer, tmp_path: Path) -> Following:
    tarantool.run(MAKE)
    return Following(tarantool.address(), tmp_path)


def told(found: list[Message]) -> list[Any]:
    return [(message.op.name.lower(), message.namespace.removeprefix("box."), message.data) for message in found]


def test_updates_have_the_row_before_and_after(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run("box.space.t:update(2, {{'#', 3, 1}, {'=', 'name', 'zwei'}})")
    (message,) = following.read()
    assert message.op is Op.UPDATE
    assert message.before == {"id": 2, "name": "two", "field3": '"more"'}
    assert message.data == {"id": 2, "name": "zwei", "field3": None}


def test_what_did_not_get_into_the_log_is_told_again(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run("box.space.t:upsert({1, 'x', 5}, {{'!', 3, 5}}) box.space.t:delete(2)")
    once = following.read(keep=False)
    tarantool.run("box.space.t:update(1, {{'+', 3, 1}})")
    again = following.read()
    assert again[: len(once)] == once
    assert again[-1].data == {"id": 1, "name": "one", "field3": "6"}
    assert following.read() == []


def test_transactions_are_whole(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run(
        "box.begin() for i = 10, 14 do box.space.t:insert{i, 'x'} end box.commit() box.space.t:insert{20, 'y'}"
    )
    found = following.read()
    assert [len({m.tx for m in found}), len({m.tx for m in found[:5]})] == [2, 1]
    assert [message.lsn for message in found] == sorted(message.lsn for message in found)


def test_a_space_that_is_emptied(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run("box.space.t:insert{3, 'three'} box.space.t:truncate() box.space.t:insert{1, 'again'}")
    assert told(following.read()) == [
        ("insert", "t", {"id": 3, "name": "three"}),
        ("command", "t", COMMAND),
        ("insert", "t", {"id": 1, "name": "again"}),
    ]


def test_a_space_that_is_dropped_and_made_again(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run("box.space.t:drop()")
    assert following.read() == []
    tarantool.run(MAKE)
    assert [(op, data) for op, _, data in told(following.read())] == [
        ("command", COMMAND),
        ("insert", {"id": 1, "name": "one", "field3": None}),
        ("insert", {"id": 2, "name": "two", "field3": '"more"'}),
    ]


def test_a_space_that_is_renamed(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run("box.space.t:rename('u') box.space.u:delete(1)")
    assert [(op, name, data["id"]) for op, name, data in told(following.read())] == [
        ("insert", "u", 1),
        ("insert", "u", 2),
        ("delete", "u", 1),
    ]


def test_a_field_gets_a_name(tarantool: TarantoolServer, following: Following) -> None:
    """Rows that have something in it are told again; one that only future rows have is not."""
    tarantool.run(
        "box.space.t:format({{'id', 'unsigned'}, {'name', 'string'}, {'note', 'string', is_nullable = true}})"
    )
    assert told(following.read()) == [
        ("update", "t", {"id": 1, "name": "one", "note": None}),
        ("update", "t", {"id": 2, "name": "two", "note": "more"}),
    ]
    tarantool.run(
        "local f = box.space.t:format() table.insert(f, {name = 'last', type = 'any', is_nullable = true}) "
        "box.space.t:format(f)"
    )
    assert following.read() == []


def test_another_primary_key(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run("box.space.t.index.pk:alter({parts = {{'name', 'string'}}}) box.space.t:delete('one')")
    tarantool.run("box.space.t:update('two', {{'=', 1, 22}})")
    assert told(following.read())[-2:] == [
        ("delete", "t", {"id": 1, "name": "one", "field3": None}),
        ("update", "t", {"id": 22, "name": "two", "field3": '"more"'}),
    ]


@pytest.mark.parametrize("engine", ["memtx", "vinyl"])
def test_rows_that_are_found_by_another_index(tarantool: TarantoolServer, tmp_path: Path, engine: str) -> None:
    """Vinyl logs a delete with the key by which it was asked for, and both log what found nothing so."""
    tarantool.run(
        f"local s = box.schema.space.create('two', {{engine = '{engine}'}}) s:create_index('pk') "
        "s:create_index('other', {parts = {2, 'unsigned'}}) "
        "s:create_index('pair', {parts = {{3, 'string', is_nullable = true}, {2, 'unsigned'}}}) "
        "for i = 1, 5 do s:insert{i, 10 * i, 'w'} end s:insert{10, 1}"
    )
    following = Following(tarantool.address(), tmp_path)
    tarantool.run(
        "local s = box.space.two s.index.other:delete(10) s.index.other:delete(99) "
        "s.index.other:update(99, {{'=', 4, 1}}) "
        "s.index.other:update(20, {{'=', 2, 21}}) s.index.other:delete(20) s.index.other:delete(21) "
        "s.index.pair:delete({'w', 30}) s:replace{4, 44, 'v'} "
        "s.index.pair:delete({'w', 40}) s.index.pair:delete({'v', 44})"
    )
    gone = [message.data for message in following.read() if message.op is Op.DELETE]
    assert [row["field1"] for row in gone if row] == [1, 2, 3, 4]
    tarantool.run("local s = box.space.two s:truncate() s:insert{7, 50, 'w'} s.index.other:delete(50)")
    assert [message.op for message in following.read()] == [Op.COMMAND, Op.INSERT, Op.DELETE]


def test_keys_of_every_kind(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run(
        "local u, dec = require('uuid'), require('decimal') "
        "local function make(name, type, ...) local s = box.schema.space.create(name) "
        "s:create_index('pk', {parts = {1, type}}) for _, k in ipairs({...}) do s:insert{k, 0} end "
        "for _, k in ipairs({...}) do s:update({k}, {{'+', 2, 1}}) end "
        "for _, k in ipairs({...}) do s:delete(k) end end "
        "make('big', 'unsigned', 0, 18446744073709551615ULL) make('text', 'string', '', 'grüße') "
        "make('number', 'number', -1, 0.5, dec.new('1.25')) make('uuid', 'uuid', u.new()) "
        "make('truth', 'boolean', true, false) make('decimal', 'decimal', dec.new('12345678901234567890.5')) "
        "local ci = box.schema.space.create('ci') "
        "ci:create_index('pk', {parts = {{1, 'string', collation = 'unicode_ci'}}}) "
        "ci:insert{'Grüße', 1} ci:update('GRUSSE', {{'=', 2, 2}}) ci:delete('grüsse') "
        "local n = box.space.number n:insert{1, 'x'} n:update({dec.new(1)}, {{'=', 2, 'y'}}) n:delete(1)"
    )
    found = following.read()
    for name in ("big", "text", "number", "uuid", "truth", "decimal", "ci"):
        ops = [message.op for message in found if message.namespace == f"box.{name}"]
        assert ops.count(Op.INSERT) == ops.count(Op.UPDATE) == ops.count(Op.DELETE) > 0, name


def test_what_cannot_be_followed_is_left_out(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run(
        "box.schema.space.create('fleeting', {temporary = true}):create_index('pk') "
        "box.schema.space.create('own', {is_local = true}):create_index('pk') box.schema.space.create('keyless') "
        "box.space.own:insert{1} box.begin() box.space.t:insert{7, 'x'} box.space.own:insert{2} box.commit()"
    )
    with closing(following.options.open()) as reader:
        assert {name: why.split(",")[0] for name, why in reader.left_out().items()} == {
            "box.fleeting": "it is temporary",
            "box.own": "it is local to its server",
            "box.keyless": "it has no primary index",
        }
    assert told(following.read()) == [("insert", "t", {"id": 7, "name": "x"})]


def test_a_value_that_has_no_place(tarantool: TarantoolServer, following: Following) -> None:
    tarantool.run(
        "local s = box.schema.space.create('n', {format = {{'id', 'unsigned'}, {'x', 'number'}}}) s:create_index('pk') "
        "s:insert{1, 18446744073709551615ULL}"
    )
    with pytest.raises(TailraceError, match=r"column x of box\.n.*numbers: text"):
        following.read(keep=False)
    following.options = following.options.model_copy(update={"numbers": Numbers.TEXT})
    assert following.read()[-1].data == {"id": 1, "x": "18446744073709551615"}


class TestServersThatEnd:
    @pytest.fixture
    def server(self, own_server: TarantoolServer) -> Iterator[TarantoolServer]:
        own_server.run(MAKE)
        yield own_server

    def test_it_starts_again(self, server: TarantoolServer, tmp_path: Path) -> None:
        following = Following(server.address(), tmp_path)
        server.run("box.space.t:insert{3, 'three'}")
        server.kill()
        with pytest.raises(TailraceError) as failed:
            following.read()
        assert failed.value.code == "source.unreachable"
        server.start()
        server.run("box.space.t:update(3, {{'=', 2, 'drei'}})")
        assert [message.data for message in following.read()] == [
            {"id": 3, "name": "three"},
            {"id": 3, "name": "drei"},
        ]

    def test_its_log_is_gone(self, server: TarantoolServer, tmp_path: Path) -> None:
        following = Following(server.address(), tmp_path)
        self.rotate(server, 3)
        for _ in range(2):
            with closing(following.options.open()) as reader, pytest.raises(TailraceError) as failed:
                reader.check(following.position)
            assert failed.value.code == "source.position_lost"
            assert "replica: registered" in failed.value.hint
            server.run("box.space.t:auto_increment{'a log begins'}")
        assert "Missing .xlog" in failed.value.what

    def test_a_registered_replica_holds_it(self, server: TarantoolServer, tmp_path: Path) -> None:
        following = Following(server.address(), tmp_path, replica="registered")
        self.rotate(server, 3)
        held = len(list(server.directory.glob("*.xlog")))
        assert len(following.read()) == 3
        with closing(following.options.open()) as reader:
            reader.forget(following.position)
            self.rotate(server, 1)
            server.await_true(f"#require('fio').glob('{server.directory}/*.xlog') < {held}")
        assert len(following.read()) == 1
        with closing(following.options.open()) as reader:
            reader.uninstall()
        assert server.run("return box.space._cluster:len()") == 1

    def test_another_server(self, server: TarantoolServer, tmp_path: Path) -> None:
        following = Following(server.address(), tmp_path)
        other = {**following.position, "cluster": "0" * 8}
        with closing(following.options.open()) as reader, pytest.raises(TailraceError, match="another replica set"):
            reader.check(other)
        ahead = {**following.position, "vclock": {"1": 10_000}}
        with closing(following.options.open()) as reader, pytest.raises(TailraceError, match="cannot be read on"):
            reader.check(ahead)

    def rotate(self, server: TarantoolServer, times: int) -> None:
        """Each snapshot ends a file of the log; all but the last two are removed, unless somebody needs them."""
        server.run("box.cfg{checkpoint_count = 1}")
        for _ in range(times):
            server.run("box.space.t:auto_increment{'x'} box.snapshot()")
