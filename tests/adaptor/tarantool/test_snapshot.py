"""A snapshot in pieces of any size: every row comes into the image, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from tailrace.adaptor.tarantool import frames, iproto, snapshot
from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.image import new_image
from tailrace.adaptor.tarantool.iproto import Head, Key, Packet, Type, packed
from tailrace.adaptor.tarantool.options import TarantoolReaderOptions
from tests.servers.tarantool import TarantoolServer

SPACES = (512, 513)
ROWS = 300


class Pieces:
    """What a server sends, so many bytes at a time."""

    def __init__(self, size: int) -> None:
        rows = [frames.row_frame(space, packed([n, "x" * (n % 40)])) for space in SPACES for n in range(ROWS)]
        sent = b"".join([*rows, iproto.encode({Head.TYPE: int(Type.OK), Head.SYNC: 1}, {})])
        self._pieces = (sent[at : at + size] for at in range(0, len(sent), size))

    def ask(self, _type: Type, _body: Mapping[int, Any] | None = None) -> Packet:
        return Packet({int(Head.TYPE): int(Type.OK)}, {int(Key.VCLOCK): {1: 7}})

    def receive_much(self, _bytes_max: int) -> bytes:
        return next(self._pieces)


@pytest.mark.parametrize("size", [5, 23, 200, 700, 2000, 1 << 20])
@pytest.mark.parametrize("chunk_rows", [1, 20, 1000])
def test_every_row_is_in_the_image(tmp_path: Path, size: int, chunk_rows: int) -> None:
    with new_image(str(tmp_path), "0" * 36) as image:
        assert snapshot.fetch(cast(Connection, Pieces(size)), image, chunk_rows) == {1: 7}
        for space in SPACES:
            found = list(numbers(image.chunk(space, number) for number, _ in image.chunks(space)))
            assert found == list(range(ROWS))
            assert sum(rows for _, rows in image.chunks(space)) == ROWS


def numbers(chunks: Iterator[bytes]) -> Iterator[int]:
    for data in chunks:
        for start, end in zip(*frames.tuples_of(data), strict=True):
            yield iproto.unpacked(data[start:end])[0]


def test_long_rows_of_a_real_server(tarantool: TarantoolServer, tmp_path: Path) -> None:
    """Of which fewer fit into one piece than are gathered for a chunk."""
    tarantool.run("""
        local s = box.schema.space.create('long', {format = {{'id', 'unsigned'}, {'word', 'string'}}})
        s:create_index('pk')
        for i = 1, 120000 do
            if i % 1000 == 1 then box.begin() end
            s:insert{i, string.rep('x', 100 + i % 50)}
            if i % 1000 == 0 then box.commit() end
        end
    """)
    said = {"address": tarantool.address(), "log": str(tmp_path), "pipeline": "test"}
    with closing(TarantoolReaderOptions.model_validate(said).open()) as reader:
        (table,) = reader.tables()
        reader.install([table])
        pieces = reader.plan_copy(table)
        batches = [batch for piece in pieces for batch in reader.read_copy(table.namespace, piece)]
    found = [number for batch in batches for number in cast(Any, batch.rows.column("data")).field("id").to_pylist()]
    assert found == list(range(1, 120_001))
