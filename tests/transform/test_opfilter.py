"""opfilter: messages by what happened."""

from __future__ import annotations

import pytest

from tailrace.transform import opfilter
from tailrace.transform.opfilter import Opfilter
from tests.transform.material import DELETE, INSERT, UPDATE, messages_of, offsets_of

MESSAGES = messages_of([{"a": number} for number in range(4)], ops=[INSERT, UPDATE, DELETE, INSERT])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (opfilter("insert"), [100, 103]),
        (opfilter("update", "Delete"), [101, 102]),
        (opfilter(blacklist=["insert"]), [101, 102]),
        (opfilter(blacklist=["insert", "update", "delete"]), []),
    ],
)
def test_keeps_by_op(function: Opfilter, expected: list[int]) -> None:
    assert offsets_of(function.apply(MESSAGES)) == expected
    assert offsets_of(function.apply(MESSAGES.slice(1, 2))) == [offset for offset in expected if offset in (101, 102)]
