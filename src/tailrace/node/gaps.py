"""What a node does when a source no longer has messages that it needs: others are asked, then a snapshot is taken."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.relay import flight
from tailrace.relay.joining import Joining
from tailrace.relay.oldest import Span, check_contained, gap, missing, told

if TYPE_CHECKING:
    import pyarrow.flight as fl

    from tailrace.node.store import Store
    from tailrace.relay.applier import Source
    from tailrace.relay.journal import Journal
    from tailrace.relay.request import Ballot
    from tailrace.relay.service import Service

_ASK_S: Final = 2.0


class Gaps:
    """Of one node."""

    def __init__(
        self,
        service: Service,
        sources: Sequence[Source],
        store: Store | None,
        directory: str,
        report: Callable[[str], None],
        *,
        may_resnapshot: bool,
    ) -> None:
        self._service = service
        self._sources = sources
        self._store = store
        self._directory = os.path.join(directory, "rejoining")
        self._report = report
        self._may_resnapshot = may_resnapshot
        self._turn = threading.Lock()

    def close(self, client: fl.FlightClient, source: Source, error: TailraceError) -> None:
        """Take a new snapshot if nobody has what is missing, and it is allowed. Otherwise an error says who has it."""
        with self._turn:
            ballot = flight.vote(client, _ASK_S)
            spans = missing(ballot.oldest, self._journal.vclock, source.without)
            if not spans:
                return  # meanwhile it came in another way
            others = self._who_has(spans, source)
            what = f"{source.name} no longer has {told(spans)}"
            if others:
                raise gap(f"{what}; {', '.join(others)} still has them", "nothing: they come from there") from error
            if not self._may_resnapshot or self._store is None:
                hint = "say `resnapshot: true` in the node file: then its store is filled anew from a source"
                raise gap(f"{what}, and no other source of this node has them", hint) from error
            self._take_snapshot(client, source, self._store, ballot, what)

    @property
    def _journal(self) -> Journal:
        return self._service.journal

    def _who_has(self, spans: list[Span], source: Source) -> list[str]:
        """The other sources that have what is missing; nobody when they do not have all of it together."""
        left, found = set(spans), list[str]()
        for other in self._sources:
            had = self._has(other, spans) if other.name != source.name else set[Span]()
            if had:
                left -= had
                found.append(other.name)
        return [] if left else found

    def _has(self, other: Source, spans: list[Span]) -> set[Span]:
        try:
            with other.client() as client:
                ballot = flight.vote(client, _ASK_S)
        except TailraceError:
            return set()  # nobody who can be asked
        if ballot.cluster != self._service.identity.cluster or ballot.node == self._service.identity.node:
            return set()
        return {
            (origin, first, last)
            for origin, first, last in spans
            if ballot.oldest[origin] < first and last <= ballot.vclock[origin] and origin not in other.without
        }

    def _take_snapshot(self, client: fl.FlightClient, source: Source, store: Store, ballot: Ballot, what: str) -> None:
        check_contained(self._journal.vclock, ballot.vclock)
        self._report(f"ALARM: {what}: a new snapshot of {source.name} is taken, and replaces the rows of the store")
        Joining(source, self._service.identity, self._directory, is_again=True).run(client, self._journal, store)
        self._report(f"has a new snapshot of {source.name}, up to {self._journal.vclock}")
