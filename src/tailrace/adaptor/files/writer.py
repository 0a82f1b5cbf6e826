"""Writing files: a line or a row for each message."""

from __future__ import annotations

import os

from tailrace.adaptor.files.avroblocks import ends_with_marker
from tailrace.adaptor.files.avrorows import AvroRows
from tailrace.adaptor.files.csvtext import CsvText
from tailrace.adaptor.files.datafile import DataFile, ends_with_line
from tailrace.adaptor.files.names import file_stem_of
from tailrace.adaptor.files.options import FilesWriterOptions
from tailrace.adaptor.files.rendering import json_lines
from tailrace.adaptor.files.tabular import Tabular
from tailrace.deliver.contract import Spread, Target
from tailrace.deliver.messages import Messages
from tailrace.message import Offset


class FilesWriter:
    """Files as a destination, effectively once."""

    def __init__(self, options: FilesWriterOptions) -> None:
        self._options = options
        self._files: dict[str, DataFile] = {}
        self._tables: dict[str, Tabular] = {}
        self._written: dict[str, set[str]] = {}
        self.spread = Spread.NONE if options.is_one_file else Spread.NAMESPACE

    def applied(self, namespace: str) -> Offset | None:
        return self._file(namespace).applied(namespace)

    def prepare(self, target: Target) -> None:
        file = self._file(target.namespace)
        if self._options.chosen_format != "jsonl":
            self._table(file).prepare(target.schema)

    def write(self, messages: Messages) -> None:
        file = self._file(messages.namespace)
        file.open()
        self._written.setdefault(file.path, set()).add(messages.namespace)
        applied = file.applied(messages.namespace)
        fresh = messages if applied is None else messages.after(applied)
        if not len(fresh):
            return
        if self._options.chosen_format != "jsonl":
            self._table(file).write(fresh)
        else:
            deletes = self._options.deletes
            file.append(json_lines(fresh, with_envelope=self._options.with_envelope, deletes=deletes))

    def commit(self, upto: Offset) -> None:
        for path, namespaces in self._written.items():
            self._files[path].commit(namespaces, upto)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _file(self, namespace: str) -> DataFile:
        path = self._options.path
        if not self._options.is_one_file:
            path = os.path.join(path, f"{file_stem_of(namespace)}.{self._options.chosen_format}")
        is_whole = ends_with_marker if self._options.chosen_format == "avro" else ends_with_line
        return self._files.setdefault(path, DataFile(path, is_whole))

    def _table(self, file: DataFile) -> Tabular:
        if file.path not in self._tables:
            options = self._options
            kind = CsvText if options.chosen_format == "csv" else AvroRows
            self._tables[file.path] = kind(file, with_envelope=options.with_envelope, deletes=options.deletes)
        return self._tables[file.path]
