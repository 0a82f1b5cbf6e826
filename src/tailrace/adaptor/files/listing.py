"""Which files there are."""

from __future__ import annotations

import glob
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tailrace.adaptor.files.formats import Content, Format, content_of
from tailrace.errors import Place, TailraceError

FILES_MAX: Final = 100_000
"""A position names every file, so there is a limit to them."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the source."""

    name: str
    """Its path below the root."""
    content: Content
    stat: os.stat_result


class Listing:
    """The files that a path means: itself, what is in it, or what matches it.

    Hidden files are left out, and so are links that lead out of a directory, unless the user wants them.
    """

    def __init__(self, path: str, given: Format | None, *, follow_links: bool) -> None:
        self._path = path
        self._given = given
        self._follow_links = follow_links
        self._root = ""
        self._was_found = False
        self._warned: set[str] = set()
        self._is_inside: dict[str, bool] = {}
        """Whether a directory is below the root; looked at once for all files in it."""

    def path_of(self, name: str) -> str:
        self._root = self._root or self._find_root()
        return os.path.join(self._root, name)

    def found(self) -> list[Found]:
        """The files there are now, by name. Raises when what was named outright has never been there."""
        files: list[Found] = []
        self._root = self._find_root()
        self._is_inside.clear()
        try:
            for name, must_be_read in self._names():
                file = self._look(name, must_be_read)
                if file is not None:
                    files.append(file)
                if len(files) > FILES_MAX:
                    raise self._error(
                        "source.unsupported", f"more than {FILES_MAX} files", "move away those that are done"
                    )
        except OSError as error:
            raise self._error(
                "source.unreachable", f"cannot list it: {error.strerror}", "check who may read it"
            ) from error
        self._was_found = self._was_found or bool(files)
        return sorted(files, key=lambda file: file.name)

    def _names(self) -> Iterator[tuple[str, bool]]:
        """Names below the root, and whether a file there must be one we can read."""
        if os.path.isdir(self._path):
            yield from ((name, False) for name in os.listdir(self._path) if not name.startswith("."))
        elif os.path.exists(self._path):
            yield os.path.basename(self._path), True
        elif glob.has_magic(self._path):
            pattern = os.path.relpath(self._path, self._root)
            yield from ((name, True) for name in set(glob.iglob(pattern, root_dir=self._root, recursive=True)))
        elif not self._was_found:
            raise self._error("source.unreachable", "there is no such file or directory", "check the path")

    def _find_root(self) -> str:
        """The directory below which everything is: for a pattern, as far as nothing in it is a wildcard."""
        if os.path.isdir(self._path):
            return self._path
        root = os.path.dirname(self._path)
        while glob.has_magic(root) and not os.path.exists(self._path):
            root = os.path.dirname(root)
        return root

    def _look(self, name: str, must_be_read: bool) -> Found | None:
        path = self.path_of(name)
        try:
            status = os.lstat(path)
            is_link = stat.S_ISLNK(status.st_mode)
            status = os.stat(path) if is_link else status
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode) or not self._may_follow(path, is_link):
            return None
        _check_encoding(name)
        content = content_of(os.path.basename(name), self._given)
        if content is None and must_be_read:
            what = "nothing says in which format the file is"
            raise TailraceError(
                "source.unsupported", what, place=Place(path), hint="set format: jsonl, csv, parquet or avro"
            )
        return None if content is None else Found(name, content, status)

    def _may_follow(self, path: str, is_link: bool) -> bool:
        if self._follow_links or path == self._path:
            return True
        directory = os.path.dirname(path)
        if directory not in self._is_inside:
            self._is_inside[directory] = self._leads_inside(directory)
        if self._is_inside[directory] and (not is_link or self._leads_inside(path)):
            return True
        if path not in self._warned:
            self._warned.add(path)
            _log.warning("%r is left out: a link leads out of the directory (follow_links: true reads it)", path)
        return False

    def _leads_inside(self, path: str) -> bool:
        root = os.path.realpath(self.path_of(""))
        return os.path.commonpath([root, os.path.realpath(path)]) == root

    def _error(self, code: str, what: str, hint: str) -> TailraceError:
        return TailraceError(code, what, place=Place(self._path), hint=hint)


def _check_encoding(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        what = f"the file name {name!r} is not UTF-8"
        raise TailraceError("source.unsupported", what, hint="rename the file") from None
