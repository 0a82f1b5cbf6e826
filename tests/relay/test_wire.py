"""Groups that travel, and what is refused on arrival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batch_of, encode_frame
from tailrace.log.frame import Codec, place_head
from tailrace.message import Micros, NodeId
from tailrace.relay import wire
from tailrace.relay.wire import SCHEMA, Unpacker, packed, parsed
from tests.relay.test_journal import Frame, group


def frame(namespace: str = "main.t", rows: int = 3, words: str = "word") -> Frame:
    data = pa.StructArray.from_arrays([pa.array([words] * rows)], ["w"])
    batch: Batch = batch_of(namespace, data, timestamp=Micros(1), origin=NodeId(9), first_lsn=1)
    return encode_frame(batch, Codec.LZ4)


def on_wire(*frames: Frame) -> bytes:
    ((row,),) = [batch.column("frame").to_pylist() for batch in packed(list(frames))]
    assert isinstance(row, bytes)
    return row


@given(st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=5), max_size=5), st.integers(1, 2000))
def test_groups_arrive_as_they_were(sizes: list[list[int]], room: int) -> None:
    groups = [[frame(rows=rows) for rows in each] for each in sizes]
    unpacker = Unpacker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_BATCH_BYTES", room)
        batches = [batch for each in groups for batch in packed(each)]
    found = [each for batch in batches for each in unpacker.groups(batch)]
    assert [[bytes(body) for _, body in each] for each in found] == [[bytes(body) for _, body in g] for g in groups]
    assert [[head.messages for head, _ in each] for each in found] == sizes
    assert unpacker.is_between_groups


def test_half_a_group_is_none() -> None:
    unpacker = Unpacker()
    (whole,) = packed([*group(1), *group(2)])
    assert list(unpacker.groups(whole.slice(0, 1))) == []
    assert not unpacker.is_between_groups
    assert len(next(iter(unpacker.groups(whole.slice(1))))) == 2


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(TailraceError):
        parsed(memoryview(raw))


@given(st.data())
def test_a_flipped_byte_is_noticed(data: st.DataObject) -> None:
    whole = bytearray(on_wire(frame()))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(TailraceError):
        parsed(memoryview(bytes(whole)))


@pytest.mark.parametrize(
    "spoil",
    [lambda raw: raw[:-1], lambda raw: raw + b"x", lambda raw: raw[:10], lambda raw: b""],
    ids=["short", "long", "cut in its head", "empty"],
)
def test_lengths_that_lie(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(TailraceError) as caught:
        parsed(memoryview(spoil(on_wire(frame()))))
    assert caught.value.code == "relay.malformed"


@pytest.mark.parametrize("namespace", ["_tailrace.position", "a/b", "..", "x" * 300])
def test_names_that_are_none(namespace: str) -> None:
    head, body = frame()
    _, encoded = place_head(head._replace(namespace=namespace), offset=0, closes_group=True)
    with pytest.raises(TailraceError):
        parsed(memoryview(encoded + bytes(body)))


def test_a_group_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "GROUP_BYTES_MAX", 5_000)
    head, body = frame()
    _, encoded = place_head(head, offset=0, closes_group=False)
    endless: Any = pa.record_batch([pa.array([encoded + bytes(body)], pa.binary())], schema=SCHEMA)
    unpacker = Unpacker()
    with pytest.raises(TailraceError, match="more than 5000 bytes"):
        for _ in range(100):
            list(unpacker.groups(endless))


def test_other_columns() -> None:
    with pytest.raises(TailraceError, match="other columns"):
        list(Unpacker().groups(pa.record_batch({"x": [1]})))
