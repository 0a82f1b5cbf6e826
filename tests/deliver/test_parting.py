"""By the hash of their keys messages fall into parts that can be written at the same time."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.deliver.outcome import outcome
from tailrace.deliver.parting import Part, part_of
from tailrace.message import Op
from tests.adaptor.contract import fields, row, write_of
from tests.deliver.test_outcome import SCHEMA, changes, rendered

KEY = ("a", "b")


def state_of(messages: Any) -> tuple[dict[Any, int], set[Any]]:
    found = outcome(messages, KEY, rendered)
    put: Any = found.put
    gone = set(zip(*(column.to_pylist() for column, _ in found.gone), strict=True))
    return {(row["a"], row["b"]): row["v"] for row in put.to_pylist()}, gone


@given(changes(), st.integers(1, 5))
def test_the_parts_leave_what_the_whole_would(made: list[Any], of: int) -> None:
    whole = write_of(made, schema=SCHEMA, key=KEY)
    rows: dict[Any, int] = {}
    gone: set[Any] = set()
    for number in range(of):
        part = part_of(whole, KEY, Part(number, of))
        offsets: list[Any] = part.offsets().to_pylist()
        assert offsets == sorted(offsets)
        put, deleted = state_of(part) if len(part) else ({}, set())
        assert not (rows.keys() | gone) & (put.keys() | deleted), "a key belongs to one part"
        rows |= put
        gone |= deleted
    assert (rows, gone) == state_of(whole)


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(range(10_000), pa.int64()),
        pa.array([f"key {number}" for number in range(10_000)]),
        pa.array([number.to_bytes(16) for number in range(10_000)], pa.binary(16)),
        pa.array(range(10_000), pa.timestamp("us", "UTC")),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_are_spread_evenly(keys: "pa.Array[Any]") -> None:
    data = [(Op.INSERT, {"id": key}) for key in keys.to_pylist()]
    messages = write_of(data, schema=fields(("id", keys.type)), key=("id",))
    sizes = [len(part_of(messages, ("id",), Part(number, 4))) for number in range(4)]
    assert sum(sizes) == len(keys)
    assert min(sizes) > 2_000


def test_without_a_key_all_is_in_the_first() -> None:
    messages = write_of([(Op.INSERT, row(1)), (Op.INSERT, row(2))], key=())
    assert [len(part_of(messages, (), Part(number, 2))) for number in range(2)] == [2, 0]
