"""As what a table is written into files."""

from __future__ import annotations

from enum import StrEnum


class TableFormat(StrEnum):
    """A format of files."""

    PARQUET = "parquet"
    JSONL = "jsonl"
