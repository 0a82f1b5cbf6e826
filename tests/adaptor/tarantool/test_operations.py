"""Operations do what the server does: the same updates and upserts there and here give the same tuples."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.tarantool.catalog import Part
from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.image import open_image
from tailrace.adaptor.tarantool.operations import Impossible, updated, upserted
from tests.adaptor.tarantool.spaces import TarantoolSource, lua
from tests.servers.tarantool import TarantoolServer

MAKE = """
local fields = {{'id', 'unsigned'}, {'n', 'integer'}, {'name', 'string'}}
local s = box.schema.space.create('ops', {engine = '%s', format = fields})
s:create_index('pk')
dec = require('decimal')
for i = 1, 20 do s:insert{i, i, 'text ' .. i, i / 8, {1, {a = i, b = {'x', 'y'}}, 3}, dec.new(i) / 4, {k = i}, true} end
"""


def some_value(chance: random.Random) -> str:
    return chance.choice(
        [
            *("0", "1", "-1", "7.25", "18446744073709551615ULL", "-9223372036854775808LL", "2^53", "255", "1e300"),
            *(
                "'x'",
                "'grüße'",
                "''",
                "true",
                "box.NULL",
                "dec.new('1.50')",
                "dec.new('-123456789012345678901234567890')",
            ),
            *("{1, 2}", "{k = 1}"),
        ]
    )


PLACES = [*map(str, range(-9, 11)), *map(str, (2, 2, 3, 3, 4, 4, 6, 6)), "'n'", "'name'", "'nothing'"]
PATHS = [
    *("'[5][1]'", "'[5][2].a'", "'[5][2].b[1]'", "'[5][2].b[3]'", "'[5][2].c'", "'[7].k'", "'[7].z'", "'[4]'"),
    *("'[5][2][\"a\"]'", "'n.x'", "'[9]'"),
]


def some_operation(chance: random.Random, fields: list[str]) -> str:
    op = chance.choice("==+++--&|^:::!!##")
    if op == ":":
        paste = chance.choice(["'+'", "''", "'grüße'"])
        return f"{{':', {chance.choice(fields)}, {chance.randint(-9, 9)}, {chance.randint(-5, 5)}, {paste}}}"
    if op == "#":
        return f"{{'#', {chance.choice(fields)}, {chance.choice([1, 1, 2, 100])}}}"
    if op in "&|^":
        return (
            f"{{'{op}', {chance.choice([*map(str, (2, 2, 4)), chance.choice(fields)])}, {chance.choice([0, 1, 255])}}}"
        )
    return f"{{'{op}', {chance.choice(fields)}, {some_value(chance)}}}"


def some_write(chance: random.Random, engine: str) -> str:
    """One update or upsert. A server of 2.6.0 dies of several ways into one tuple at a time, and of one in an upsert;
    its vinyl loses rows by upserts that leave too few fields."""
    key = chance.randint(1, 25)
    if chance.random() < 0.3:
        return f"pcall(s.update, s, {key}, {{{some_operation(chance, PATHS)}}})"
    is_upsert = chance.random() < 0.5
    places = ["2", "4", "6", "'n'", "8", "-1"] if is_upsert and engine == "vinyl" else PLACES
    made = [some_operation(chance, places) for _ in range(chance.randint(1, 3))]
    operations = ", ".join(each for each in made if engine == "memtx" or not (is_upsert and each[2] in "#!"))
    if not is_upsert:
        return f"pcall(s.update, s, {key}, {{{operations}}})"
    return f"pcall(s.upsert, s, {{{key}, 0, 'up', 0.5, {{1, {{a = 1, b = {{}}}}}}, dec.new(1)}}, {{{operations}}})"


@pytest.mark.parametrize("engine", ["memtx", "vinyl"])
def test_as_the_server_does_it(
    tarantool: TarantoolServer, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    tarantool.run(MAKE % engine)
    source = TarantoolSource(str(tarantool.directory), tarantool.address(), str(tmp_path))
    reader = source.options().open()
    request.addfinalizer(reader.close)
    reader.install(reader.tables())
    position: Any = reader.position()
    chance = random.Random(engine)
    for _ in range(20):
        writes = [some_write(chance, engine) for _ in range(60)]
        tarantool.run(f"local s = box.space.ops local dec = require('decimal') {' '.join(writes)}")
        end = reader.position()
        for piece in reader.plan_changes(position, end):
            for _batch in reader.read_changes({**piece, "namespaces": []}):
                pass
        position = {**position, **end}
        image = open_image(str(tmp_path))
        assert image is not None
        with image, Connection(source.options().server()) as connection:
            space = tarantool.run("return box.space.ops.id")
            image.ready(space, (Part(0, "unsigned"),))
            theirs = {row[0]: row for row in connection.select(space, [])}
            ours = {row[0]: row for row in image.rows(space)}
        differing = {
            key: (theirs.get(key), ours.get(key))
            for key in theirs.keys() | ours.keys()
            if theirs.get(key) != ours.get(key)
        }
        assert differing == {}, "\n".join(
            write for write in writes if any(f" {key}, " in write or f"{{{key}, " in write for key in differing)
        )


def test_an_impossible_operation_stops_an_update_and_not_an_upsert() -> None:
    operations = [["+", 1, 1], ["+", 2, 1], ["=", 1, "x"]]
    with pytest.raises(Impossible):
        updated([1, 1, "text"], operations, 0, ())
    assert upserted([1, 1, "text"], operations, 0, ()) == [1, "x", "text"]


def test_numbers_stay_in_their_range() -> None:
    assert updated([1, 2**63], [["+", 1, 2**63 - 1]], 0, ()) == [1, 2**64 - 1]
    with pytest.raises(Impossible):
        updated([1, 2**63], [["+", 1, 2**63]], 0, ())
    assert lua(None) == "box.NULL"
