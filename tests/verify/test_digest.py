"""Rows are told apart by their fields, not by the order or the absence of what is null."""

from __future__ import annotations

import pyarrow as pa

from tailrace.verify.digest import Digest

DIGEST = Digest(("id", "a", "b"), ("id",))


def rows(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_order_and_absent_fields_do_not_matter() -> None:
    full = DIGEST.of(rows(id=[1], a=["x"], b=[None], more=[7]))
    for other in (rows(b=[None], a=["x"], id=[1]), rows(a=["x"], id=[1.0])):
        assert DIGEST.of(other).rows.tolist() == full.rows.tolist()
        assert DIGEST.of(other).keys.tolist() == full.keys.tolist()


def test_a_value_in_another_field_is_another_row() -> None:
    first, second = DIGEST.of(rows(id=[1], a=["x"])), DIGEST.of(rows(id=[1], b=["x"]))
    assert first.rows.tolist() != second.rows.tolist()
    assert first.keys.tolist() == second.keys.tolist()


def test_keys_as_text() -> None:
    assert DIGEST.key_texts(rows(id=[1.0, None])) == ["[1]", "[null]"]
    pair = Digest(("a", "b"), ("b", "a"))
    assert pair.key_texts(rows(a=["ü"], b=[b"\x00"])) == ['[{"$binary":"AA=="},"ü"]']
    assert Digest(("a", "b"), ()).key_texts(rows(a=["x"], b=[2])) == ['{"a":"x","b":2}']
