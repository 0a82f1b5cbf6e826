"""Names from outside as directories."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.adaptor.lake.place import table_directory
from tailrace.errors import TailraceError
from tests.adaptor.contract import HOSTILE_NAMES

NAMES = st.one_of(st.sampled_from([*HOSTILE_NAMES, "a~41", "aA", "日" * 80, "日" * 81]), st.text(max_size=300))


def directory_of(namespace: str) -> str | None:
    try:
        return table_directory("/lake", namespace)
    except TailraceError as error:
        assert error.code == "name.invalid"
        return None


@given(NAMES, NAMES)
def test_every_namespace_has_a_directory_of_its_own(first: str, second: str) -> None:
    found = directory_of(first)
    if found is None:
        return
    assert os.path.dirname(found) == "/lake"
    assert re.fullmatch(r"[A-Za-z0-9@+~-][A-Za-z0-9@+~._-]{0,220}", os.path.basename(found))
    assert (found == directory_of(second)) == (first == second)


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [("main.orders", "main.orders"), ("_hidden", "~5Fhidden"), (".a b", "~2Ea~20b"), ("ü", "~C3~BC"), ("~", "~7E")],
)
def test_how_it_is_spelled(namespace: str, expected: str) -> None:
    assert Path(table_directory("lake", namespace)) == Path("lake", expected)
