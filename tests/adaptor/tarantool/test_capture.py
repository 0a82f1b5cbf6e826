"""A Tarantool read into a log by runs that end and fail in the middle: the log leads to what the server has."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.tarantool.image import FILE
from tailrace.adaptor.tarantool.options import TarantoolReaderOptions
from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog
from tailrace.message import Op
from tailrace.source import capture as capturing
from tailrace.source.capture import Capture
from tests.adaptor.capturing import messages_in, run_here
from tests.adaptor.contract import plain
from tests.servers.tarantool import TarantoolServer

MAKE = """
for _, name in ipairs({'a', 'b'}) do
    local s = box.schema.space.create(name, {format = {{'id', 'unsigned'}, {'n', 'integer'}}})
    s:create_index('pk')
    for i = 1, 100 do s:insert{i, 0} end
end
"""


@contextmanager
def captured(server: TarantoolServer, log: Path, run: Any = run_here, namespace: str = ".") -> Iterator[Capture]:
    """A run of the pipeline's first half, whose turns copy a few pieces each."""
    with CommitLog.open(log) as opened:
        said = {"address": server.address(), "log": str(log), "pipeline": "test", "piece_rows": 20}
        source = TarantoolReaderOptions.model_validate(said)
        stop, pattern = threading.Event(), re.compile(namespace)
        reading = Capture(source, pattern, opened, run, stop=stop, report=lambda _: None, once=True, parallel=1)
        try:
            reading.open()
            yield reading
        finally:
            reading.close()


def replayed(log: Path, namespace: str) -> dict[int, Any]:
    """What the log leads to."""
    state: dict[int, Any] = {}
    for message in messages_in(log):
        if message.namespace != namespace or message.op is Op.NOOP:
            continue
        if message.op is Op.COMMAND:
            state.clear()
            continue
        assert message.data is not None
        if message.op is Op.DELETE:
            state.pop(message.data["id"])
        else:
            if message.op is Op.UPDATE and message.before is not None:
                assert state[message.data["id"]] == message.before["n"]
            state[message.data["id"]] = message.data["n"]
    return state


def there(server: TarantoolServer, name: str) -> dict[int, Any]:
    return {row[0]: row[1] for row in server.run(f"return box.space.{name}:select()")}


def some_writes(chance: random.Random) -> str:
    """Counters that count, rows that come and go, now and then a space that is emptied."""
    writes = []
    for _ in range(30):
        name, id_ = chance.choice("ab"), chance.randint(1, 120)
        writes.append(
            chance.choice(
                [
                    f"box.space.{name}:update({id_}, {{{{'+', 2, 1}}}})",
                    f"box.space.{name}:upsert({{{id_}, 1}}, {{{{'+', 2, 10}}}})",
                    f"box.space.{name}:delete({id_})",
                    f"box.space.{name}:replace{{{id_}, -1}}",
                ]
            )
        )
    if chance.random() < 0.1:
        writes.append(f"box.space.{chance.choice('ab')}:truncate()")
    return " ".join(writes)


def failing(chance: random.Random) -> Callable[[Any, list[Any]], Any]:
    """Tasks after which the driver is sometimes gone before it appends what they did."""

    def run(work: Any, items: list[Any]) -> Any:
        done = run_here(work, items)
        if chance.random() < 0.3:
            raise TailraceError("source.unreachable", "the driver ends here", hint="")
        return done

    return run


@pytest.mark.parametrize("seed", range(3))
def test_runs_that_fail(tarantool: TarantoolServer, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "DISCOVER_EVERY_S", 0.0)
    tarantool.run(MAKE)
    chance = random.Random(seed)
    for _ in range(15):
        try:
            with captured(tarantool, tmp_path, failing(chance)) as reading:
                for _ in range(3):
                    tarantool.run(some_writes(chance))
                    reading.turn()
        except TailraceError as error:
            assert error.what == "the driver ends here"
    with captured(tarantool, tmp_path) as reading:
        while reading.turn():
            pass
    for name in "ab":
        assert replayed(tmp_path, f"box.{name}") == there(tarantool, name)


def test_a_space_that_is_wanted_later(tarantool: TarantoolServer, tmp_path: Path) -> None:
    tarantool.run(MAKE)
    with captured(tarantool, tmp_path, namespace="a") as reading:
        while reading.turn():
            tarantool.run("box.space.b:update(1, {{'+', 2, 1}})") if reading.stats.groups < 3 else None
    assert replayed(tmp_path, "box.b") == {}
    tarantool.run("box.space.b:update(2, {{'+', 2, 5}})")
    with captured(tarantool, tmp_path) as reading:
        while reading.turn():
            pass
    assert replayed(tmp_path, "box.b") == there(tarantool, "b")


def test_a_piece_that_is_left_in_the_middle_changes_nothing(tarantool: TarantoolServer, tmp_path: Path) -> None:
    tarantool.run(MAKE)
    said = {"address": tarantool.address(), "log": str(tmp_path), "pipeline": "test"}
    options = TarantoolReaderOptions.model_validate(said)
    with closing(options.open()) as reader:
        reader.install(reader.tables())
        start = plain(reader.position())
        tarantool.run(
            "for i = 1000, 31000 do if i % 1000 == 0 then box.begin() end box.space.a:insert{i, 1} "
            "if i % 1000 == 999 or i == 31000 then box.commit() end end box.space.a:update(1, {{'+', 2, 1}})"
        )
        (piece,) = reader.plan_changes(start, reader.position())
        left = reader.read_changes(piece)
        assert len(next(iter(left))) == 10_000
        del left
        whole = [len(batch) for batch in reader.read_changes(piece)]
    assert sum(whole) == 30_002


def test_an_image_that_is_gone(tarantool: TarantoolServer, tmp_path: Path) -> None:
    tarantool.run(MAKE)
    with captured(tarantool, tmp_path) as reading:
        while reading.turn():
            pass
    (tmp_path / FILE).unlink()
    with pytest.raises(TailraceError, match="image") as failed, captured(tarantool, tmp_path):
        pass
    assert failed.value.code == "source.position_lost"


def test_an_image_that_is_older(tarantool: TarantoolServer, tmp_path: Path) -> None:
    """One that was put back from a backup, with the log left as it is, catches up by itself."""
    tarantool.run(MAKE)
    with captured(tarantool, tmp_path) as reading:
        while reading.turn():
            pass
    old = (tmp_path / FILE).read_bytes()
    for _ in range(2):
        tarantool.run("box.space.a:update(1, {{'+', 2, 1}})")
        with captured(tarantool, tmp_path) as reading:
            while reading.turn():
                pass
    (tmp_path / FILE).write_bytes(old)
    tarantool.run("box.space.a:update(1, {{'+', 2, 1}})")
    with captured(tarantool, tmp_path) as reading:
        while reading.turn():
            pass
    assert replayed(tmp_path, "box.a") == there(tarantool, "a")
