"""Of many changes to a key only the last one is written."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.adaptor.sqlite.binding import bindable
from tailrace.adaptor.sqlite.outcome import outcome
from tailrace.log.documents import JSON, TYPE_METADATA
from tailrace.message import Op
from tests.adaptor.contract import fields, write_of

KEYS = st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", None]))
SCHEMA = fields(("a", pa.int64()), ("b", pa.string()), ("v", pa.int64()))


@st.composite
def changes(draw: st.DrawFn) -> list[Any]:
    """Inserts, updates, deletes and moves among a few keys."""
    made: list[Any] = []
    for number in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE]))
        a, b = draw(KEYS)
        before = draw(st.none() | KEYS) if op is Op.UPDATE else None
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
            touched.add((before["a"], before["b"]))
        key = (data["a"], data["b"])
        touched.add(key)
        state.pop(key, None)
        if op is not Op.DELETE:
            state[key] = data["v"]
    found = outcome(write_of(made, schema=SCHEMA, key=("a", "b")), ("a", "b"))
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
        field = pa.field("id", values.type, metadata={TYPE_METADATA: JSON} if is_json else None)
        messages = messages.with_column(name, pa.StructArray.from_arrays([values], fields=[field]))
    found = outcome(messages, ("id",))
    assert [bindable(column, field) for column, field in found.gone] == [[7]]
    assert len(found.put) == 3
