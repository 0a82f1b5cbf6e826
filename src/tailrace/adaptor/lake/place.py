"""Where a lake keeps what: names from outside become paths here, and only here."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import string
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tailrace.errors import Place, TailraceError
from tailrace.log.disk import Disk
from tailrace.namespace import check_name
from tailrace.spark.session import fold

SUFFIX: Final = ".parquet"
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "-._@+")
"""These mean the same to every file system, to Spark, which takes brackets for patterns, and to `deltalake`, which
takes paths for addresses."""
_NAME_BYTES_MAX: Final = 200
_HINDRANCES: Final = (
    *map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)),
    "Mkdirs failed to create",
)
"""How Spark tells that a disk does not do what it should."""
_PATTERN: Final = re.compile(r"[{}\[\]*?\\]")


@contextmanager
def reaching() -> Iterator[None]:
    """Within it what hinders every write, such as a full disk, is told as that: no message is at fault."""
    try:
        yield
    except TailraceError:
        raise
    except Exception as error:
        text = str(error)
        if isinstance(error, OSError) or any(sign in text for sign in _HINDRANCES):
            hint = "see to its place and rights, and run again"
            raise TailraceError("destination.unreachable", f"the lake fails: {fold(error)}", hint=hint) from error
        raise


def table_directory(lake: str, namespace: str) -> str:
    """The directory of a namespace; different namespaces have different ones. Readers pass over names with a leading
    `_` or `.`, so these are spelled out."""
    check_name(namespace, "namespace")
    name = "".join(character if character in _PLAIN else _spelled(character) for character in namespace)
    if name[0] in "_.":
        name = _spelled(name[0]) + name[1:]
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:_NAME_BYTES_MAX]}~~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return os.path.join(lake, name)


def _spelled(character: str) -> str:
    return "".join(f"~{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def log_of(consumer: str) -> str:
    """The log that offsets are of: a lake belongs to one writer of it, whatever that is called."""
    return consumer.rpartition("@")[2]


def attempt_directory(directory: str) -> str:
    """Where Spark may write, below a directory that is emptied. Each attempt gets another place, for the Spark of a
    driver that was killed writes on for a moment."""
    shutil.rmtree(directory, ignore_errors=True)
    make_directory(os.path.dirname(directory))
    return os.path.join(directory, uuid.uuid4().hex)


def data_files(directory: str) -> list[str]:
    """The names of the data files in a directory."""
    if not os.path.isdir(directory):
        return []
    return sorted(name for name in os.listdir(directory) if name.endswith(SUFFIX) and name[0] not in "_.")


def for_spark(paths: Iterable[str]) -> list[str]:
    """Files as Spark is told to read them: it would take a path for a pattern."""
    return ["file://" + _PATTERN.sub(r"\\\g<0>", path) for path in paths]


def read_note(path: str) -> dict[str, Any] | None:
    """A small JSON file of ours, None when there is none."""
    try:
        with open(path, "rb") as stream:
            note: dict[str, Any] = json.load(stream)
            return note
    except FileNotFoundError:
        return None
    except ValueError as error:
        what = f"a lake's note cannot be read: {error}"
        raise TailraceError(
            "destination.refused", what, place=Place(path), hint="remove the table, write it anew"
        ) from error


def write_note(path: str, note: dict[str, Any]) -> None:
    """Write a small JSON file, durably, all or nothing."""
    Disk().replace_file(path, json.dumps(note).encode())


def make_directory(path: str) -> None:
    """A directory that is there for good, and those above it (I3); whoever may read files here may read it."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        os.makedirs(directory, exist_ok=True)
        Disk().sync_directory(os.path.dirname(directory))


def sync_files(directory: str, names: Iterable[str] | None = None) -> None:
    """Every data file of a directory, or those that are named, and their entries are on disk when this returns (I3)."""
    disk = Disk()
    for name in data_files(directory) if names is None else names:
        fd = disk.open(os.path.join(directory, name))
        try:
            disk.sync(fd)
        finally:
            disk.close(fd)
    disk.sync_directory(directory)
