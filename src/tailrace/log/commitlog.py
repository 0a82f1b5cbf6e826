"""The commit log: one writer appends commit groups, each seen whole or not at all.

I1: an append is acknowledged only after its group is on disk, and the directory entry too when the file is new.
I7: a failed fsync is fatal for this log; it is not retried.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tailrace.errors import Place, TailraceError
from tailrace.limits import SEGMENT_BYTES_DEFAULT
from tailrace.log import recovery
from tailrace.log.active import ActiveSegment, End
from tailrace.log.batch import Batch, batches_of
from tailrace.log.consumers import Consumers
from tailrace.log.disk import Disk, disk_error, disk_errors
from tailrace.log.frame import Codec
from tailrace.log.group import Group, OffsetRange
from tailrace.log.head import HeadWriter, LogHead, read_head
from tailrace.log.lock import WRITER_LOCK_NAME, Lock, LockHeld
from tailrace.log.published import Published
from tailrace.log.segment import list_segments
from tailrace.log.staging import Staged, Staging
from tailrace.log.standing import check_own
from tailrace.message import Message, Mode, Offset
from tailrace.namespace import check_file_name


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How a log is written."""

    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    sync_every_s: float | None = 0.0
    """0: every group is on disk before it is acknowledged. Above 0: groups are acknowledged at once and synced that
    often; a power cut loses at most so much. None: the operating system decides."""
    codec: Codec = Codec.LZ4

    def __post_init__(self) -> None:
        if self.segment_bytes <= 0 or (self.sync_every_s is not None and self.sync_every_s < 0):
            raise TailraceError(
                "input.invalid",
                f"segment_bytes {self.segment_bytes} must be above 0, sync_every_s {self.sync_every_s} not below",
                hint="correct the log's settings",
            )


class Pending:
    """A group that is written but perhaps not durable yet."""

    def __init__(self, log: CommitLog, offsets: OffsetRange) -> None:
        self._log = log
        self.range = offsets

    def wait(self) -> OffsetRange:
        """Return when the group is as durable as the configuration promises; only then is it acknowledged (I1)."""
        self._log._acknowledge(self.range.end)
        return self.range


