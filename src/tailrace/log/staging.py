"""Staging: tasks on many machines write frames beside the log; one call of the log's writer publishes them all.

Frames wait in `staging/BATCH/`, one file per task. A batch is either in the log or it is not: files of a batch that
was published are removed, files of one that was not stay until it is published or they are old.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from tailrace.errors import Place, TailraceError
from tailrace.limits import STAGING_KEEP_S
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.frame import Codec, Head, place_head
from tailrace.log.recovery import Report
from tailrace.log.segment import FrameFile
from tailrace.namespace import check_file_name

if TYPE_CHECKING:
    from tailrace.log.batch import Batch

DIRECTORY: Final = "staging"
SUFFIX: Final = ".frames"


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task tells the writer about the file it made."""

    name: str
    frames: int
    messages: int
    size: int


class Staging:
    """The staging area of a log; needs no lock, so any process that sees the directory may use it."""

    def __init__(
        self, log_directory: str | os.PathLike[str], *, codec: Codec = Codec.LZ4, disk: Disk | None = None
    ) -> None:
        self._root = os.path.join(os.path.abspath(log_directory), DIRECTORY)
        self._codec = codec
        self._disk = disk or Disk()

    def writer(self, batch_id: str, task: str) -> StagedWriter:
        """A new file for one attempt of one task."""
        directory = self._batch_path(batch_id)
        name = f"{check_file_name(task, 'task')}-{secrets.token_hex(4)}{SUFFIX}"
        with disk_errors("staging a batch", directory):
            self._disk.make_directory(self._root)
            self._disk.make_directory(directory)
            return StagedWriter(self._disk, self._codec, directory, name)

    def frames(self, batch_id: str, staged: Staged) -> Iterator[tuple[Head, memoryview]]:
        """The frames of a staged file, checked against what its task said of it."""
        path = os.path.join(self._batch_path(batch_id), check_file_name(staged.name, "staged file"))
        try:
            file = FrameFile(path)
        except FileNotFoundError:
            raise TailraceError(
                "log.staging_missing",
                f"the staged file of batch {batch_id} is gone",
                place=Place(path),
                hint="run the batch again",
            ) from None
        frames = messages = 0
        with file:
            for located in file.frames():
                frames += located.head.is_batch  # a task stages nothing else
                messages += located.head.messages
                yield located.head, located.body
            size = file.size()
        if (frames, messages, size) != (staged.frames, staged.messages, staged.size):
            raise TailraceError(
                "log.staging_mismatch",
                f"a task said it staged {staged.messages} messages in {staged.frames} frames and {staged.size} bytes,"
                f" but there are {messages} in {frames} and {size}",
                place=Place(path),
                hint="run the batch again",
            )

    def discard(self, batch_id: str) -> None:
        """Remove what was staged for a batch."""
        shutil.rmtree(self._batch_path(batch_id), ignore_errors=True)

    def waiting(self) -> dict[str, int]:
        """The bytes staged for each batch that was not published."""
        if not os.path.isdir(self._root):
            return {}
        names = sorted(entry.name for entry in os.scandir(self._root) if _is_batch(entry))
        return {name: _tree_bytes(os.path.join(self._root, name)) for name in names}

    def sweep(self, published: Callable[[], Mapping[str, object]], report: Report) -> None:
        """After a crash: a batch that is in the log needs its files no more; one that is not keeps them for a day."""
        for batch_id in self.waiting():
            age_s = time.time() - os.stat(os.path.join(self._root, batch_id)).st_mtime
            if batch_id in published() or age_s > STAGING_KEEP_S:
                self.discard(batch_id)
                report.removed.append(f"{DIRECTORY}/{batch_id}")

    def _batch_path(self, batch_id: str) -> str:
        return os.path.join(self._root, check_file_name(batch_id, "batch id"))


class StagedWriter:
    """One task's frames. `close` makes them durable and says what there is; leaving it by an exception removes them."""

    def __init__(self, disk: Disk, codec: Codec, directory: str, name: str) -> None:
        self._disk = disk
        self._codec = codec
        self._directory = directory
        self._path = os.path.join(directory, name)
        self._name = name
        self._fd = disk.create(self._path)
        self._frames = self._messages = self._size = 0

    def add(self, batch: Batch) -> None:
        """Append a batch; the writer gives its messages their offsets."""
        from tailrace.log.batch import encode_frame  # looking at what is staged needs no Arrow

        for piece in batch.pieces():
            if not len(piece):
                continue
            head, body = encode_frame(piece, self._codec)
            placed, encoded = place_head(head, offset=self._messages, closes_group=False)
            with disk_errors("staging a batch", self._path):
                self._size += self._disk.write(self._fd, [encoded, body], self._size)
            self._frames += 1
            self._messages += placed.messages

    def close(self) -> Staged:
        """Every frame is on disk when this returns."""
        with disk_errors("staging a batch", self._path):
            self._disk.sync(self._fd)
            self._close()
            self._disk.sync_directory(self._directory)
        return Staged(self._name, self._frames, self._messages, self._size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abandon()

    def abandon(self) -> None:
        """Remove what was staged."""
        self._close()
        self._disk.remove(self._path)

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._disk.close(fd)


def _is_batch(entry: os.DirEntry[str]) -> bool:
    try:
        check_file_name(entry.name, "batch id")
    except TailraceError:
        return False  # somebody else's
    return entry.is_dir(follow_symlinks=False)


def _tree_bytes(path: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(path)) if os.path.isdir(path) else 0
