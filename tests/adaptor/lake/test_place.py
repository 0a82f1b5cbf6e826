"""Names from outside as directories."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.adaptor.lake.options import LakeWriterOptions
from tailrace.adaptor.lake.place import reaching, table_directory
from tailrace.deliver.contract import Target
from tailrace.errors import TailraceError
from tailrace.message import Offset
from tests.adaptor.contract import FIELDS, HOSTILE_NAMES, KEY

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


@pytest.mark.parametrize(
    "error", [NotADirectoryError(20, "Not a directory"), RuntimeError("java.io.IOException: No space left on device")]
)
def test_what_hinders_every_write_is_no_fault_of_a_message(error: Exception) -> None:
    """With dead letters all messages would end there."""
    with pytest.raises(TailraceError) as caught, reaching():
        raise error
    assert caught.value.code == "destination.unreachable"
    with pytest.raises(RuntimeError), reaching():
        raise RuntimeError("no such column")


def test_a_lake_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for form in ({}, {"keep": "history"}, {"format": "delta"}):
        options = LakeWriterOptions.model_validate({"path": str(tmp_path / "file" / "lake"), **form})
        writer: Any = options.open()
        target = Target("main.t", FIELDS, KEY)
        with pytest.raises(TailraceError) as caught:
            writer.write_frame(target, None, Offset(0))
        assert caught.value.code == "destination.unreachable"
