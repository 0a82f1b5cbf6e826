"""A crash between any two steps of a write: readers see one state or the other, and a new start goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.adaptor.lake import current
from tailrace.message import Op
from tests.adaptor.contract import Frames, fields, row, write_of
from tests.adaptor.lake.lakes import CurrentLake, HistoryLake, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS: Final = ("rename", "link", "symlink", "remove", "unlink", "rmdir", "mkdir")
"""What changes names on a disk."""


@contextmanager
def watching(lake: Path, kept: Path) -> Iterator[list[Path]]:
    """Keeps what a crash would leave before each step."""
    moments: list[Path] = []
    is_inside = False

    def kept_before(step: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any, **options: Any) -> Any:
            nonlocal is_inside
            if not is_inside:
                is_inside = True
                try:
                    moments.append(Path(shutil.copytree(lake, kept / str(len(moments)), symlinks=True)))
                finally:
                    is_inside = False
            return step(*arguments, **options)

        return do

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, kept_before(getattr(os, name)))
        yield moments


def applied_of(lake: Lake, spark: SparkSession) -> int:
    """What a new start learns from the lake."""
    applied = Frames(lake, spark).applied()
    assert applied is not None
    return applied


def test_current(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a file that is kept and one that is not."""
    monkeypatch.setattr(current, "LOOK_BYTES_MIN", 0)
    lake = CurrentLake(tmp_path / "lake")
    frames = Frames(lake, spark)
    frames.deliver(write_of([(Op.INSERT, row(1, "one"))], first=1), copy=0)
    frames.deliver(write_of([(Op.INSERT, row(2, "two"))], first=2), copy=0)
    changes = write_of([(Op.UPDATE, row(1, "changed")), (Op.INSERT, row(3))], first=3)
    old, new = [row(1, "one"), row(2, "two")], [row(1, "changed"), row(2, "two"), row(3)]
    with watching(lake.path, tmp_path / "kept") as moments:
        frames.deliver(changes)
    assert sorted(lake.rows("main.t"), key=str) == new

    seen: list[int] = []
    for moment in moments:
        left = CurrentLake(moment)
        seen.append(applied_of(left, spark))
        assert sorted(left.rows("main.t"), key=str) == {2: old, 4: new}[seen[-1]]
    assert seen == sorted(seen)
    assert set(seen) == {2, 4}
    last = CurrentLake(moments[seen.count(2) - 1])
    Frames(last, spark).deliver(changes)
    assert sorted(last.rows("main.t"), key=str) == new


def test_history(tmp_path: Path, spark: SparkSession) -> None:
    """With a wider type, so that all files are written anew."""
    lake = HistoryLake(tmp_path / "lake")
    frames = Frames(lake, spark)
    whole, real = (fields(("id", pa.int64()), ("v", kind)) for kind in (pa.int64(), pa.float64()))
    frames.deliver(write_of([(Op.INSERT, {"id": 1, "v": 1})], schema=whole))
    frames.deliver(write_of([(Op.INSERT, {"id": 2, "v": 2})], first=1, schema=whole))
    changes = write_of([(Op.UPDATE, {"id": 1, "v": 0.5}), (Op.DELETE, {"id": 2})], first=2, schema=real)
    with watching(lake.path, tmp_path / "kept") as moments:
        frames.deliver(changes)

    def rows(left: HistoryLake) -> list[tuple[Any, ...]]:
        found = [(entry["_offset"], entry["_op"], entry["v"]) for entry in left.rows("main.t")]
        return sorted(found)

    old: list[tuple[Any, ...]] = [(0, "insert", 1), (1, "insert", 2)]
    new = [*old, (2, "update", 0.5), (3, "delete", None)]
    assert rows(lake) == new
    seen: list[int] = []
    for moment in moments:
        left = HistoryLake(moment)
        offsets = {offset for file in left.files("main.t") for offset in pq.read_table(file)["_offset"].to_pylist()}
        assert offsets >= {0, 1}, "a reader misses rows that were there"
        seen.append(applied_of(left, spark))
        assert rows(left) == {1: old, 3: new}[seen[-1]], "a new start does not go on where the old one was"
    assert set(seen) == {1, 3}
    last = HistoryLake(moments[seen.count(1) - 1])
    Frames(last, spark).deliver(changes)
    assert rows(last) == new
