"""What is in a piece of a file, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.files.avroblocks import known_header, read_blocks
from tailrace.adaptor.files.avrotypes import arrow_schema
from tailrace.adaptor.files.csvlines import CsvLines
from tailrace.adaptor.files.formats import Content, Format
from tailrace.adaptor.files.jsonlines import JsonLines
from tailrace.adaptor.files.lines import (
    LINE_BYTES_MAX,
    Block,
    blocks_of_range,
    blocks_of_stream,
    divide,
    line_end,
    record_end,
)
from tailrace.adaptor.files.members import FileRange, unpacked
from tailrace.adaptor.files.options import FilesReaderOptions
from tailrace.adaptor.files.rowgroups import divide_row_groups, read_row_groups, schema_of
from tailrace.errors import Place, TailraceError
from tailrace.limits import MIB
from tailrace.log.disk import read_exactly

Part = Mapping[str, Any]
"""A part of a file: bytes `from` and `to`, in Parquet files also row groups."""

_BOM: Final = b"\xef\xbb\xbf"
_SAMPLE_BYTES: Final = MIB


def parts_of(path: str, content: Content, start: int, end: int, options: FilesReaderOptions) -> list[Part]:
    """A file from one byte to another in parts that can be read by themselves."""
    if start == end:
        return []
    if content.format is Format.PARQUET:
        return [{"from": start, "to": end, **groups} for groups in divide_row_groups(path, options.piece_bytes)]
    if content.compression or (content.format is Format.CSV and options.csv.quoted_newlines):
        return [{"from": start, "to": end}]
    with open(path, "rb") as opened:
        fd = opened.fileno()
        ending = known_header(fd, path).marker if content.format is Format.AVRO else b"\n"
        ranges = divide(fd, start, end, options.piece_bytes, path, ending)
    return [{"from": first, "to": last} for first, last in ranges]


def read_part(
    path: str, content: Content, part: Part, options: FilesReaderOptions
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a part, each batch with a number that grows with its place in the part."""
    if content.format is Format.PARQUET:
        yield from _numbered(read_row_groups(path, part["first_group"], part["end_group"]), part["row"])
        return
    start = 0 if content.compression else part["from"]
    with open(path, "rb") as opened:
        if content.format is Format.AVRO:
            yield from _numbered(read_blocks(opened.fileno(), path, part["from"], part["to"]))
            return
        for at, rows in _read_lines(opened.fileno(), path, content, part, options):
            yield at - start, rows


def _numbered(batches: Iterator[pa.RecordBatch], first: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
    for rows in batches:
        yield first, rows
        first += rows.num_rows


def first_schema(path: str, content: Content, size: int, options: FilesReaderOptions) -> pa.Schema:
    """The columns that a file begins with."""
    if content.format is Format.PARQUET:
        return schema_of(path)
    if content.format is Format.AVRO:
        with open(path, "rb") as opened:
            return arrow_schema(known_header(opened.fileno(), path).schema)
    part = {"from": 0, "to": size}
    found = next((rows for _, rows in read_part(path, content, part, options)), None)
    return pa.schema([]) if found is None else found.schema


def _read_lines(
    fd: int, path: str, content: Content, part: Part, options: FilesReaderOptions
) -> Iterator[tuple[int, pa.RecordBatch]]:
    blocks = _without_bom(_blocks(fd, path, content, part, options), path)
    if content.format is Format.JSONL:
        lines = JsonLines(path, keep_missing=options.missing == "keep", skip_malformed=options.on_malformed == "skip")
        for block in blocks:
            yield from lines.batches(block)
    else:
        yield from _read_csv(fd, path, content, part, blocks, options)


def _read_csv(
    fd: int, path: str, content: Content, part: Part, blocks: Iterator[Block], options: FilesReaderOptions
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A file's first lines tell its columns, wherever in it the part is."""
    parser: CsvLines | None = None
    for block in blocks:
        text = block.text
        if parser is None:
            sample = text if content.compression and part["from"] == 0 else _beginning(fd, path, content, part, options)
            parser = CsvLines(path, options.csv, sample, skip_malformed=options.on_malformed == "skip")
            text = text[parser.header_bytes :] if part["from"] == 0 else text
        rows = parser.rows(Block(block.start + len(block.text) - len(text), text)) if text else None
        if rows is not None and rows.num_rows:
            yield block.start, rows


def _beginning(fd: int, path: str, content: Content, part: Part, options: FilesReaderOptions) -> bytes:
    """The first lines of the file in which a part is."""
    if content.compression:
        return next(_without_bom(_blocks(fd, path, content, {**part, "from": 0}, options), path)).text
    text = read_exactly(fd, _SAMPLE_BYTES, 0)
    whole = text[: line_end(text)] or read_exactly(fd, LINE_BYTES_MAX, 0)
    return next(_without_bom(iter([Block(0, whole)]), path)).text


def _blocks(fd: int, path: str, content: Content, part: Part, options: FilesReaderOptions) -> Iterator[Block]:
    is_quoted = content.format is Format.CSV and options.csv.quoted_newlines
    cut = record_end(options.csv.quote.encode()) if is_quoted else line_end
    if not content.compression:
        yield from blocks_of_range(fd, part["from"], part["to"], path, cut)
        return
    try:
        with unpacked(FileRange(fd, part["from"], part["to"]), content.compression) as stream:
            yield from blocks_of_stream(stream, path, options.unpacked_bytes_max, cut)
    except OSError as error:
        what = f"the compressed file is damaged, or was never completed: {error}"
        hint = "put a whole file in its place, or move it away"
        raise TailraceError("source.malformed", what, place=Place(path), hint=hint) from error


def _without_bom(blocks: Iterator[Block], path: str) -> Iterator[Block]:
    for block in blocks:
        if block.start == 0 and block.text.startswith((b"\xff\xfe", b"\xfe\xff")):
            what = "the file is UTF-16; only UTF-8 can be read"
            raise TailraceError(
                "source.unsupported", what, place=Place(path), hint="convert it: iconv -f utf-16 -t utf-8"
            )
        has_mark = block.start == 0 and block.text.startswith(_BOM)
        yield Block(len(_BOM), block.text[len(_BOM) :]) if has_mark else block
