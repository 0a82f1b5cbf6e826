"""A disk that remembers what was done to it, and what of that a power cut may leave.

The model is the harsh one that POSIX allows. What `sync` did not cover may be lost, kept, torn or reordered by sector;
what `sync_directory` did not cover may be lost or kept. Syncing a file does not make its directory entry durable, nor
the other way round. A failed sync leaves data that no later sync makes durable, as the kernel does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from tailrace.log.disk import Disk

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SECTOR: Final = 512
ROOT: Final = 0
"""The directory in which everything happens. It was there before, so it is durable."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Names of a directory that from now on stand for a file or, where None, for nothing: all of them or none."""

    directory: int
    names: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Write:
    node: int
    at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """All that was done to a file, or to the names of a directory, before operation `covers` is durable."""

    node: int
    covers: int


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """What was written but not durable before operation `covers` will not be made so by any later sync of the file."""

    node: int
    covers: int


Tree = dict[str, "Tree | bytes"]
"""A directory: files and directories by name."""

Op = Bind | Write | Truncate | Sync | SyncFailed


class HastyDisk(Disk):
    """Says that it synced. For looking at what a crash has left, where no other crash will come."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


class Killed(BaseException):
    """The process died here. A dead process does nothing more, so its disk refuses everything from now on."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The nth operation of a kind, or of any, on a file whose path ends so; counted from when the trap was set."""

    nth: int
    kind: str = ""
    suffix: str = ""

    def __str__(self) -> str:
        return f"{self.kind or 'operation'} {self.nth}" + (f" of *{self.suffix}" if self.suffix else "")


@dataclass(frozen=True, slots=True)
class Die:
    """The process dies before or after an operation."""

    at: Moment
    afterwards: bool = False

    def __str__(self) -> str:
        return f"dies {'after' if self.afterwards else 'before'} {self.at}"


@dataclass(frozen=True, slots=True)
class Refuse:
    """The disk refuses an operation. A refused write has written the first half."""

    at: Moment
    error: int

    def __str__(self) -> str:
        return f"meets {errno.errorcode[self.error]} at {self.at}"


Trap = Die | Refuse


@dataclass(slots=True)
class Record:
    """Everything that was done to a disk, by one process after another."""

    ops: list[Op] = field(default_factory=list)
    names: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})
    """The directories as they are now."""
    nodes: int = 1

    def new_node(self) -> int:
        self.nodes += 1
        return self.nodes - 1

    @classmethod
    def of(cls, tree: Tree) -> Record:
        """A disk on which a tree has been for long, so that all of it is durable."""
        record = cls()
        record._adopt(ROOT, tree)
        return record

    def _adopt(self, directory: int, tree: Tree) -> None:
        for name, content in tree.items():
            node = self.new_node()
            self.names[directory][name] = node
            self.ops.append(Bind(directory, {name: node}))
            if isinstance(content, dict):
                self.names[node] = {}
                self._adopt(node, content)
            else:
                self.ops += (Write(node, 0, content), Sync(node, len(self.ops) + 1))
        self.ops.append(Sync(directory, len(self.ops)))


