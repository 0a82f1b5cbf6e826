"""The current state in Parquet files: what a batch writes anew, and what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.adaptor.lake import current
from tailrace.message import Op
from tests.adaptor.contract import SAMPLES, Frames, fields, row, write_of
from tests.adaptor.lake.lakes import CurrentLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_only_files_with_a_changed_key_are_written_anew(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is enough to write, and whatever types there are: what is read of a file is what was written."""
    monkeypatch.setattr(current, "LOOK_BYTES_MIN", 0)
    lake = CurrentLake(tmp_path / "lake")
    frames = Frames(lake, spark)
    for number in range(2):
        columns = [pa.array([number], pa.int64()), *SAMPLES.values()]
        data = pa.StructArray.from_arrays(columns, names=["id", *SAMPLES])
        frames.deliver(write_of([(Op.INSERT, row(number))], first=number + 1).with_column("data", data), copy=0)
    first, second = (
        next(file for file in lake.files("main.t") if pq.read_table(file)["id"].to_pylist() == [number])
        for number in range(2)
    )
    inode = first.stat().st_ino

    frames.deliver(write_of([(Op.DELETE, {"id": 1})], first=3, schema=fields(("id", pa.int64()))))

    names = [file.name for file in lake.files("main.t")]
    assert second.name not in names
    kept = lake.files("main.t")[names.index(first.name)]
    assert kept.stat().st_ino == inode
    assert [found["id"] for found in lake.rows("main.t")] == [0]


def test_columns_that_nobody_remembers_stay(tmp_path: Path, spark: SparkSession) -> None:
    """A consumer under another name starts with no knowledge of fields; the table has them, and their types."""
    lake = CurrentLake(tmp_path / "lake")
    wide = fields(("id", pa.int64()), ("v", pa.float64()), ("gone", pa.string()))
    Frames(lake, spark).deliver(write_of([(Op.INSERT, {"id": 1, "v": 0.5, "gone": "kept"})], schema=wide))
    frames = Frames(lake, spark)
    narrow = fields(("id", pa.int64()), ("v", pa.int64()))
    frames.deliver(write_of([(Op.INSERT, {"id": 2, "v": 2})], first=1, schema=narrow))

    assert {str(pq.read_schema(file).remove_metadata()) for file in lake.files("main.t")} == {str(wide)}
    found = {entry["id"]: (entry["v"], entry["gone"]) for entry in lake.rows("main.t")}
    assert found == {1: (0.5, "kept"), 2: (2.0, None)}
