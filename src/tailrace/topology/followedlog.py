"""A copied log, as what a replica's store is brought up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.errors import TailraceError
from tailrace.log.view import LogView
from tailrace.message import NodeId, Offset
from tailrace.relay.vclock import LOCAL

if TYPE_CHECKING:
    from tailrace.log.batch import Batch


class FollowedLog:
    """Nothing in it was written here, and nothing can be."""

    node: NodeId = LOCAL

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.view = LogView(directory)

    @property
    def end(self) -> Offset:
        return self.view.head().next_offset

    @property
    def first(self) -> Offset:
        return self.view.bases()[0]

    def append_local(self, batches: Sequence[Batch]) -> object:
        raise TailraceError("log.is_copy", f"{len(batches)} batches for a log that is a copy", hint="report it")
