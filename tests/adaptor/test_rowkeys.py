"""Keys as text: those of values as they come from a server are those of the same values as SQLite keeps them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptor.binding import bindable
from tailrace.adaptor.rowkeys import key_texts, keys_of
from tailrace.deliver.messages import Messages
from tailrace.message import Op

VALUES = [
    (pa.int16(), 7, "[7]"),
    (pa.int64(), 1 << 62, f"[{1 << 62}]"),
    (pa.string(), 'Ä "x"', '["\\u00c4 \\"x\\""]'),
    (pa.string(), "\0", '["\\u0000"]'),
    (pa.float64(), 1.5, "[1.5]"),
    (pa.bool_(), True, "[1]"),
    (pa.binary(), b"\0\xff", '[{"bytes": "00ff"}]'),
    (pa.decimal128(10, 2), Decimal("1.50"), '["1.50"]'),
    (pa.date32(), date(2024, 2, 29), '["2024-02-29"]'),
    (pa.timestamp("us"), datetime(2024, 2, 29, 12), '["2024-02-29T12:00:00.000000"]'),
    (pa.timestamp("us", "UTC"), datetime(2024, 2, 29, 12, tzinfo=UTC), '["2024-02-29T12:00:00.000000Z"]'),
    (pa.int64(), None, "[null]"),
]


def rows(type_: pa.DataType, *values: Any) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(values, type_)], fields=[pa.field("id", type_)])


@pytest.mark.parametrize(("type_", "value", "text"), VALUES, ids=[text for _, _, text in VALUES])
def test_one_text_for_a_value(type_: pa.DataType, value: Any, text: str) -> None:
    assert key_texts(rows(type_, value), ["id"]) == [text]
    (kept,) = bindable(pa.array([value], type_), pa.field("id", type_))
    if isinstance(kept, str):
        assert key_texts(rows(pa.string(), kept), ["id"]) == [text]


def test_the_key_that_a_row_had() -> None:
    """Only moves have another one, not deletes, which tell the row that is gone in both places."""
    before = rows(pa.int64(), 1, 2, 3)
    columns = {
        "op": pa.array([int(Op.UPDATE), int(Op.DELETE), int(Op.UPDATE)], pa.int8()),
        "data": rows(pa.int64(), 10, 20, 30),
        "before": before.filter(pa.array([True, True, True])),
    }
    made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    assert keys_of(Messages("main.t", made, ("id",)), ("id",)) == (["[10]", "[20]", "[30]"], ["[1]", "[20]", "[3]"])
    assert keys_of(Messages("main.t", made.drop_columns(["before"]), ("id",)), ("id",))[1] == ["[10]", "[20]", "[30]"]
