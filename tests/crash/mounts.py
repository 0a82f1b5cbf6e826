"""Small disks of our own, in a process that has its own mounts: nobody else sees them, and they go when it ends."""

from __future__ import annotations

import ctypes
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crash.children import Child

_NEW_NAMESPACE: Final = 0x00020000
_READ_ONLY: Final = 1
_REMOUNT: Final = 32
_BIND: Final = 4096
_RECURSIVE: Final = 16384
_PRIVATE: Final = 1 << 18

needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk: run as root")


def on_small_disk(tmp_path: Path, test: Callable[[Path], None], *, size: str = "256k") -> None:
    """Run a test in another process, with a disk of that size to itself."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with Child(_run, disk, size, test) as child:
        failure = child.hear()
    assert failure == "", failure


def _run(connection: Connection[Any, Any], disk: Path, size: str, test: Callable[[Path], None]) -> None:
    try:
        _call("unshare", _NEW_NAMESPACE)
        _mount("none", "/", None, _RECURSIVE | _PRIVATE)
        _mount("small", str(disk), "tmpfs", 0, f"size={size}")
        test(disk)
    except BaseException:  # noqa: BLE001  told to the process that waits
        connection.send(traceback.format_exc())
    else:
        connection.send("")


def make_read_only(disk: Path) -> None:
    """Nothing on the disk may be open for writing."""
    _mount("small", str(disk), None, _REMOUNT | _READ_ONLY)


def make_writable(disk: Path) -> None:
    _mount("small", str(disk), None, _REMOUNT)


def show_read_only(directory: Path, at: Path) -> None:
    """The same directory once more, for reading only."""
    at.mkdir()
    _mount(str(directory), str(at), None, _BIND)
    _mount("none", str(at), None, _BIND | _REMOUNT | _READ_ONLY)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = (source, target, kind)
    _call("mount", *(word and word.encode() for word in words), ctypes.c_ulong(flags), data and data.encode())


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
