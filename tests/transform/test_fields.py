"""omit, pick and rename: fields come and go, values, nulls and types stay."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.deliver.messages import Messages
from tailrace.log.batch import key_of
from tailrace.message import Row
from tailrace.transform import omit, pick, rename
from tailrace.transform.options import FunctionOptions
from tests.log.refusals import refused
from tests.transform.material import DELETE, INSERT, before_of, data_of, json_field, messages_of, messages_with

ROWS: list[Row | None] = [
    {"id": 1, "name": "Ada", "address": {"city": "Rome", "zip": "001"}},
    None,
    {"id": 3, "name": None, "address": None},
    {"id": 4, "name": "Eve", "address": {"city": None, "zip": "004"}},
]


def test_omit_leaves_fields_out() -> None:
    assert data_of(omit("name", "address.zip").apply(messages_of(ROWS))) == [
        {"id": 1, "address": {"city": "Rome"}},
        None,
        {"id": 3, "address": None},
        {"id": 4, "address": {"city": None}},
    ]


def test_pick_keeps_fields_in_their_own_order() -> None:
    assert data_of(pick("address.city", "id").apply(messages_of(ROWS))) == [
        {"id": 1, "address": {"city": "Rome"}},
        None,
        {"id": 3, "address": None},
        {"id": 4, "address": {"city": None}},
    ]


def test_rename_within() -> None:
    renamed = data_of(rename({"address.city": "town", "id": "number"}).apply(messages_of(ROWS)))
    assert renamed[0] == {"number": 1, "name": "Ada", "address": {"town": "Rome", "zip": "001"}}
    assert renamed == data_of(rename({"address.city": "address.town", "id": "number"}).apply(messages_of(ROWS)))


def test_renames_happen_at_once() -> None:
    given = messages_of([{"a": 1, "b": 2, "c": 3}])
    assert data_of(rename(a="b", b="a").apply(given)) == [{"b": 1, "a": 2, "c": 3}]
    assert data_of(rename(c="a", b="c", a="b").apply(given)) == [{"b": 1, "c": 2, "a": 3}]


@pytest.mark.parametrize("fields", [{"id": "name"}, {"address.city": "zip"}])
def test_rename_does_not_overwrite(fields: dict[str, str]) -> None:
    with refused("function.failed", saying="'shop.orders': there would be two fields"):
        rename(fields).apply(messages_of(ROWS))


@pytest.mark.parametrize("fields", [{"a": "b.c"}, {"x.a": "y.a"}, {"a": ""}, {"a": "b."}, {"": "b"}, {}])
def test_rename_does_not_move(fields: dict[str, str]) -> None:
    with refused("config.invalid", saying="rename"):
        rename(fields)


@pytest.mark.parametrize(
    "function", [omit("address.zip", "id"), pick("address.zip"), rename({"address.zip": "code"})], ids=lambda f: f.kind
)
@pytest.mark.parametrize(("start", "count"), [(0, 4), (1, 2), (3, 1), (2, 0), (0, 0)])
def test_slices_give_slices(function: Any, start: int, count: int) -> None:
    whole = function.apply(messages_of(ROWS))
    part = function.apply(messages_of(ROWS).slice(start, count))
    assert data_of(part) == data_of(whole)[start : start + count]
    assert part.rows.schema == whole.rows.schema


def test_slices_within_slices() -> None:
    inner: Any = pa.array([{"x": n, "y": str(n)} if n % 3 else None for n in range(10)])
    outer = pa.StructArray.from_arrays([inner.slice(2, 6), pa.array(range(6))], names=["s", "n"]).slice(1, 4)
    assert data_of(omit("s.y", "n").apply(messages_with(outer))) == [
        {"s": None},
        {"s": {"x": 4}},
        {"s": {"x": 5}},
        {"s": None},
    ]


def test_all_fields_may_go() -> None:
    assert data_of(omit("id", "name", "address").apply(messages_of(ROWS))) == [{}, None, {}, {}]
    assert data_of(pick("nothing").apply(messages_of(ROWS))) == [{}, None, {}, {}]
    assert data_of(pick("address.nothing", "id.nothing").apply(messages_of(ROWS))) == [{}, None, {}, {}]


@pytest.mark.parametrize("large", [False, True])
def test_lists_of_documents(large: bool) -> None:
    item = pa.struct([("sku", pa.string()), ("price", pa.int64())])
    kind = pa.struct([("items", pa.large_list(item) if large else pa.list_(item))])
    rows: list[Row | None] = [
        {"items": [{"sku": "skipped", "price": 0}]},
        {"items": [{"sku": "a", "price": 1}, None, {"sku": "b", "price": 2}]},
        {"items": None},
        {"items": []},
        None,
        {"items": [{"sku": "c", "price": None}]},
    ]
    given = messages_of(rows, kind).slice(1, 5)
    assert data_of(omit("items.price").apply(given)) == [
        {"items": [{"sku": "a"}, None, {"sku": "b"}]},
        {"items": None},
        {"items": []},
        None,
        {"items": [{"sku": "c"}]},
    ]
    assert data_of(rename({"items.sku": "code"}).apply(given))[4] == {"items": [{"code": "c", "price": None}]}
    assert data_of(pick("items.sku").apply(given)) == data_of(omit("items.price").apply(given))


def test_json_text_is_looked_into() -> None:
    texts = [json.dumps([{"pin": 1, "x": 10**30}, 7]), None, json.dumps({"pin": 2, "deep": {"pin": 3}})]
    data = pa.StructArray.from_arrays([pa.array(texts, pa.string())], fields=[json_field("doc")])
    given = messages_with(data)
    assert data_of(omit("doc.pin").apply(given)) == [
        {"doc": [{"x": 10**30}, 7]},
        {"doc": None},
        {"doc": {"deep": {"pin": 3}}},
    ]
    assert data_of(pick("doc.deep.pin").apply(given))[2] == {"doc": {"deep": {"pin": 3}}}
    assert data_of(rename({"doc.pin": "code"}).apply(given))[2] == {"doc": {"code": 2, "deep": {"pin": 3}}}
    with refused("function.failed", saying="two fields 'deep'"):
        rename({"doc.pin": "deep"}).apply(given)


def test_metadata_stays() -> None:
    data = pa.StructArray.from_arrays(
        [pa.array(["[1]"]), pa.array([1])], fields=[json_field("doc"), pa.field("n", pa.int64())]
    )
    renamed = rename(doc="list").apply(messages_with(data))
    assert renamed.data.type.field(0).equals(json_field("list"), check_metadata=True)
    assert data_of(renamed) == [{"list": [1], "n": 1}]


def test_names_with_dots() -> None:
    given = messages_of([{"a.b": 1, "a": {"b": 2, "c.d": 3}}])
    assert data_of(omit("a.b").apply(given)) == [{"a": {"c.d": 3}}]
    assert data_of(pick("a.c.d").apply(given)) == [{"a": {"c.d": 3}}]
    assert data_of(rename({"a.b": "a.x"}).apply(given)) == [{"a.x": 1, "a": {"x": 2, "c.d": 3}}]


def test_before_is_treated_like_data() -> None:
    data: Any = pa.array([{"id": 1, "pin": "1234"}])
    before: Any = pa.array([{"pin": "0000", "id": 1, "old": True}])
    given = messages_with(data, before=before)
    omitted = omit("pin").apply(given)
    assert before_of(omitted) == [{"id": 1, "old": True}]
    picked = pick("id").apply(given)
    assert before_of(picked) == [{"id": 1}]
    renamed = rename(pin="code").apply(given)
    assert before_of(renamed) == [{"code": "0000", "id": 1, "old": True}]


def test_key_follows() -> None:
    given = messages_of(ROWS, key=("id", "name"))
    for function, key in (
        (rename(id="number"), ("number", "name")),
        (rename(id="name", name="id"), ("name", "id")),
        (omit("address"), ("id", "name")),
        (omit("name"), ()),
        (pick("id"), ()),
        (pick("id", "name"), ("id", "name")),
    ):
        after = function.apply(given)
        assert after.key == key, function
        assert key_of(after.rows.schema) == key, function


def test_key_that_lost_a_part_is_none() -> None:
    assert omit("address.zip").apply(messages_of(ROWS, key=("address",))).key == ()


@pytest.mark.parametrize("make", [omit, pick, lambda field, **more: rename({field: "new"}, **more)])
def test_missing_field_is_an_error_if_asked(make: Any) -> None:
    assert len(make("nope").apply(messages_of(ROWS))) == 4
    for path in ("nope", "address.nope", "id.nope"):
        with refused("function.failed", saying=f"no field {path!r}; there are: id, name, address"):
            make(path, missing="error").apply(messages_of(ROWS))
    assert len(make("address.city", missing="error").apply(messages_of(ROWS))) == 4


def test_deletes_may_lack_fields() -> None:
    function = omit("name", missing="error")
    assert data_of(function.apply(messages_of([{"id": 1}], ops=[DELETE]))) == [{"id": 1}]
    with refused("function.failed"):
        function.apply(messages_of([{"id": 1}, {"id": 2}], ops=[DELETE, INSERT]))


names = st.sampled_from(["a", "b", "c", "secret", "a.b"])
leaves = st.one_of(st.none(), st.integers(0, 9), st.text(max_size=3))
shapes = st.recursive(
    st.sampled_from([pa.int64(), pa.string()]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.dictionaries(names, inner, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
    ),
    max_leaves=8,
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    if pa.types.is_list(kind):
        return st.none() | st.lists(values(kind.value_type), max_size=3)
    return st.none() | (st.integers(-9, 9) if pa.types.is_integer(kind) else st.text("xyz", max_size=3))


@st.composite
def any_messages(draw: st.DrawFn) -> Messages:
    """Messages with nested fields, nulls at every level, cut out of a longer batch."""
    fields: dict[str, Any] = draw(st.dictionaries(names, shapes, min_size=1, max_size=4))
    kind = pa.struct(list(fields.items()))
    rows = draw(st.lists(values(kind), max_size=6))
    start = draw(st.integers(0, len(rows)))
    return messages_of(rows, kind).slice(start, draw(st.integers(0, len(rows) - start)))


def is_within(value: Any, path: str) -> bool:
    """Whether a path leads anywhere in a value; the plain way, to compare with."""
    if isinstance(value, list):
        return any(is_within(each, path) for each in value)
    if not isinstance(value, dict):
        return False
    return path in value or any(
        path.startswith(f"{name}.") and is_within(inner, path[len(name) + 1 :]) for name, inner in value.items()
    )


paths = st.lists(st.lists(names, min_size=1, max_size=3).map(".".join), min_size=1, max_size=3, unique=True)


@given(any_messages(), paths)
def test_what_is_omitted_is_gone(given: Messages, fields: list[str]) -> None:
    after = data_of(omit(*fields).apply(given))
    assert [row is None for row in after] == [row is None for row in data_of(given)]
    assert not any(is_within(row, path) for row in after for path in fields)


@given(any_messages(), paths)
def test_picked_is_what_omit_takes(given: Messages, fields: list[str]) -> None:
    picked, omitted = (data_of(function.apply(given)) for function in (pick(*fields), omit(*fields)))
    whole = data_of(given)
    for path in fields:
        assert [is_within(row, path) for row in picked] == [is_within(row, path) for row in whole]
    top = [path for path in fields if "." not in path]
    for row, kept, rest in zip(whole, picked, omitted, strict=True):
        if row is not None and kept is not None and rest is not None and len(top) == len(fields):
            assert {**kept, **rest} == row
            assert not kept.keys() & rest.keys()


@given(any_messages(), st.permutations(["a", "b", "c", "secret", "a.b"]))
def test_rename_keeps_values(given: Messages, new: list[str]) -> None:
    mapping = dict(zip(["a", "b", "c", "secret"], [name.replace(".", "_") for name in new], strict=False))
    before = data_of(given)
    taken = {name for name in given.fields if name not in mapping}
    if taken & {mapping[name] for name in given.fields if name in mapping}:
        return
    after = data_of(rename(mapping).apply(given))
    for row, renamed in zip(before, after, strict=True):
        assert (row is None) == (renamed is None)
        if row is not None and renamed is not None:
            assert renamed == {mapping.get(name, name): value for name, value in row.items()}


def test_functions_are_their_options() -> None:
    function: FunctionOptions = omit("a")
    assert function == type(function).model_validate(["a"])
