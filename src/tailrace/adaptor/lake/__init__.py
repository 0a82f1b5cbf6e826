"""A lake: Parquet files written by Spark, or Delta tables; one directory per namespace."""

from __future__ import annotations

from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.lake.options import LakeWriterOptions
from tailrace.adaptor.registry import Adaptor

lake = endpoint("lake", first="path")

ADAPTOR = Adaptor(
    name="lake",
    summary="Parquet files (current state or full history) or Delta tables, one directory per namespace",
    writer=LakeWriterOptions,
)
