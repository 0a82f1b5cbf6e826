"""Cutting: a log ends at an earlier place from now on. What was behind is moved aside, never deleted."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Final

from tailrace.limits import MIB
from tailrace.log import contents, index
from tailrace.log.disk import Disk
from tailrace.log.head import head_path
from tailrace.log.segment import Segment, list_segments, segment_name
from tailrace.log.standing import begin_edition
from tailrace.message import Offset

_COPY_BYTES: Final = 4 * MIB


def set_aside(disk: Disk, directory: str, base: Offset, position: int, why: str) -> str:
    """Move everything from a byte of a segment on into a directory beside the segments, and return its path.

    1. Tell those who copy the log. 2. Copy the rest of the segment. 3. Move later segments. 4. Cut the segment. A crash
    in between leaves a log that can be cut again at the same place. Side files and the head are made anew by whoever
    opens the log.
    """
    begin_edition(disk, directory)
    aside = os.path.join(directory, f"{why}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    disk.make_directory(aside)
    with Segment(directory, base) as segment:
        _copy(disk, segment, position, os.path.join(aside, f"{segment.name}.from-byte-{position}"))
        for later in list_segments(directory):
            if later > base:
                disk.rename(os.path.join(directory, segment_name(later)), os.path.join(aside, segment_name(later)))
        disk.sync_directory(aside)
        fd = disk.open(segment.path)
        try:
            disk.truncate(fd, position)
            disk.sync(fd)
        finally:
            disk.close(fd)
        stale = (contents.contents_path(segment.path), index.index_path(segment.path), head_path(directory))
    for file in stale:
        if os.path.lexists(file):
            disk.remove(file)
    disk.sync_directory(directory)
    return aside


def _copy(disk: Disk, segment: Segment, start: int, path: str) -> None:
    fd = disk.create(path)
    try:
        for at in range(start, segment.size(), _COPY_BYTES):
            disk.write(fd, [segment.bytes_at(at, _COPY_BYTES)], at - start)
        disk.sync(fd)
    finally:
        disk.close(fd)
