"""What a user says about files."""

from __future__ import annotations

import os
import shutil
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tailrace.adaptor.files.formats import Format
from tailrace.adaptor.files.listing import Listing
from tailrace.adaptor.options import Bytes, Check, FilePath, Options, ReaderOptions, WriterOptions
from tailrace.deliver.contract import Writer
from tailrace.errors import TailraceError
from tailrace.limits import GIB, MIB
from tailrace.namespace import check_name
from tailrace.source.contract import Reader
from tailrace.units import show_bytes


def _refuse_dash(path: str) -> str:
    if path == "-":
        raise ValueError("- is no file; the adaptor console prints to standard output")
    return path


def _namespace(name: str) -> str:
    try:
        return check_name(name, "namespace")
    except TailraceError as error:
        raise ValueError(error.what) from None


_SPACE_BYTES_MIN: Final = 16 * MIB
"""With less a disk is as good as full."""

Path = Annotated[FilePath, BeforeValidator(_refuse_dash)]


class CsvOptions(Options):
    """How CSV files are written by whoever writes them."""

    delimiter: str = Field(default="", max_length=1)
    """What separates the fields; a comma, in files named .tsv a tab, when not given."""
    quote: str = Field(default='"', min_length=1, max_length=1)
    """What surrounds a field that holds a delimiter or a quote."""
    header: bool = True
    """Whether the first line names the columns."""
    columns: tuple[str, ...] = ()
    """The names of the columns when there is no header."""
    null_values: tuple[str, ...] = ("",)
    """Fields without quotes that stand for no value."""
    quoted_newlines: bool = False
    """Whether a quoted field may hold a line end. Such files are scanned once more before they are read."""
    infer: bool = True
    """Whether columns of whole numbers, numbers and true/false get these types. Otherwise everything is text."""
    types: dict[str, Literal["text", "int", "float", "bool", "date", "timestamp"]] = Field(default_factory=dict)
    """The types of columns that are not to be guessed."""


class FilesReaderOptions(ReaderOptions):
    """Read files of JSON lines, CSV, Parquet or Avro, and what is added to them."""

    path: Path
    """A file, a directory, or a pattern such as `in/*.jsonl`."""
    format: Literal["auto", "jsonl", "csv", "parquet", "avro"] = "auto"
    """What the files hold; `auto` goes by their names. Avro needs the extra: pip install 'tailrace[avro]'."""
    namespace: Annotated[str, AfterValidator(_namespace)] | None = None
    """One namespace for all files; otherwise each has its own, `files.` and its name without extension."""
    key: tuple[str, ...] = ()
    """The columns that identify a row, for destinations that update rows."""
    tail: bool = True
    """Whether to wait for new files and lines. Otherwise what is there at the start is read, the last line too if
    nothing ends it."""
    missing: Literal["fill", "keep"] = "fill"
    """What becomes of a field that a document lacks: `fill` makes it null; `keep` is slow where documents differ."""
    on_malformed: Literal["error", "skip"] = "error"
    """What to do with a line that cannot be read: stop, or log it and go on."""
    follow_links: bool = False
    """Whether to read links that lead out of the directory."""
    piece_bytes: Bytes = 64 * MIB
    """About how much of a file one task reads."""
    unpacked_bytes_max: Bytes = 64 * GIB
    """A compressed file that holds more is refused."""
    csv: CsvOptions = Field(default_factory=CsvOptions)
    """How CSV files are written."""

    def where(self) -> str:
        return self.path

    def open(self) -> Reader:
        from tailrace.adaptor.files.reader import FilesReader

        return FilesReader(self)

    def listing(self) -> Listing:
        """The files that the path means."""
        return Listing(self.path, self.given_format, follow_links=self.follow_links)

    @property
    def given_format(self) -> Format | None:
        """The format, if the user says."""
        return None if self.format == "auto" else Format(self.format)

    def probe(self) -> list[Check]:
        try:
            files = self.listing().found()
        except TailraceError as error:
            return [Check(what="the files can be listed", ok=False, found=error.what, cure=error.hint)]
        unreadable = [file.name for file in files if not os.access(self.listing().path_of(file.name), os.R_OK)]
        check = Check(
            what="the files can be read",
            ok=not unreadable,
            found=f"may not read {unreadable[0]}" if unreadable else f"{len(files)} files",
            cure="check who may read them" if unreadable else "",
        )
        is_avro = self.format == "avro" or any(file.content.format is Format.AVRO for file in files)
        return [check, *_probe_avro(is_avro)]


class FilesWriterOptions(WriterOptions):
    """Write JSON lines, CSV or Avro, one file for each namespace or one for all."""

    path: Path
    """A directory, in which each namespace has its file, or the name of one file with an extension."""
    format: Literal["auto", "jsonl", "csv", "avro"] = "auto"
    """How to write; `auto` goes by the file's name, and is jsonl in a directory. Avro needs the extra: pip install
    'tailrace[avro]'."""
    with_envelope: bool = False
    """Whether to write op, namespace, timestamp, offset and before with each row, or the row alone."""
    deletes: Literal["envelope", "skip"] = "envelope"
    """What to do with a deleted row where rows are written alone: write it with its envelope, or nothing."""

    @model_validator(mode="after")
    def _is_possible(self) -> FilesWriterOptions:
        if self.is_one_file and self.format == "auto" and self._named_format is None:
            raise ValueError(
                "the name of the file does not say its format: end it in .jsonl, .csv or .avro, or set format"
            )
        return self

    @property
    def is_one_file(self) -> bool:
        """Whether all namespaces go into one file."""
        return bool(os.path.splitext(self.path)[1])

    @property
    def chosen_format(self) -> Literal["jsonl", "csv", "avro"]:
        """How lines are written."""
        return self.format if self.format != "auto" else self._named_format or "jsonl"

    @property
    def _named_format(self) -> Literal["jsonl", "csv", "avro"] | None:
        extension = os.path.splitext(self.path)[1].lower()
        if extension in (".csv", ".avro"):
            return "csv" if extension == ".csv" else "avro"
        return "jsonl" if extension in (".jsonl", ".ndjson", ".json") else None

    def where(self) -> str:
        return self.path

    def open(self) -> Writer:
        from tailrace.adaptor.files.writer import FilesWriter

        return FilesWriter(self)

    def probe(self) -> list[Check]:
        directory = os.path.dirname(self.path) if self.is_one_file else self.path
        while not os.path.exists(directory):
            directory = os.path.dirname(directory)
        may_write = os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)
        free = shutil.disk_usage(directory).free
        if may_write and free < _SPACE_BYTES_MIN:
            found, cure = f"only {show_bytes(free)} are free in {directory}", "make room"
        elif may_write:
            found, cure = f"{directory} is writable", ""
        else:
            found, cure = f"may not write in {directory}", "choose another path, or change who may write there"
        check = Check(what="files can be written", ok=not cure, found=found, cure=cure)
        return [check, *_probe_avro(self.chosen_format == "avro")]


def _probe_avro(is_wanted: bool) -> list[Check]:
    if not is_wanted:
        return []
    from tailrace.adaptor.files.avroblocks import avro_package

    try:
        found = f"version {avro_package('source.unsupported').__version__}"
    except TailraceError as error:
        return [Check(what="fastavro", ok=False, found="not installed", cure=error.hint)]
    return [Check(what="fastavro", ok=True, found=found)]
