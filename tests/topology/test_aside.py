"""Rows that were put aside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, key_of
from tailrace.source.rows import inserted
from tailrace.topology.aside import Aside

HOSTILE = "main." + "x" * 240


def rows(namespace: str, *numbers: int) -> Batch:
    data = pa.StructArray.from_arrays([pa.array(numbers, pa.int64())], ["id"])
    return inserted(namespace, data, ("id",))


def ids(aside: Aside, namespace: str) -> list[int]:
    found: list[int] = []
    for batch in aside.batches(namespace):
        assert key_of(batch.rows.schema) == ("id",)
        data: Any = batch.rows.column("data").to_pylist()
        found += [row["id"] for row in data]
    return found


def test_they_come_back_in_order_and_only_those_of_the_last_time(tmp_path: Path) -> None:
    aside = Aside(str(tmp_path / "aside"))
    aside.begin("main.t")
    aside.put(rows("main.t", 7))
    aside.begin("main.t")
    aside.put(rows("main.t", 1, 2))
    aside.put(rows("main.t", 3))
    aside.begin(HOSTILE)
    aside.put(rows(HOSTILE, 9))
    assert ids(Aside(str(tmp_path / "aside")), "main.t") == [1, 2, 3]
    assert ids(aside, HOSTILE) == [9]
    assert {path.name for path in tmp_path.iterdir()} == {"aside"}, "a name from outside is no name of a file"
    aside.forget("main.t")
    assert ids(aside, HOSTILE) == [9]


def test_damage_is_told(tmp_path: Path) -> None:
    aside = Aside(str(tmp_path))
    aside.begin("main.t")
    aside.put(rows("main.t", 1))
    (found,) = tmp_path.glob("*/*.arrow")
    found.write_bytes(found.read_bytes()[:100])
    with pytest.raises(TailraceError) as caught:
        ids(aside, "main.t")
    assert caught.value.code == "topology.store"
