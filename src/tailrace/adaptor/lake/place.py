"""Where a lake keeps what: names from outside become paths here, and only here."""

from __future__ import annotations

import json
import os
from typing import Any, Final
from urllib.parse import quote

from tailrace.errors import Place, TailraceError
from tailrace.log.disk import Disk
from tailrace.namespace import check_name

SUFFIX: Final = ".parquet"


def table_directory(lake: str, namespace: str) -> str:
    """The directory of a namespace. Readers pass over names with a leading `_` or `.`, so these are spelled out."""
    name = quote(check_name(namespace, "namespace"), safe="@+=, ()[]{}!$&'~-._")
    if name[0] in "_.":
        name = f"%{ord(name[0]):02X}{name[1:]}"
    return os.path.join(lake, name)


def data_files(directory: str) -> list[str]:
    """The names of the data files in a directory."""
    if not os.path.isdir(directory):
        return []
    return sorted(name for name in os.listdir(directory) if name.endswith(SUFFIX) and name[0] not in "_.")


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


def sync_files(directory: str) -> None:
    """Every file of a directory, and its entry, is on disk when this returns (I3)."""
    disk = Disk()
    for name in data_files(directory):
        fd = disk.open(os.path.join(directory, name))
        try:
            disk.sync(fd)
        finally:
            disk.close(fd)
    disk.sync_directory(directory)
