"""Where the rows come from that a replica's store begins with: a node of the same log that has a store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.log.identity import identity_of as log_identity
from tailrace.log.standing import standing_of
from tailrace.node.identity import identity_of
from tailrace.relay.joining import Joining, Taken
from tailrace.topology.following import Following

if TYPE_CHECKING:
    from tailrace.relay.applier import Source

_BEAT_S: Final = 5.0
_NAME: Final = "replica"


class RowSource:
    """Some nodes, of which the first that can is asked. What is fetched is kept in the replica's data directory until
    it is used, so that a cut costs only what was on its way."""

    def __init__(self, data: str, sources: Sequence[Source]) -> None:
        self._data = data
        self._log = os.path.join(data, "log")
        self._sources = sources

    def take(self) -> tuple[Joining, Taken]:
        """A snapshot, and what lets go of it."""
        errors = []
        for source in self._sources:
            try:
                self._check(source)
                directory = os.path.join(self._data, "filling")
                joining = Joining(source, identity_of(self._data), directory, is_anonymous=True, is_passing=True)
                with source.client() as client:
                    return joining, joining.take(client)
            except TailraceError as error:
                errors.append(f"{source.name}: {error}")
        what = f"nobody gives the rows that the store begins with: {'; '.join(errors)}"
        hint = "name a node with a store as `rows_from` in `replicate_from`; it is tried again"
        raise TailraceError("topology.store", what, hint=hint)

    def _check(self, source: Source) -> None:
        with Following(source, _NAME, beat_s=_BEAT_S) as following:
            extent = following.extent()
        mine = standing_of(self._log).generation
        if extent.log != log_identity(self._log) or extent.generation != mine:
            what = f"it has another log, or one of generation {extent.generation} and not {mine}"
            raise TailraceError("topology.other_log", what, hint="name a node of this log")
