"""A copied log: the same bytes in the same files as the log that it is copied from.

What is damaged or torn here is fetched again, so nothing but the source's own bytes is ever trusted: every frame is
checked before it is written, and nobody sees a group before it is whole and on disk (I1).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tailrace.errors import Place, TailraceError
from tailrace.log import identity, recovery
from tailrace.log.active import ActiveSegment
from tailrace.log.commitlog import CommitLog, open_active
from tailrace.log.consumers import Consumers
from tailrace.log.cutting import set_aside
from tailrace.log.disk import Disk, disk_errors
from tailrace.log.head import HeadWriter
from tailrace.log.published import Published
from tailrace.log.repair import find_damage
from tailrace.log.segment import Located, list_segments
from tailrace.log.standing import Standing, keep_standing, new_edition, standing_of
from tailrace.message import Offset


class Spot(NamedTuple):
    """A byte of a log."""

    base: Offset
    """The segment."""
    position: int


class CopiedLog(CommitLog):
    """A log directory that only `copy` writes."""

    @classmethod
    def begin(cls, directory: str, base: Offset, log_id: str, standing: Standing, *, disk: Disk | None = None) -> None:
        """Make an empty copy of a log whose first segment has this base. A crash in between leaves none."""
        disk = disk or Disk()
        with disk_errors("making a copy of a log", directory):
            disk.make_directory(directory)
            identity.adopt(directory, log_id, disk)
            keep_standing(disk, directory, Standing(standing.generation, is_copy=True, edition=new_edition()))
            ActiveSegment.create(disk, directory, base).close()

    @property
    def spot(self) -> Spot:
        """Up to here all groups are whole."""
        return Spot(self._active.base, self._active.end.position)

    @property
    def durable_offset(self) -> Offset:
        """Before this all is on disk."""
        return self._durable.offset

    def copy(self, base: Offset, frames: Iterable[tuple[Located, memoryview]]) -> None:
        """Write frames, whose checksums were right, as the source has them in one of its segments. `sync` makes those
        durable whose groups are whole."""
        with self._turn:
            self._check_usable()
            if base != self._active.base:
                self._begin_segment(base)
            for frame, raw in frames:
                self._active.copy(frame, raw)

    def forget_rest(self) -> None:
        """What came of a group that is not whole comes again."""
        with self._turn:
            self._check_usable()
            self._abandon_group()

    def cut(self, spot: Spot) -> str:
        """End at an earlier place; what was behind is put aside, and readers that were further are taken back."""
        with self._turn, self._syncing, disk_errors("cutting a copied log", self.directory):
            self._check_usable()
            self._active.close()
            self._head.close()
            aside = set_aside(self._disk, self.directory, spot.base, spot.position, "diverged")
            self._active = self._recover(self._disk, self.directory, self.report)
            self._head = HeadWriter(self._disk, self.directory)
            self._durable = self._active.end
            self._published = Published(self.directory)
            self._publish(self._active.end, durably=True)
            self.report.taken_back += Consumers(self.directory, disk=self._disk).take_back(self._active.next_offset)
        return aside

    def rise(self, generation: int) -> None:
        """Be of a later generation, as the source is."""
        keep_standing(self._disk, self.directory, replace(standing_of(self.directory), generation=generation))

    def _begin_segment(self, base: Offset) -> None:
        if base != self._active.next_offset:
            what = f"the source's next segment begins at offset {base}, the copy ends at {self._active.next_offset}"
            raise TailraceError("topology.mismatch", what, place=Place(self.directory), hint="it is matched again")
        self._roll()

    @classmethod
    def _check_standing(cls, directory: str) -> None:
        if list_segments(directory) and not standing_of(directory).is_copy:
            what = "the log that is here is no copy of another one"
            raise TailraceError("topology.not_a_copy", what, place=Place(directory), hint="name an empty directory")

    @classmethod
    def _recover(cls, disk: Disk, directory: str, report: recovery.Report) -> ActiveSegment:
        """Damage is cut off: the source has it whole."""
        try:
            return open_active(disk, directory, report)
        except TailraceError as error:
            damage = find_damage(directory) if error.code == "log.corrupt" else None
            if damage is None:
                raise
            set_aside(disk, directory, damage.base, damage.position, "damaged")
            return open_active(disk, directory, report)


def promote(directory: str, *, disk: Disk | None = None) -> Standing:
    """Make a copy that nobody writes a log of its own, of the next generation."""
    if not standing_of(directory).is_copy:
        what = "the log that is here is no copy of another one, so it can be written already"
        raise TailraceError("topology.not_a_copy", what, place=Place(directory), hint="name a replica's directory")
    with CopiedLog.open(directory, disk=disk) as copied:
        copy = standing_of(directory)
        risen = replace(copy, generation=copy.generation + 1, is_copy=False)
        keep_standing(copied._disk, directory, risen)
        return risen


def is_begun(directory: str) -> bool:
    """Whether there is a copy to go on with."""
    return os.path.isdir(directory) and bool(list_segments(directory))
