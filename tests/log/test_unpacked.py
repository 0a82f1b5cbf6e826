"""How long rows are once they are unpacked is known before they are."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc

from tailrace.log.batch import encode_body
from tailrace.log.frame import Codec
from tailrace.log.unpacked import unpacked_bytes

COLUMNS: dict[str, Any] = {
    "word": pa.array(["some words"] * 20_000),
    "number": pa.array(range(20_000)),
    "list": pa.array([{"q": [1, 2]}] * 20_000),
    "nothing": pa.nulls(20_000),
}
ROWS = pa.record_batch(COLUMNS)


@pytest.mark.parametrize("codec", Codec)
def test_what_there_is(codec: Codec) -> None:
    body, used = encode_body(ROWS, codec)
    assert used == codec
    assert ROWS.nbytes <= unpacked_bytes(body) <= ROWS.nbytes + 1000


def test_dictionaries() -> None:
    rows = pa.record_batch({"word": pa.array(["x" * 1_000_000]).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema, options=ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(rows)
    assert sink.getvalue().size < 10_000
    assert unpacked_bytes(sink.getvalue()) >= 1_000_000


@pytest.mark.parametrize("seed", range(5))
def test_damage_is_an_error_of_two_kinds(seed: int) -> None:
    body = bytes(encode_body(ROWS, Codec.LZ4)[0])
    chosen = random.Random(seed)
    for _ in range(300):
        damaged = bytearray(body)
        for _ in range(3):
            damaged[chosen.randrange(1500)] = chosen.randrange(256)
        try:
            found: Any = unpacked_bytes(bytes(damaged))
        except (ValueError, pa.ArrowException, OSError):
            continue
        assert found >= 0


def test_lengths_below_nothing() -> None:
    rows = pa.record_batch({"id": pa.array([1, 2, 3])})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    body = sink.getvalue().to_pybytes()
    for length, claimed in (((3, 0), (-3, 0)), ((0, 24), (0, -24)), ((0, 24), (-8, 24))):
        damaged = body.replace(struct.pack("<qq", *length), struct.pack("<qq", *claimed))
        assert damaged != body
        with pytest.raises(ValueError, match="claims"):
            unpacked_bytes(damaged)
