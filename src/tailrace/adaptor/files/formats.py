"""What is in a file, told by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from tailrace.errors import Place, TailraceError

Kind = TypeVar("Kind")


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    AVRO = "avro"


@dataclass(frozen=True, slots=True)
class Content:
    """A file's format, how it is compressed ("" when it is not), and its name without the extensions that say so."""

    format: Format
    compression: str
    stem: str

    @property
    def has_plain_lines(self) -> bool:
        """Whether everybody can see where a line ends."""
        return self.format in (Format.JSONL, Format.CSV) and not self.compression

    @property
    def is_appendable(self) -> bool:
        """Whether the file may grow; others are read as a whole."""
        return self.format is not Format.PARQUET


_FORMATS: Final = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".avro": Format.AVRO,
}
_COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd"}


def content_of(name: str, given: Format | None) -> Content | None:
    """What a file of this name holds; None when neither the name nor the user says."""
    stem, compression = _strip(name, _COMPRESSIONS)
    stem, found = _strip(stem, _FORMATS)
    chosen = given or found
    if chosen is None:
        return None
    if chosen in (Format.PARQUET, Format.AVRO) and compression:
        what = "Parquet and Avro files are compressed inside, not as a whole"
        raise TailraceError("source.unsupported", what, place=Place(name), hint="unpack the file")
    return Content(chosen, compression or "", stem)


def _strip(name: str, kinds: Mapping[str, Kind]) -> tuple[str, Kind | None]:
    for extension, kind in kinds.items():
        if name.lower().endswith(extension) and len(name) > len(extension):
            return name[: -len(extension)], kind
    return name, None
