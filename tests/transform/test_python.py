"""python: one's own function on each message, its results as columns that change no value, its errors in a line."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tailrace.deliver.messages import Messages
from tailrace.log.documents import is_json
from tailrace.transform import python
from tailrace.transform.contract import FrameFunction, Function
from tailrace.transform.python import Python, PythonFrame
from tailrace.transform.results import CHUNK_ROWS
from tests.log.refusals import refused
from tests.transform.material import (
    DELETE,
    INSERT,
    UPDATE,
    before_of,
    column,
    data_of,
    json_field,
    messages_of,
    messages_with,
    offsets_of,
)

Data = dict[str, Any]
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def applied(function: Callable[[Data], Any], messages: Messages) -> Messages:
    made = python(function)
    assert isinstance(made, Python)
    return made.apply(messages)


def on_data(change: Callable[[Data], Any]) -> Callable[[Data], Data]:
    return lambda message: {"data": change(message["data"])}


def test_what_the_function_gets() -> None:
    before: Any = pa.array([None, {"a": 0}])
    data: Any = pa.array([{"a": 1}, None])
    seen: list[Data] = []

    def look(message: Data) -> Data:
        seen.append(dict(message))
        return message

    given = messages_with(data, before=before, ops=[INSERT, DELETE])
    after = applied(look, given)
    common = {"namespace": "shop.orders", "timestamp": 0, "offset": 100, "before": None}
    assert seen == [
        {**common, "op": "insert", "data": {"a": 1}},
        {**common, "op": "delete", "timestamp": 1, "offset": 101, "data": None, "before": {"a": 0}},
    ]
    assert after.rows.equals(given.rows)


def test_what_it_returns() -> None:
    def change(message: Data) -> Data | None:
        if message["data"]["id"] == 2:
            return None
        message["data"]["total"] = message["data"]["id"] * 1.5
        del message["data"]["note"]
        return {**message, "op": "update", "namespace": "ignored", "offset": 7, "before": None}

    rows = [{"id": number, "note": "x"} for number in (1, 2, 3)]
    given = messages_of(rows, before=pa.array([{"id": 0}] * 3))
    after = applied(change, given)
    assert data_of(after) == [{"id": 1, "total": 1.5}, {"id": 3, "total": 4.5}]
    assert after.ops().to_pylist() == [int(UPDATE)] * 2
    assert offsets_of(after) == [100, 102]
    assert after.namespace == "shop.orders"
    assert before_of(after) == [{"id": 0}, {"id": 0}]


def test_everything_dropped_and_nothing_given() -> None:
    given = messages_of([{"a": 1}])
    assert applied(lambda message: None, given).rows.equals(given.rows.slice(0, 0))
    assert applied(lambda message: 1 / 0, given.slice(0, 0)).rows.schema == given.rows.schema


def test_data_may_become_null_and_be_empty() -> None:
    given = messages_of([{"a": 1}, {"a": 2}, {"a": 3}])
    results = iter([None, {"a": 2}, {}])
    assert data_of(applied(lambda message: {"data": next(results)}, given)) == [None, {"a": 2}, {"a": None}]
    nothing = applied(lambda message: {"data": None}, given)
    assert data_of(nothing) == [None] * 3
    assert nothing.data.type == given.data.type
    assert data_of(applied(lambda message: {"data": {}}, given)) == [{}] * 3


TYPES: list[tuple[pa.DataType, Any]] = [
    (pa.int8(), 5),
    (pa.uint64(), 2**64 - 1),
    (pa.float32(), 0.1),
    (pa.float64(), 0.1),
    (pa.bool_(), True),
    (pa.string(), "x"),
    (pa.large_string(), "x"),
    (pa.binary(), b"x"),
    (pa.decimal128(20, 4), Decimal("1.5000")),
    (pa.date32(), date(2026, 1, 31)),
    (pa.timestamp("us", "UTC"), NOON),
    (pa.timestamp("us"), NOON.replace(tzinfo=None)),
    (pa.timestamp("s", "Europe/Rome"), NOON),
    (pa.list_(pa.int16()), [1, None]),
    (pa.struct([("x", pa.int16()), ("y", pa.string())]), {"x": 1, "y": None}),
    (pa.dictionary(pa.int8(), pa.string()), "x"),
    (pa.null(), None),
]


@pytest.mark.parametrize(("kind", "value"), TYPES, ids=lambda each: str(each) if isinstance(each, pa.DataType) else "")
def test_types_stay_when_values_do(kind: Any, value: Any) -> None:
    if pa.types.is_dictionary(kind):
        data: pa.Array[Any] = pa.StructArray.from_arrays(
            [pa.array([value, None], pa.string()).dictionary_encode()], names=["v"]
        )
        data = data.cast(pa.struct([("v", kind)]))
    else:
        data = column([value, None], kind)
    given = messages_with(data)
    assert applied(lambda message: message, given).rows.equals(given.rows)
    rebuilt = applied(on_data(lambda data: {"v": data["v"], "n": 1}), given.slice(0, 1))
    assert rebuilt.data.type.field("v").type == kind
    assert rebuilt.data.field("v").equals(given.slice(0, 1).data.field("v"))


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int8(), [1, 2], pa.int8()),
        (pa.int8(), [1, 300], pa.int64()),
        (pa.int64(), [1.5, 2.0], pa.float64()),
        (pa.int64(), [1.0, 2], pa.int64()),
        (pa.float64(), [1, 2.5], pa.float64()),
        (pa.float32(), [0.1], pa.float64()),
        (pa.int64(), ["x"], pa.string()),
        (pa.string(), [b"x"], pa.binary()),
        (pa.binary(), ["x"], pa.string()),
        (pa.timestamp("s"), [datetime(2026, 1, 31, 12, 0, 0, 5)], pa.timestamp("us")),
        (pa.timestamp("us"), [5], pa.int64()),
        (pa.timestamp("us"), [NOON], pa.timestamp("us", "UTC")),
        (pa.date32(), [datetime(2026, 1, 31, 12)], pa.timestamp("us")),
        (pa.decimal128(5, 2), [Decimal("1.005")], pa.decimal128(4, 3)),
        (pa.bool_(), [1], pa.int64()),
        (pa.float64(), [True], pa.bool_()),
        (pa.struct([("x", pa.int8()), ("y", pa.int8())]), [{"x": 1}], pa.struct([("x", pa.int8()), ("y", pa.int8())])),
        (pa.struct([("x", pa.int64())]), [{"x": 1, "z": 2}], pa.struct([("x", pa.int64()), ("z", pa.int64())])),
        (None, [1, 2.5], pa.float64()),
        (None, [None, None], pa.null()),
        (None, [[1], [2, 3]], pa.list_(pa.int64())),
    ],
)  # fmt: skip
def test_types_follow_values(kind: Any, values: list[Any], expected: pa.DataType) -> None:
    given = messages_with(column([None] * len(values), kind or pa.int64(), "v" if kind else "other"))
    results = iter(values)
    after = applied(lambda message: {"data": {"v": next(results)}}, given)
    assert after.data.type.field("v").type == expected
    assert not is_json(after.data.type.field("v"))


@pytest.mark.parametrize(
    "values",
    [
        [1, "x"],
        [True, 1],
        [2**53 + 1, 0.5],
        [10**30, 1],
        [{"a": 1}, {"b": 1}],
        [[1], ["x"]],
        [{"a": [1, "x"]}, None],
        ["x", {"x": 1}, None, [None]],
    ],
)
def test_values_without_a_type_in_common_become_json(values: list[Any]) -> None:
    given = messages_with(column([0] * len(values)))
    results = iter(values)
    after = applied(lambda message: {"data": {"v": next(results)}}, given)
    assert is_json(after.data.type.field("v"))
    returned = [row["v"] for row in data_of(after) if row]
    assert repr(returned) == repr(values)


def test_values_that_have_no_form_are_refused() -> None:
    results: Any = iter([NOON, 1])
    with refused("function.failed", saying="field 'v' has values of different types"):
        applied(lambda message: {"data": {"v": next(results)}}, messages_with(column([0, 0])))
    with refused("function.failed", saying="field 'v' has values of different types, and one would change in JSON"):
        applied(lambda message: {"data": {"v": {1: "x"}}}, messages_with(column([0])))
    with refused("function.failed", saying="field name 5 is not text"):
        applied(lambda message: {"data": {5: 1}}, messages_with(column([0])))


def test_json_text_is_read_and_stays_json() -> None:
    data = pa.StructArray.from_arrays([pa.array(['[1, "x"]', None])], fields=[json_field("list")])
    after = applied(on_data(lambda data: {"list": (data["list"] or []) + [2]}), messages_with(data))
    assert is_json(after.data.type.field("list"))
    assert data_of(after) == [{"list": [1, "x", 2]}, {"list": [2]}]


def test_changes_in_place_are_seen() -> None:
    def change(message: Data) -> Data:
        message["data"]["address"]["city"] = "Rome"
        message["data"]["tags"].append("new")
        return message

    given = messages_of([{"address": {"city": "Oslo"}, "tags": ["a"]}])
    assert data_of(applied(change, given)) == [{"address": {"city": "Rome"}, "tags": ["a", "new"]}]


def test_fields_that_some_results_lack() -> None:
    count = 2 * CHUNK_ROWS + 10
    late = CHUNK_ROWS + 5

    def change(message: Data) -> Data:
        number = message["data"]["n"]
        return {
            "data": {"n": number, "late": "x"} if number == late else {"n": number} if number % 2 else {"odd": False}
        }

    rows = data_of(applied(change, messages_with(column(range(count), name="n"))))
    assert len(rows) == count
    assert rows[0] == {"n": None, "odd": False, "late": None}
    assert rows[1] == {"n": 1, "odd": None, "late": None}
    assert rows[late] == {"n": late, "odd": None, "late": "x"}
    assert rows[-1] == {"n": count - 1, "odd": None, "late": None}


def test_order_of_fields() -> None:
    given = messages_of([{"a": 1, "b": 2}])
    after = applied(lambda message: {"data": {"z": 0, "b": 3, "y": 0, "a": 4}}, given)
    assert after.fields == ["a", "b", "z", "y"]


def test_key_stays_while_its_columns_do() -> None:
    given = messages_of([{"id": 1, "x": 2}], key=("id",))
    assert applied(on_data(lambda data: {"id": data["id"]}), given).key == ("id",)
    assert applied(on_data(lambda data: {"x": data["x"]}), given).key == ()


@pytest.mark.parametrize(
    ("result", "saying"),
    [
        (5, "it returned int, not a dict or None"),
        ({"op": "insert"}, "without data"),
        ({"data": [1]}, "the data it returned is list"),
        ({"data": {}, "op": "truncate"}, "the op it returned is 'truncate'"),
    ],
)
def test_results_that_are_no_messages(result: Any, saying: str) -> None:
    with refused("function.failed", saying=saying) as refusal:
        applied(lambda message: result, messages_of([{"a": 1}]))
    assert "at offset 100" in refusal.value.what
    assert refusal.value.hint == "tailrace log show 100"


def fails(message: Data) -> Data:
    if message["data"]["a"] > 1:
        inner(message)
    return message


def inner(message: Data) -> None:
    raise LookupError("no such price")


def test_errors_name_offset_function_and_line() -> None:
    with refused("function.failed", saying="fails at offset 101: LookupError: no such price") as refusal:
        applied(fails, messages_of([{"a": 1}, {"a": 2}]))
    assert 'raise LookupError("no such price")' in refusal.value.what
    assert "test_python.py, line " in refusal.value.what
    assert "\n" not in str(refusal.value)


def test_error_within_a_library_names_the_users_line() -> None:
    def parse(message: Data) -> Data:
        return {"data": {"a": Decimal("x").quantize(Decimal(1))}}

    with refused("function.failed", saying='Decimal("x").quantize'):
        applied(parse, messages_of([{"a": 1}]))


def test_long_errors_are_cut() -> None:
    def wall(message: Data) -> Data:
        raise ValueError("first " + "x" * 1000 + "\nsecond")

    with refused("function.failed", saying="ValueError: first xxx") as refusal:
        applied(wall, messages_of([{"a": 1}]))
    assert "second" not in refusal.value.what.partition("(")[0]
    assert len(refusal.value.what) < 600


def test_function_by_name() -> None:
    made = Python.model_validate("tests.transform.test_python:fails")
    assert data_of(made.apply(messages_of([{"a": 1}]))) == [{"a": 1}]
    with refused("function.failed", saying="tests.transform.test_python:fails at offset 100"):
        made.apply(messages_of([{"a": 2}]))
    for name in ("tests.transform.test_python:nothing", "no_such_module:f", "tests.transform.test_python:NOON"):
        with refused("config.invalid", saying=name):
            Python.model_validate(name).apply(messages_of([{"a": 1}]))


@pytest.mark.parametrize("name", ["fails", "a.b", "a b:c", "os:system()", ":f", "a:", "../a:f"])
def test_names_are_checked(name: str) -> None:
    with pytest.raises(ValidationError, match=r"package\.module:name"):
        Python.model_validate(name)


CODE = """
FACTOR = 2

