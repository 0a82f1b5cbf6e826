"""Files of JSON lines, CSV and Parquet."""

from __future__ import annotations

from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.files.options import FilesReaderOptions, FilesWriterOptions
from tailrace.adaptor.registry import Adaptor

ADAPTOR = Adaptor(
    name="files",
    summary="files of JSON lines, CSV or Parquet; reads what is added, writes JSON lines or CSV",
    reader=FilesReaderOptions,
    writer=FilesWriterOptions,
)
files = endpoint("files", first="path")
