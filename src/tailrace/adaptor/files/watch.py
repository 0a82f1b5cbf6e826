"""Watching files: how far each of them can be read now."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from tailrace.adaptor.files.formats import Content, content_of
from tailrace.adaptor.files.listing import Found
from tailrace.adaptor.files.marks import Mark, is_settled, mark_of
from tailrace.adaptor.files.members import Members, members_of
from tailrace.adaptor.files.names import namespace_of
from tailrace.adaptor.files.options import FilesReaderOptions
from tailrace.errors import Place, TailraceError

_log = logging.getLogger(__name__)


class Watch:
    """The files of a source. What it remembers only saves looking again into those that nobody has touched."""

    def __init__(self, options: FilesReaderOptions) -> None:
        self._options = options
        self._listing = options.listing()
        self._seen: dict[str, tuple[int, ...]] = {}
        self._marks: dict[str, Mark | None] = {}
        self._unfinished: dict[str, Members | None] = {}
        """Files that are not complete, and what follows those that are compressed."""

    def marks(self) -> dict[str, Mark]:
        """The marks of all files that can be read now, by name."""
        files = self._listing.found()
        seen = {file.name: _touched(file) for file in files}
        news = [file for file in files if self._seen.get(file.name) != seen[file.name]]
        marks = {**self._marks, **dict(zip((file.name for file in news), self._look_into(news), strict=True))}
        self._seen, self._marks = seen, {name: marks[name] for name in seen}
        self._unfinished = {name: members for name, members in self._unfinished.items() if name in seen}
        return {name: mark for name, mark in self._marks.items() if mark is not None}

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

    def _look_into(self, files: list[Found]) -> Iterable[Mark | None]:
        if sum(bool(file.content.compression) for file in files) < 2:
            return [self._look(file) for file in files]
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # to unpack is work
            return list(pool.map(self._look, files))

    def _look(self, file: Found) -> Mark | None:
        compression = file.content.compression
        members = self._unfinished.get(file.name)
        if compression and members is None:
            members = members_of(compression, self._options.unpacked_bytes_max)
        path = self.path_of(file.name)
        mark = mark_of(path, file, self._options, members)
        if file.content.has_plain_lines or (mark is not None and mark.size == file.stat.st_size):
            self._unfinished.pop(file.name, None)
            return mark
        if file.name not in self._unfinished and os.path.exists(path):
            _log.warning("%r is not complete yet; what is missing is read when it is there", path)
        self._unfinished[file.name] = members
        return mark


def _touched(file: Found) -> tuple[int, ...]:
    """What tells whether to look into a file again: whether it was changed, or will not be any more."""
    status = file.stat
    is_final = not file.content.has_plain_lines and is_settled(file)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, is_final
