"""What tests of consumers, retention and compaction are made of: messages, small logs, disks that tell or act."""

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.log.batch import Batch, batches_of, with_key
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import PREFIX, Consumers
from tailrace.log.disk import Disk
from tailrace.log.frame import encode_plain
from tailrace.log.group import OffsetRange
from tailrace.log.offsets import WHOLE_LOG
from tailrace.log.reader import LogReader
from tailrace.log.segment import segment_name
from tailrace.log.session import ConsumerSession
from tailrace.message import Lsn, Message, Micros, Mode, NodeId, Op

FIXTURES = Path(__file__).parent.parent / "fixtures"
SECOND = 1_000_000
NEVER_S = 3600.0
"""A flush interval that no test lives to see."""


def change(
    namespace: str,
    number: int,
    *,
    op: Op = Op.INSERT,
    at_s: float = 1.0,
    origin: int = 0,
    lsn: int = 0,
    destinations: tuple[str, ...] = (),
) -> Message:
    """A message that can be told from others by its number."""
    return Message(
        op=op,
        timestamp=Micros(int(at_s * SECOND)),
        namespace=namespace,
        data={"id": number, "text": f"message {number}"},
        origin=NodeId(origin),
        lsn=Lsn(lsn),
        destinations=destinations,
    )


def fill(log: CommitLog, namespaces: Iterable[str]) -> None:
    """One message, in a group of its own, for each namespace named; its number is its offset."""
    for namespace in namespaces:
        log.append_messages([change(namespace, log.next_offset)])


def make_log(directory: Path, *segments: Iterable[str]) -> None:
    """A closed log with the given segments; the last one is active."""
    with CommitLog.open(directory) as log:
        for number, namespaces in enumerate(segments):
            if number:
                log.roll()
            fill(log, namespaces)


def keyed(
    namespace: str,
    rows: Sequence[tuple[Op, dict[str, Any] | None, dict[str, Any] | None]],
    key: Sequence[str],
) -> Batch:
    """One batch of changes (op, data, before) to rows with a primary key."""
    documents: list[Any] = [data for _, data, _ in rows]
    befores: list[Any] = [before for _, _, before in rows]
    fields = pa.array([row for row in (*documents, *befores) if row is not None]).type
    columns = {
        "op": pa.array([op for op, _, _ in rows], pa.int8()),
        "timestamp": pa.array([SECOND] * len(rows), pa.timestamp("us", tz="UTC")),
        "lsn": pa.array([0] * len(rows), pa.int64()),
        "data": pa.array(documents, fields),
        "before": pa.array(befores, fields),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Batch(namespace, with_key(batch, key))


def append_keyed(
    log: CommitLog,
    namespace: str,
    rows: Sequence[tuple[Op, dict[str, Any] | None, dict[str, Any] | None]],
    key: Sequence[str] = ("id",),
) -> OffsetRange:
    return log.append([keyed(namespace, rows, key)])


def batch(messages: Iterable[Message]) -> list[Batch]:
    return list(batches_of(messages))


def write_plain(directory: Path, base: int, documents: Iterable[tuple[int, str, bytes]]) -> None:
    """A segment as Transporter writes it, from (offset, namespace, JSON)."""
    directory.mkdir(exist_ok=True)
    frames = [
        encode_plain(offset=offset, timestamp_s=1, mode=Mode.SYNC, op=Op.INSERT, key=namespace.encode(), data=data)
        for offset, namespace, data in documents
    ]
    (directory / segment_name(base)).write_bytes(b"".join(frames))


def contents_of(directory: Path) -> list[tuple[int, str]]:
    """What a reader gets: offset and namespace of every message."""
    return [(entry.offset, entry.message.namespace) for entry in LogReader(directory).entries()]


def offsets_of(directory: Path) -> list[int]:
    return [offset for offset, _ in contents_of(directory)]


def has_read(directory: Path, name: str, offset: int, namespace: str = WHOLE_LOG) -> None:
    """The consumer acknowledges everything up to an offset."""
    with ConsumerSession(Consumers(directory), name, flush_s=NEVER_S) as session:
        session.commit(offset, namespace)


def offset_log(directory: Path, name: str) -> Path:
    """The file of a consumer's offset log."""
    return directory / f"{PREFIX}{name}" / segment_name(0)


def transporter_log(directory: Path) -> Path:
    """A copy of the log that the real Transporter wrote."""
    shutil.copytree(FIXTURES / "transporter-xlog", directory)
    return directory


def eventually(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Return as soon as the condition holds; fail when it never does."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.002)


class TellingDisk(Disk):
    """A disk that writes down what it was asked for, by the names of the files."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def rename(self, old: str, new: str) -> None:
        self.calls.append(("rename", Path(new).name))
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.calls.append(("remove", Path(path).name))
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.calls.append(("sync_directory", Path(path).name))
        super().sync_directory(path)


class ActingDisk(Disk):
    """A disk that lets something happen once, just before a file of a certain name is synced or removed."""

    def __init__(self, action: Callable[[], object], *, before_sync: bool = False, before_remove: str = "") -> None:
        self._action: Callable[[], object] | None = action
        self._before_sync = before_sync
        self._before_remove = before_remove

    def sync(self, fd: int) -> None:
        if self._before_sync:
            self._act()
        super().sync(fd)

    def remove(self, path: str) -> None:
        if self._before_remove and path.endswith(self._before_remove):
            self._act()
        super().remove(path)

    def _act(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


class BrokenDisk(Disk):
    """A disk whose syncs fail once it is told so."""

    def __init__(self) -> None:
        self.is_broken = False
        self.failed_syncs = 0

    def sync(self, fd: int) -> None:
        if self.is_broken:
            self.failed_syncs += 1
            raise OSError(5, "Input/output error")
        super().sync(fd)
