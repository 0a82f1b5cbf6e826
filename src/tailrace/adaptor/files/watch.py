"""Watching files: how far each of them can be read now."""

from __future__ import annotations

import os

from tailrace.adaptor.files.formats import Content, content_of
from tailrace.adaptor.files.listing import Found
from tailrace.adaptor.files.marks import Mark, mark_of
from tailrace.adaptor.files.names import namespace_of
from tailrace.adaptor.files.options import FilesReaderOptions
from tailrace.errors import Place, TailraceError


class Watch:
    """The files of a source. What it remembers only saves looking again into those that nobody has touched."""

    def __init__(self, options: FilesReaderOptions) -> None:
        self._options = options
        self._listing = options.listing()
        self._remembered: dict[str, tuple[tuple[int, ...], Mark | None]] = {}

    def marks(self) -> dict[str, Mark]:
        """The marks of all files that can be read now, by name."""
        remembered, self._remembered = self._remembered, {}
        for file in self._listing.found():
            touched = _touched(file)
            known = remembered.get(file.name)
            if known is None or known[0] != touched:
                known = touched, mark_of(self.path_of(file.name), file, self._options)
            self._remembered[file.name] = known
        return {name: mark for name, (_, mark) in self._remembered.items() if mark is not None}

    def path_of(self, name: str) -> str:
        return self._listing.path_of(name)

    def content_of(self, name: str) -> Content:
        """What a file holds. Raises when it is none of this source."""
        content = content_of(os.path.basename(name), self._options.given_format)
        if content is None:
            what = "the format of a file has changed since it was planned to read it"
            raise TailraceError("source.position_lost", what, place=Place(name), hint="set format as it was")
        return content

    def namespace_of(self, name: str) -> str:
        return self._options.namespace or namespace_of(self.content_of(name).stem)


def _touched(file: Found) -> tuple[int, ...]:
    status = file.stat
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
