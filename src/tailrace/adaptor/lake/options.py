"""What can be said about a lake."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, Self

from pydantic import model_validator

from tailrace.adaptor.options import Check, FilePath, FilledIn, Seconds, WriterOptions

if TYPE_CHECKING:
    from tailrace.deliver.contract import FrameWriter
    from tailrace.deliver.messages import Messages
    from tailrace.verify.contract import ReadBack


class Keep(StrEnum):
    """What the lake has of a namespace."""

    CURRENT = "current"
    HISTORY = "history"


class Format(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"


MISREAD: Final = frozenset("%[]\\^|")
"""The package deltalake, which takes paths for addresses, cannot read or write below a directory with one of these."""


class LakeWriterOptions(WriterOptions):
    """A directory that holds one table per namespace."""

    on_driver: ClassVar[bool] = True

    path: FilePath
    """The lake's directory."""
    keep: Keep = Keep.CURRENT
    """`current`: one row per key, as it is now. `history`: one row per message, with op, offset and timestamp."""
    format: Format = Format.PARQUET
    """`parquet`, or `delta` (needs the extra: pip install 'tailrace[delta]')."""
    every: Seconds = 2.0
    """Gather messages for so long, for every batch makes files."""
    consumer: FilledIn = ""
    """Set by the pipeline: whose offsets the lake records."""

    @model_validator(mode="after")
    def _path_of_delta(self) -> Self:
        if self.format is Format.DELTA and (found := sorted(MISREAD & set(self.path))):
            raise ValueError(f"the path of a Delta lake must not have the character {found[0]}")
        return self

    @property
    def every_s(self) -> float:
        return self.every

    def where(self) -> str:
        return self.path

    def open(self) -> FrameWriter:
        if self.format is Format.DELTA:
            from tailrace.adaptor.lake.delta import DeltaLake

            return DeltaLake(self.path, self.keep, self.consumer)
        if self.keep is Keep.HISTORY:
            from tailrace.adaptor.lake.history import HistoryLake

            return HistoryLake(self.path, self.consumer)
        from tailrace.adaptor.lake.current import CurrentLake

        return CurrentLake(self.path, self.consumer)

    def examine(self, messages: Messages) -> None:
        from tailrace.adaptor.lake.examining import examine_change, examine_event

        examine_event(messages) if self.keep is Keep.HISTORY else examine_change(messages)

    def read_back(self) -> ReadBack | str:
        if self.keep is Keep.HISTORY:
            return "it keeps the history, not the current state"
        from tailrace.adaptor.lake.comparing import DeltaReadBack, ParquetReadBack

        return DeltaReadBack(self.path) if self.format is Format.DELTA else ParquetReadBack(self.path)

    def probe(self) -> list[Check]:
        place = os.path.abspath(self.path)
        while not os.path.exists(place):
            place = os.path.dirname(place)
        is_writable = os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)
        cure = "" if is_writable else f"make {place} a directory that you may write to"
        checks = [
            Check(
                what="lake directory",
                ok=is_writable,
                found=f"{place} can be written to" if is_writable else f"{place} cannot be written to",
                cure=cure,
            )
        ]
        if self.format is Format.DELTA:
            checks.append(_probe_delta())
        return checks


def _probe_delta() -> Check:
    try:
        import deltalake
    except ImportError:
        return Check(what="deltalake", ok=False, found="not installed", cure="pip install 'tailrace[delta]'")
    return Check(what="deltalake", ok=True, found=f"version {deltalake.__version__}")
