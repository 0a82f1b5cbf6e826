"""The history in Parquet files, as Spark reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tailrace.errors import TailraceError
from tailrace.message import Op
from tests.adaptor.contract import FIELDS, Changes, Frames, fields, row, write_of
from tests.adaptor.lake.lakes import HistoryLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_a_plain_reader_sees(tmp_path: Path, spark: SparkSession) -> None:
    """Every message once, with all columns that ever came; a row that moved is deleted where it was. What an operator
    sends again comes once more, and nothing is lost for it."""
    lake = HistoryLake(tmp_path / "lake")
    frames = Frames(lake, spark)
    frames.deliver(write_of([(Op.INSERT, row(1, "one")), (Op.UPDATE, row(2, "moved"), row(1, "one"))], first=5))
    wide = FIELDS.append(pa.field("note", pa.string()))
    frames.deliver(write_of([(Op.DELETE, {**row(2), "note": "new"})], first=7, schema=wide))

    def seen() -> list[tuple[Any, ...]]:
        rows = spark.read.parquet(str(lake.directory("main.t")))
        assert rows.columns == ["_offset", "_op", "_timestamp", "_lsn", *wide.names]
        told = [(found["_offset"], found["_op"], found["id"], found["note"]) for found in rows.collect()]
        return sorted(told, key=str)

    told = [(5, "insert", 1, None), (6, "delete", 1, None), (6, "update", 2, None), (7, "delete", 2, "new")]
    assert seen() == told
    again: Changes = [(Op.UPDATE, row(2, "moved"), row(1, "one")), (Op.DELETE, row(2))]
    frames.deliver(write_of(again, first=6), rewound=7)
    assert seen() == sorted([*told, *told[1:3], (7, "delete", 2, None)], key=str)


def test_a_field_that_is_called_like_one_of_ours(tmp_path: Path, spark: SparkSession) -> None:
    schema = fields(("id", pa.int64()), ("_OFFSET", pa.int64()))
    with pytest.raises(TailraceError) as caught:
        Frames(HistoryLake(tmp_path), spark).deliver(write_of([(Op.INSERT, {"id": 1, "_OFFSET": 2})], schema=schema))
    assert caught.value.code == "destination.refused"
    assert "field _OFFSET of main.t" in caught.value.what
