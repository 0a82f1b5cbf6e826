"""The current state of every namespace: one row per key, in versions of which one is current.

`current` is a link to the directory of a version. A batch makes a new version: files that it does not touch are linked
into it, the others are written anew, and the link is put to it in one step. So readers see one version or the next,
never half of one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.adaptor.lake.columns import table_schema
from tailrace.adaptor.lake.loading import fits, load_files
from tailrace.adaptor.lake.merging import Merge
from tailrace.adaptor.lake.place import (
    SUFFIX,
    attempt_directory,
    data_files,
    log_of,
    make_directory,
    reaching,
    read_note,
    sync_files,
    table_directory,
    write_note,
)
from tailrace.deliver.contract import Target
from tailrace.limits import MIB
from tailrace.log.disk import Disk
from tailrace.message import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.deliver.frames import RowRanges

CURRENT: Final = "current"
VERSIONS: Final = "_versions"
STAGING: Final = "_staging"
STATE: Final = "_tailrace.json"
KEPT: Final = 2
"""So many versions stay, for who reads the last one still."""
FILES_MAX: Final = 64
"""A version of more files than this is rewritten into few."""
LOOK_BYTES_MIN: Final = MIB
"""To look for the files that hold a key takes a job, which costs more than to write so much anew."""


class CurrentLake:
    """Tables that are what their source is."""

    def __init__(self, path: str, consumer: str = "") -> None:
        self._lake = path
        self._log = log_of(consumer)

    @reaching()
    def applied(self, namespace: str) -> Offset | None:
        state = self._state(table_directory(self._lake, namespace))
        return Offset(state["offset"]) if state is not None and self._is_ours(state) else None

    @reaching()
    def write_frame(self, target: Target, frame: DataFrame, upto: Offset) -> None:
        directory = table_directory(self._lake, target.namespace)
        state = self._state(directory)
        files = self._files(directory)
        existing = pq.read_schema(files[0]) if files else None
        schema = table_schema(existing, target)
        merge = Merge(target, schema, frame)
        is_reshaped = existing is not None and not existing.equals(schema)  # files of one version have like columns
        is_pristine = self._is_pristine(target, state, existing, schema)
        staging = attempt_directory(os.path.join(directory, STAGING))
        if is_pristine or not files:
            kept = files
            rows = merge.inserted() if is_pristine else merge.upserted()
        else:
            is_small = sum(map(os.path.getsize, files)) < LOOK_BYTES_MIN
            is_whole = is_reshaped or is_small or len(files) > FILES_MAX
            touched = set(files if is_whole else merge.touched(files))
            kept = [path for path in files if path not in touched]
            rows = merge.merged(sorted(touched))
        rows.write.parquet(f"file://{staging}")
        copy = target.copy if is_pristine else None
        self._publish(directory, staging, kept, self._note(_next_version(state), upto, copy))

    @reaching()
    def load(self, target: Target, frame: DataFrame, ranges: RowRanges, upto: Offset) -> bool:
        directory = table_directory(self._lake, target.namespace)
        state, files = self._state(directory), self._files(directory)
        existing = pq.read_schema(files[0]) if files else None
        schema = table_schema(existing, target)
        if not (self._is_pristine(target, state, existing, schema) and fits(ranges, schema)):
            return False
        staging = attempt_directory(os.path.join(directory, STAGING))
        load_files(frame, ranges, staging, target, schema)
        self._publish(directory, staging, files, self._note(_next_version(state), upto, target.copy))
        return True

    @reaching()
    def clear(self, namespace: str, upto: Offset) -> bool:
        directory = table_directory(self._lake, namespace)
        state, files = self._state(directory), self._files(directory)
        if state is None or not files:
            return True
        staging = attempt_directory(os.path.join(directory, STAGING))
        os.makedirs(staging)
        empty: Any = pq.read_schema(files[0]).empty_table()
        pq.write_table(empty, os.path.join(staging, f"empty-{upto:020d}{SUFFIX}"))
        self._publish(directory, staging, [], self._note(_next_version(state), upto, None))
        return True

    def close(self) -> None:
        """There is nothing to let go of."""

    def _publish(self, directory: str, staging: str, kept: Iterable[str], state: dict[str, Any]) -> None:
        """1. The new version is complete and durable. 2. It is current. 3. Old versions go."""
        name = f"{state['version']:020d}"
        for path in kept:
            os.link(path, os.path.join(staging, os.path.basename(path)))
        sync_files(staging)
        write_note(os.path.join(staging, STATE), state)  # 1.
        versions = os.path.join(directory, VERSIONS)
        make_directory(versions)
        version = os.path.join(versions, name)
        shutil.rmtree(version, ignore_errors=True)
        os.rename(staging, version)
        disk = Disk()
        disk.sync_directory(versions)
        link = os.path.join(directory, f"{CURRENT}.new")
        if os.path.lexists(link):
            os.remove(link)
        os.symlink(os.path.join(VERSIONS, name), link)
        os.rename(link, os.path.join(directory, CURRENT))  # 2.
        disk.sync_directory(directory)
        for old in sorted(os.listdir(versions))[:-KEPT]:  # 3.
            shutil.rmtree(os.path.join(versions, old))

    def _is_pristine(
        self, target: Target, state: dict[str, Any] | None, existing: pa.Schema | None, schema: pa.Schema
    ) -> bool:
        """Whether all that the table has, and all that comes, are rows of one copy, so that none is there twice."""
        is_same_copy = state is None or (self._is_ours(state) and state["copy"] == target.copy)
        is_reshaped = existing is not None and not existing.equals(schema)
        return target.copy is not None and is_same_copy and not is_reshaped

    def _note(self, version: int, upto: Offset, copy: Offset | None) -> dict[str, Any]:
        return {"version": version, "offset": upto, "copy": copy, "log": self._log}

    def _is_ours(self, state: dict[str, Any]) -> bool:
        """Whether the offsets in a note are of the log that is delivered now."""
        return bool(state.get("log") == self._log)

    def _state(self, directory: str) -> dict[str, Any] | None:
        return read_note(os.path.join(directory, CURRENT, STATE))

    def _files(self, directory: str) -> list[str]:
        version = os.path.realpath(os.path.join(directory, CURRENT))
        return [os.path.join(version, name) for name in data_files(version)]


def _next_version(state: dict[str, Any] | None) -> int:
    return 0 if state is None else int(state["version"]) + 1
