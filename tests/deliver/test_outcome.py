"""Of many changes to a key only the last one is written."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.deliver.outcome import outcome
from tailrace.errors import TailraceError
from tailrace.log.documents import json_field
from tailrace.message import Op
from tests.adaptor.contract import fields, write_of

KEYS = st.tuples(st.integers(1, 3), st.sampled_from(["a", "b"]))
OLD_KEYS = st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", None]))
SCHEMA = fields(("a", pa.int64()), ("b", pa.string()), ("v", pa.int64()))


def rendered(column: "pa.Array[Any]", _: "pa.Field[Any]") -> "pa.Array[Any]":
    """Numbers as JSON."""
    values: list[Any] = column.to_pylist()
    return pa.array([None if value in (None, "null") else str(int(value)) for value in values], pa.string())


@st.composite
def changes(draw: st.DrawFn) -> list[Any]:
    """Inserts, updates, deletes and moves among a few keys."""
    made: list[Any] = []
    for number in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE]))
        a, b = draw(KEYS)
        before = draw(st.none() | OLD_KEYS) if op is Op.UPDATE else None
        old = None if before is None else {"a": before[0], "b": before[1], "v": -1}
        made.append((op, {"a": a, "b": b, "v": number}, old))
    return made


@given(changes())
def test_it_is_what_one_at_a_time_would_leave(made: list[Any]) -> None:
    state: dict[tuple[Any, Any], int] = {}
    touched = set()
    for op, data, before in made:
        if before is not None:
            state.pop((before["a"], before["b"]), None)
        if before is not None and before["b"] is not None:
            touched.add((before["a"], before["b"]))
        key = (data["a"], data["b"])
        touched.add(key)
        state.pop(key, None)
        if op is not Op.DELETE:
            state[key] = data["v"]
    found = outcome(write_of(made, schema=SCHEMA, key=("a", "b")), ("a", "b"), rendered)
    rows: Any = found.put
    put = rows.to_pylist()
    gone = list(zip(*(column.to_pylist() for column, _ in found.gone), strict=True))
    assert {(row["a"], row["b"]): row["v"] for row in put} == state
    assert [row["v"] for row in put] == sorted(state.values())
    assert set(gone) == touched - state.keys()


@pytest.mark.parametrize(("new", "old"), [("json", "plain"), ("plain", "json"), ("json", "json")])
def test_keys_of_several_classes(new: str, old: str) -> None:
    """The key of rows may come as JSON text, and that of the rows they were as numbers, or the other way round."""
    ids: dict[str, list[int]] = {"data": [1, 2, 3], "before": [1, 7, 3]}
    messages = write_of([(Op.UPDATE, {"a": 0, "b": "x", "v": 0})] * 3, schema=SCHEMA)
    for name, form in (("data", new), ("before", old)):
        is_json = form == "json"
        values: pa.Array[Any] = pa.array([str(id_) for id_ in ids[name]] if is_json else ids[name])
        field = json_field("id") if is_json else pa.field("id", values.type)
        messages = messages.with_column(name, pa.StructArray.from_arrays([values], fields=[field]))
    found = outcome(messages, ("id",), rendered)
    assert [(column.to_pylist(), field) for column, field in found.gone] == [(["7"], json_field("id"))]
    assert len(found.put) == 3


@pytest.mark.parametrize("op", [Op.INSERT, Op.UPDATE, Op.DELETE])
def test_null_in_a_key_is_refused(op: Op) -> None:
    """Rows that share such a key are not the same row."""
    made: list[Any] = [(Op.INSERT, {"a": 1, "b": "x", "v": 1}), (op, {"a": 2, "b": None, "v": 2})]
    with pytest.raises(TailraceError, match=r"main\.t has NULL in its key column b at offset 71") as caught:
        outcome(write_of(made, schema=SCHEMA, first=70), ("a", "b"), rendered)
    assert caught.value.code == "destination.refused"


def test_null_in_a_key_of_json_is_refused() -> None:
    ids = pa.StructArray.from_arrays([pa.array(["1", "null"])], fields=[json_field("id")])
    messages = write_of([(Op.INSERT, {"a": 0, "b": "x", "v": 0})] * 2, schema=SCHEMA).with_column("data", ids)
    with pytest.raises(TailraceError, match="NULL in its key column id at offset 1"):
        outcome(messages, ("id",), rendered)
