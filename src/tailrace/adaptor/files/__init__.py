"""Files of JSON lines, CSV, Parquet and Avro."""

from __future__ import annotations

from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.files.options import FilesReaderOptions, FilesWriterOptions
from tailrace.adaptor.registry import Adaptor

ADAPTOR = Adaptor(
    name="files",
    summary="files of JSON lines, CSV, Parquet or Avro; reads what is added, writes all but Parquet",
    reader=FilesReaderOptions,
    writer=FilesWriterOptions,
)
files = endpoint("files", first="path")