class RecordingDisk(Disk):
    """The disk of one process. Does what it is told below `root`, and records it. Syncs are recorded only: what they
    are for is not to be seen in the directory, but in the images made of the record."""

    def __init__(self, root: str, record: Record, trap: Trap | None = None) -> None:
        self.record = record
        self.begun: list[tuple[str, str]] = []
        """The operations since the trap was set: what was done to which path."""
        self._trap = trap
        self._seen = 0
        """How many of them were of the kind that the trap waits for."""
        self.on_sync: Callable[[], None] = lambda: None
        """Called while a sync is under way: what is written now is not covered by it."""
        self.on_death: Callable[[], None] = lambda: None
        self.on_begin: Callable[[], None] = lambda: None
        """Called before each operation."""
        self._root = os.path.abspath(root)
        self._is_dead = False
        self._files: dict[int, tuple[int, str]] = {}
        self._lock = threading.RLock()

    # What the log calls.

    def create(self, path: str) -> int:
        with self._operation("create", path):
            fd = super().create(path)
            directory, name = self._find_parent(path)
            node = self.record.new_node()
            self._bind(directory, {name: node})
            self._files[fd] = (node, path)
            return fd

    def open(self, path: str) -> int:
        self._check_alive()
        fd = super().open(path)
        self._notice_strangers()
        self._files[fd] = (self._find(path), path)
        return fd

    def write(self, fd: int, buffers: Sequence[ReadableBuffer], at: int) -> int:
        node, path = self._file(fd)
        data = b"".join(bytes(memoryview(buffer)) for buffer in buffers)
        try:
            with self._operation("write", path):
                done = super().write(fd, buffers, at)
                self._add(Write(node, at, data))
                return done
        except OSError:
            half = data[: len(data) // 2]
            super().write(fd, [half], at)
            self._add(Write(node, at, half))
            raise

    def sync(self, fd: int) -> None:
        node, path = self._file(fd)
        self._sync(node, "sync", path)

    def sync_directory(self, path: str) -> None:
        self._notice_strangers()
        node = self._find(path)
        self._sync(node, "sync_directory", path)

    def truncate(self, fd: int, size: int) -> None:
        node, path = self._file(fd)
        with self._operation("truncate", path):
            super().truncate(fd, size)
            self._add(Truncate(node, size))

    def rename(self, old: str, new: str) -> None:
        with self._operation("rename", new):
            super().rename(old, new)
            directory, old_name = self._find_parent(old)
            if self._find_parent(new)[0] != directory:
                raise AssertionError(f"{old} was moved to another directory, which this disk does not know: {new}")
            self._bind(directory, {old_name: None, os.path.basename(new): self.record.names[directory][old_name]})

    def remove(self, path: str) -> None:
        with self._operation("remove", path):
            super().remove(path)
            directory, name = self._find_parent(path)
            self._bind(directory, {name: None})

    def close(self, fd: int) -> None:
        if not self._is_dead:  # death has closed them all
            super().close(fd)
            del self._files[fd]

    # What a test calls.

    def die(self) -> None:
        """End the process: its files are closed, and it does nothing more."""
        self._is_dead = True
        for fd in self._files:
            os.close(fd)
        self._files.clear()
        self.on_death()

    def set_trap(self, trap: Trap | None) -> None:
        """What goes wrong from now on."""
        self._trap = trap
        self._seen = 0
        self.begun.clear()

    def notice(self) -> None:
        """Take up what was done past this disk: directories made and trees removed."""
        self._notice_strangers()

    # How it works.

    @contextlib.contextmanager
    def _operation(self, kind: str, path: str) -> Iterator[None]:
        with self._lock:
            dies = self._begin(kind, path)
            yield
            self._end(dies=dies)

    def _begin(self, kind: str, path: str) -> bool:
        """Whether the process dies at the operation's end."""
        self._check_alive()
        self._notice_strangers()
        self.on_begin()
        self.begun.append((kind, path))
        trap = self._trap
        if trap is None or trap.at.kind not in ("", kind) or not path.endswith(trap.at.suffix):
            return False
        self._seen += 1
        if self._seen != trap.at.nth:
            return False
        if isinstance(trap, Refuse):
            raise OSError(trap.error, os.strerror(trap.error), path)
        if not trap.afterwards:
            self._end(dies=True)
        return True

    def _end(self, *, dies: bool) -> None:
        if dies:
            self.die()
            raise Killed(str(self._trap))

    def _sync(self, node: int, kind: str, path: str) -> None:
        """Others may go on while this waits, so the lock is not held; what they do is not covered."""
        try:
            with self._lock:
                dies = self._begin(kind, path)
                covers = len(self.record.ops)
        except OSError:
            self._add(SyncFailed(node, len(self.record.ops)))
            raise
        self.on_sync()
        self._check_alive()
        self._add(Sync(node, covers))
        self._end(dies=dies)

    def _file(self, fd: int) -> tuple[int, str]:
        self._check_alive()
        return self._files[fd]

    def _check_alive(self) -> None:
        if self._is_dead:
            raise Killed("dead already")

    def _add(self, op: Op) -> None:
        with self._lock:
            self.record.ops.append(op)

    def _bind(self, directory: int, names: dict[str, int | None]) -> None:
        with self._lock:
            self.record.ops.append(Bind(directory, names))
            for name, node in names.items():
                if node is None:
                    del self.record.names[directory][name]
                else:
                    self.record.names[directory][name] = node

    def _find(self, path: str) -> int:
        node = ROOT
        relative = os.path.relpath(path, self._root)
        for name in () if relative == "." else relative.split(os.sep):
            node = self.record.names[node][name]
        return node

    def _find_parent(self, path: str) -> tuple[int, str]:
        return self._find(os.path.dirname(path)), os.path.basename(path)

    def _notice_strangers(self) -> None:
        """Directories are made, and whole trees removed, past this disk. Files are not, but for locks."""
        with self._lock:
            self._notice_in(ROOT, self._root)

    def _notice_in(self, directory: int, path: str) -> None:
        there = {entry.name: entry.is_dir() for entry in os.scandir(path)}
        for name in [name for name in self.record.names[directory] if name not in there]:
            self._bind(directory, {name: None})
        for name, is_directory in there.items():
            if name not in self.record.names[directory] and not name.endswith(".lock"):
                if not is_directory:
                    raise AssertionError(f"{path}/{name} was written past the disk")
                node = self.record.new_node()
                self.record.names[node] = {}
                self._bind(directory, {name: node})
            if is_directory:
                self._notice_in(self.record.names[directory][name], os.path.join(path, name))


class Fates(Protocol):
    """Decides what a power cut does to each thing that was not durable."""

    def keeps_bind(self, bind: Bind, later: int) -> bool:
        """Whether a change of names stays; `later` more were made after it."""

    def keeps_truncate(self, truncate: Truncate) -> bool:
        """Whether a file was made shorter."""

    def pieces(self, write: Write, size: int, later: int) -> list[tuple[int, bytes]]:
        """What of a write reached a file that has `size` bytes; `later` more writes were not durable either."""


def image(record: Record, cut: int, fates: Fates) -> Tree:
    """What is on the disk after power was cut when the first `cut` operations had been done."""
    ops = record.ops[:cut]
    durable = _durable(ops)
    names: dict[int, dict[str, int]] = {}
    files: dict[int, bytearray] = {}
    later_binds = sum(isinstance(op, Bind) and at not in durable for at, op in enumerate(ops))
    later_writes = Counter(op.node for at, op in enumerate(ops) if isinstance(op, Write) and at not in durable)
    for at, op in enumerate(ops):
        match op:
            case Bind(directory, changed):
                if at not in durable:
                    later_binds -= 1
                    if not fates.keeps_bind(op, later_binds):
                        continue
                entries = names.setdefault(directory, {})
                for name, node in changed.items():
                    entries.pop(name, None)
                    if node is not None:
                        entries[name] = node
            case Write(node):
                content = files.setdefault(node, bytearray())
                pieces = [(op.at, op.data)]
                if at not in durable:
                    later_writes[node] -= 1
                    pieces = fates.pieces(op, len(content), later_writes[node])
                for position, data in pieces:
                    _place(content, position, data)
            case Truncate(node, size):
                content = files.setdefault(node, bytearray())
                if at in durable or fates.keeps_truncate(op):
                    del content[size:]
                    content.extend(bytes(size - len(content)))
            case _:
                pass
    return _tree(ROOT, names, files, set(record.names))


def _durable(ops: Sequence[Op]) -> set[int]:
    """Which operations are durable for certain."""
    durable: set[int] = set()
    waiting: dict[int, list[int]] = {}
    written: set[int] = set()
    for at, op in enumerate(ops):
        match op:
            case Bind(directory):
                waiting.setdefault(directory, []).append(at)
            case Write(node) | Truncate(node):
                written.add(node)
                waiting.setdefault(node, []).append(at)
            case Sync(node, covers):
                durable.update(number for number in waiting.get(node, ()) if number < covers)
                waiting[node] = [number for number in waiting.get(node, ()) if number >= covers]
            case SyncFailed(node, covers) if node in written:
                waiting[node] = [number for number in waiting.get(node, ()) if number >= covers]
    return durable


def _place(content: bytearray, at: int, data: bytes) -> None:
    if at > len(content):
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _tree(node: int, names: dict[int, dict[str, int]], files: dict[int, bytearray], directories: set[int]) -> Tree:
    return {
        name: _tree(child, names, files, directories) if child in directories else bytes(files.get(child, b""))
        for name, child in names.get(node, {}).items()
    }


def store(tree: Tree, path: str) -> None:
    """Make a directory that holds a tree."""
    os.makedirs(path, exist_ok=True)
    for name, content in tree.items():
        if isinstance(content, dict):
            store(content, os.path.join(path, name))
        else:
            with open(os.path.join(path, name), "wb", buffering=0) as file:
                file.write(content)