class CommitLog:
    """A log directory open for writing. Use `CommitLog.open`; close it, or use it as a context manager.

    Threads may share it. They take turns in writing; one sync makes all groups durable that were written before it.
    """

    def __init__(
        self, directory: str, config: LogConfig, disk: Disk, lock: Lock, active: ActiveSegment, report: recovery.Report
    ) -> None:
        self.directory = directory
        self.config = config
        self.report = report
        self._disk = disk
        self._lock = lock
        self._active = active
        self._durable = active.end
        self._head = HeadWriter(disk, directory)
        self._turn = threading.RLock()
        """Held while a group is written. Taken before `_syncing` when both are needed."""
        self._syncing = threading.Lock()
        """Held while the active segment is synced and published."""
        self._group_is_open = False
        self._failure: TailraceError | None = None
        self._closed = threading.Event()
        self._published = Published(directory)
        self._has_news = threading.Event()
        self._syncer: threading.Thread | None = None
        self._publish(active.end, durably=True)
        if config.sync_every_s:
            self._start_syncer()

    @classmethod
    def open(
        cls, directory: str | os.PathLike[str], config: LogConfig | None = None, *, disk: Disk | None = None
    ) -> Self:
        """Open a log for writing, creating it when it is not there. `report` says what recovery found and did."""
        path = os.path.abspath(directory)
        disk = disk or Disk()
        lock = Lock(os.path.join(path, WRITER_LOCK_NAME))
        with disk_errors("opening the log", path):
            if not os.path.isdir(path) or not list_segments(path):
                disk.make_directory(path)
            cls._check_standing(path)
            try:
                report = recovery.Report(previous_writer=lock.acquire())
            except LockHeld as held:
                what = f"the log is being written by {held}"
                raise TailraceError("log.locked", what, place=Place(path), hint="stop that writer first") from None
            try:
                active = cls._recover(disk, path, report)
                report.taken_back = Consumers(path, disk=disk).take_back(active.next_offset)
                log = cls(path, config or LogConfig(), disk, lock, active, report)
                log.staging.sweep(lambda: log._published.ranges(active), report)
            except BaseException:
                lock.abandon()
                raise
        return log

    @classmethod
    def _check_standing(cls, directory: str) -> None:
        check_own(directory)

    @classmethod
    def _recover(cls, disk: Disk, directory: str, report: recovery.Report) -> ActiveSegment:
        return open_active(disk, directory, report)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def next_offset(self) -> Offset:
        """The offset that the next message will get."""
        return self._active.next_offset

    @property
    def staging(self) -> Staging:
        """Where tasks put frames before `publish`."""
        return Staging(self.directory, codec=self.config.codec, disk=self._disk)

    def append(self, batches: Iterable[Batch], *, batch_id: str | None = None) -> OffsetRange:
        """Append one commit group and return when it is as durable as the log's configuration promises.

        With a batch id the append is idempotent: a group that the log has already is not appended again.
        """
        return self._write(batches, batch_id).wait()

    def append_soon(self, batches: Iterable[Batch], *, batch_id: str | None = None) -> Pending:
        """Like `append`, but return as soon as the group is written; it is synced while the caller makes the next one.

        Nothing is acknowledged, and no reader sees the group, before it is durable.
        """
        pending = self._write(batches, batch_id)
        self.sync_soon()
        return pending

    def append_messages(self, messages: Iterable[Message], mode: Mode = Mode.SYNC) -> OffsetRange:
        """Append messages as one commit group, in the order given."""
        return self.append(batches_of(messages, mode))

    def publish(self, batch_id: str, staged: Sequence[Staged]) -> OffsetRange:
        """Append what tasks have staged for a batch as one commit group, in the order given. Idempotent by batch id."""
        staging = self.staging
        with self._turn:
            known = self._known(batch_id)
            if known is None:
                with self._writing_group(batch_id) as group:
                    for part in staged:
                        for head, body in staging.frames(batch_id, part):
                            group.add_frame(head, body)
                known = group.range
        self._acknowledge(known.end)
        staging.discard(batch_id)
        return known

    @contextlib.contextmanager
    def group(self, *, waits: bool = True) -> Iterator[Group]:
        """A commit group that is written while it is made, so that it may be larger than memory.

        An exception in the body takes the group back. It is durable when the `with` block is left; unless it `waits`,
        when `sync` returns, and nobody sees it before.
        """
        with self._writing_group(None) as group:
            yield group
        if waits:
            self._acknowledge(group.range.end)

    def sync(self) -> None:
        """Everything appended so far is on disk when this returns, whatever the configuration."""
        self._check_usable()
        self._make_durable(self._active.end.offset)

    def sync_soon(self) -> None:
        """Everything appended so far is on disk before long, while the caller goes on. A failure is told by the next
        call."""
        if self.config.sync_every_s == 0:
            self._start_syncer()
            self._has_news.set()

    def roll(self) -> None:
        """Seal the active segment now, unless it is empty, so that it can be compacted or removed."""
        with self._turn:
            self._check_usable()
            self._check_between_groups()
            if self._active.end.position:
                self._roll()

    def close(self) -> None:
        """Sync, and let the next writer in. Closing twice is no error; a log that failed is not synced again (I7)."""
        with self._turn:
            if self._closed.is_set():
                return
            self._check_between_groups()
            try:
                if self._failure is None:
                    self._make_durable(self._active.end.offset)
            finally:
                self._closed.set()
                self._has_news.set()
                with self._syncing:
                    self._active.close()
                    self._head.close()
                if self._failure is None:
                    self._lock.release()
                else:
                    self._lock.abandon()
        if self._syncer is not None:
            self._syncer.join()

    def _write(self, batches: Iterable[Batch], batch_id: str | None) -> Pending:
        with self._turn:
            if batch_id is not None and (
                known := self._published.ranges(self._active).get(check_file_name(batch_id, "batch id"))
            ):
                return Pending(self, known)
            with self._writing_group(batch_id) as group:
                for batch in batches:
                    group.add(batch)
        return Pending(self, group.range)

    def _known(self, batch_id: str) -> OffsetRange | None:
        """What was appended under a batch id."""
        return self._published.ranges(self._active).get(check_file_name(batch_id, "batch id"))

    @contextlib.contextmanager
    def _writing_group(self, batch_id: str | None) -> Iterator[Group]:
        with self._turn:
            self._check_usable()
            self._check_between_groups()
            if self._active.end.position >= self.config.segment_bytes:
                self._roll()
            active = self._active
            group = Group(active, self.config.codec)
            self._group_is_open = True
            try:
                yield group
                active.finish_group((batch_id,) if batch_id else ())
            except BaseException:
                self._abandon_group()
                raise
            finally:
                self._group_is_open = False
            group.range = OffsetRange(group.range.first, active.next_offset)
            if batch_id is not None and group.range.end > group.range.first:
                self._published.add(batch_id, group.range)

    def _acknowledge(self, end: Offset) -> None:
        """Return when groups up to `end` may be called written."""
        if self.config.sync_every_s == 0:
            self._make_durable(end)
            return
        with self._syncing:
            if self._durable.offset >= end:
                return
            self._check_usable()
            self._publish(self._active.end)

    def _make_durable(self, end: Offset) -> None:
        """Sync, unless another thread's sync has covered it already, then publish (I1)."""
        with self._syncing:
            if self._durable.offset >= end:
                return
            self._check_usable()
            written = self._active.end
            self._sync()
            self._durable = written
            self._active.durable = written.offset
            self._publish(written)

    def _roll(self) -> None:
        """1. The old segment is durable. 2. Its side files are there. 3. The new one is durable. 4. Publish it."""
        old = self._active
        self._make_durable(old.end.offset)
        with self._syncing, self._failing(), disk_errors("starting a new segment", old.path):
            old.seal()
            self._active = ActiveSegment.create(self._disk, self.directory, old.next_offset)
            old.close()
            self._durable = self._active.end
            self._publish(self._active.end, durably=True)

    def _abandon_group(self) -> None:
        try:
            self._active.abandon_group()
        except OSError as error:
            self._failure = disk_error(error, "taking back an incomplete group", self._active.path)

    def _sync(self) -> None:
        try:
            self._active.sync()
        except OSError as error:
            self._failure = TailraceError(
                "log.fsync_failed",
                f"the disk did not confirm a write ({error.strerror}); the log stops, for nobody knows what was kept",
                place=Place(self._active.path),
                hint="check the disk (dmesg), then open the log again: it recovers by itself",
            )
            raise self._failure from error

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """A sync that fails within it is the end of this log (I7)."""
        try:
            yield
        except TailraceError as error:
            if error.code == "log.fsync_failed":
                self._failure = error
            raise

    def _publish(self, end: End, *, durably: bool = False) -> None:
        """Let readers see complete groups. They cannot be taken back any more, so who fails here must not go on."""
        try:
            head = LogHead(self._active.base, end.position, self._durable.position, end.offset)
            self._head.publish(head, durably=durably)
        except OSError as error:
            self._failure = disk_error(error, "publishing a group", self.directory)
            raise self._failure from error

    def _check_usable(self) -> None:
        if self._closed.is_set():
            raise TailraceError("log.closed", "the log was closed", place=Place(self.directory), hint="open it again")
        if self._failure is not None:
            raise TailraceError(
                "log.failed",
                f"the log stopped after an error: {self._failure.what}",
                place=self._failure.place,
                hint="mend the cause, then open the log again",
            ) from self._failure

    def _check_between_groups(self) -> None:
        if self._group_is_open:
            raise TailraceError(
                "log.busy",
                "the log is in the middle of a group that this thread has begun",
                place=Place(self.directory),
                hint="leave the group first",
            )

    def _start_syncer(self) -> None:
        if self._syncer is None:
            self._syncer = threading.Thread(target=self._sync_in_background, name="tailrace-log-sync", daemon=True)
            self._syncer.start()

    def _sync_in_background(self) -> None:
        while not self._closed.is_set() and self._failure is None:
            if self.config.sync_every_s:
                self._closed.wait(self.config.sync_every_s)
            else:
                self._has_news.wait()
                self._has_news.clear()
            with contextlib.suppress(TailraceError):  # kept in _failure: whoever waits or appends next is told
                self._make_durable(self._active.end.offset)


def open_active(disk: Disk, directory: str, report: recovery.Report) -> ActiveSegment:
    """The last segment, ready to grow."""
    recovery.remove_drafts(disk, directory, report)
    bases, head = list_segments(directory), read_head(directory)
    recovery.check_last(directory, bases, head)
    if not bases:
        return ActiveSegment.create(disk, directory, Offset(0))
    disk.sync_directory(directory)  # I1: who created the last segment may have died before its entry was durable
    recovery.check_sealed(disk, directory, bases, report)
    tail = recovery.recover_active(disk, directory, bases[-1], head, report)
    return ActiveSegment(disk, directory, tail)
