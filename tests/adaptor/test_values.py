"""Values as plain JSON and back."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from tailrace.adaptor.values import BrokenText, Value, from_json, from_plain, read_text, to_json, to_plain

VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
    st.binary().map(BrokenText),
)


@given(VALUES)
def test_a_value_comes_back(value: Value) -> None:
    for back in (from_plain(json.loads(json.dumps(to_plain(value), allow_nan=False))), from_json(to_json(value))):
        assert type(back) is type(value)
        assert back == value
        if isinstance(value, float) and isinstance(back, float):
            assert math.copysign(1, back) == math.copysign(1, value)


def test_documents_are_left_alone() -> None:
    for document in ({"a": 1}, {"$binary": 1}, {"$real": "1", "b": 2}, [1, 2], {}):
        assert from_plain(document) == document


def test_text_that_is_not_utf8() -> None:
    assert read_text("grüße".encode()) == "grüße"
    assert read_text(b"\xff") == BrokenText(b"\xff")
    assert isinstance(read_text(b"\xff"), BrokenText)
