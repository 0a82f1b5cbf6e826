"""Arrays of Arrow are those that pyarrow makes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.sync.arrowarray import KINDS, array_of

VALUES: dict[type, st.SearchStrategy[Any]] = {
    int: st.integers(-(1 << 63), (1 << 63) - 1),
    float: st.floats(allow_nan=False),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    bool: st.booleans(),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_it_is_what_pyarrow_makes(kind: type, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], max_size=20))
    whole = array_of(values, kind)
    whole.validate(full=True)
    assert whole.equals(pa.array(values, KINDS[kind]))
    partly = data.draw(st.lists(st.none() | VALUES[kind], max_size=20))
    found = array_of(partly, kind, has_none=True)
    found.validate(full=True)
    assert found.equals(pa.array(partly, KINDS[kind]))
    assert found.null_count == partly.count(None)


def test_a_number_of_more_than_64_bits_is_none() -> None:
    with pytest.raises(OverflowError):
        array_of([1 << 63], int)