def transform(message):
    message["data"]["a"] = message["data"]["a"] * FACTOR
    return message

def fail(message):
    return 1 / 0
"""


def test_file_is_read_once_and_travels(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    made = Python.model_validate({"file": "mine.py"}, context={"base": str(tmp_path)})
    failing = Python.model_validate({"file": str(path), "name": "fail"})
    path.unlink()
    for function in (made, pickle.loads(pickle.dumps(made))):
        assert data_of(function.apply(messages_of([{"a": 21}]))) == [{"a": 42}]
    with refused("function.failed", saying="ZeroDivisionError: division by zero (mine.py, line 9: return 1 / 0)"):
        failing.apply(messages_of([{"a": 1}]))


@pytest.mark.parametrize(
    ("code", "saying"),
    [("def other(m): ...", "does not define transform"), ("def transform(:", "line 1"), (None, "cannot be read")],
)
def test_files_are_checked(tmp_path: Path, code: str | None, saying: str) -> None:
    path = tmp_path / "mine.py"
    if code is not None:
        path.write_text(code)
    with refused("config.invalid", saying=saying):
        python(file=str(path))


def test_file_that_fails_when_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("transform = undefined")
    made = Python.model_validate({"file": str(path)})
    with refused("function.failed", saying="NameError: name 'undefined' is not defined"):
        made.apply(messages_of([{"a": 1}]))


def test_functions_without_a_module_travel() -> None:
    factor = 3
    made = python(on_data(lambda data: {"a": data["a"] * factor}))
    arrived = pickle.loads(pickle.dumps(made))
    assert data_of(arrived.apply(messages_of([{"a": 2}]))) == [{"a": 6}]


@pytest.mark.parametrize(
    "options",
    [{}, {"function": "a:b", "file": "x.py"}, {"function": "a:b", "frame": "a:b"}, {"frame": "a:b", "name": "x"}],
)
def test_one_form_at_a_time(options: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Python.model_validate(options)


def test_the_two_kinds() -> None:
    frame: Any = Python.model_validate({"frame": "a:b", "namespace": "x"})
    assert frame == PythonFrame(frame="a:b", namespace="x") == python("a:b", frame=True, namespace="x")
    assert isinstance(frame, FrameFunction) and not isinstance(frame, Function)
    message = python(fails)
    assert isinstance(message, Function) and not isinstance(message, FrameFunction)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), values), min_size=1, max_size=6))
def test_no_value_changes(results: list[Data]) -> None:
    """Whatever a function returns comes back, but that absent fields are null."""
    given = messages_of([{"a": 1, "b": 2.5}] * len(results))
    left = iter(results)
    after = data_of(applied(lambda message: {"data": next(left)}, given))
    for row, result in zip(after, results, strict=True):
        assert row is not None
        assert row == {name: result.get(name) for name in row}
        assert row.keys() >= result.keys()
