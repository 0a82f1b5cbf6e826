"""Fields that change: followed, refused, or left out, and no value is changed on the way."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tailrace.deliver.evolution import Evolution, decode_schemas, encode_schemas, wider
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.documents import is_json, json_field
from tailrace.message import Op
from tailrace.pipeline.spec import SchemaPolicy
from tests.adaptor.contract import write_of

TEXT = pa.field("v", pa.string())


def texts(field: pa.Field[Any], *values: str) -> Messages:
    data = pa.StructArray.from_arrays([pa.array(values, pa.string())], fields=[field])
    return write_of([(Op.INSERT, {}) for _ in values], first=7, key=()).with_column("data", data)


def test_text_that_becomes_json_is_another_type() -> None:
    """A destination must know that more than text comes, or it would make text of numbers."""
    evolution = Evolution(SchemaPolicy.EVOLVE)
    evolution.admit(texts(TEXT, "a"))
    mixed = texts(json_field("v"), "2.5", '"a"')
    assert evolution.admit(mixed) == mixed
    known = decode_schemas(encode_schemas(evolution.known))["main.t"]
    assert is_json(known.field("v"))
    assert evolution.news == ["main.t: field v was string, is now values of several types"]
    evolution.admit(texts(TEXT, "b"))
    assert is_json(evolution.known["main.t"].field("v"))
    assert len(evolution.news) == 1


def test_text_that_becomes_json_is_left_out_or_refused() -> None:
    promise = {"main.t": pa.schema([TEXT])}
    cut = Evolution(SchemaPolicy.DISCARD, dict(promise)).admit(texts(json_field("v"), "2.5", '"a"'))
    rows: Any = cut.data
    assert rows.to_pylist() == [{"v": "2.5"}, {"v": "a"}]
    assert not is_json(cut.data.type.field("v"))
    with pytest.raises(TailraceError, match="field v is values of several types, was string"):
        Evolution(SchemaPolicy.FREEZE, dict(promise)).admit(texts(json_field("v"), "2.5"))


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.binary()])
def test_json_holds_everything(kind: pa.DataType) -> None:
    assert is_json(wider(pa.field("v", kind), json_field("v")))
    assert is_json(wider(json_field("v"), pa.field("v", kind)))
