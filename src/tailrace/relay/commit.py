"""Synchronous transactions, the leader's side: they happen when enough nodes have them, or not at all.

1. The transaction goes into the log, with a mark that it waits for a decision; no store applies it.
2. Peers get it like anything else, and acknowledge it when it is in their logs.
3. When enough have, a confirmation goes into the log; when time is up before, a rollback. Stores do what that says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, batches_of
from tailrace.message import Lsn
from tailrace.relay.limbo import Control, Kind
from tailrace.relay.request import Elect, Elected

if TYPE_CHECKING:
    from tailrace.relay.journal import Journal
    from tailrace.relay.service import Service

TIMEOUT_S: Final = 5.0
Vote = Callable[[Elect], list[Elected]]
"""Asks all peers; gives the answers of those that answer."""


class Committer:
    """Commits for one node, while it leads."""

    def __init__(self, service: Service, *, acks: int, timeout_s: float = TIMEOUT_S) -> None:
        self._service = service
        self._acks = acks
        self._timeout_s = timeout_s
        self._deciding = threading.Lock()
        self._decided: dict[Lsn, Kind] = {}
        """By transaction that somebody waits for: what was decided."""

    @property
    def _journal(self) -> Journal:
        return self._service.journal

    @property
    def is_leading(self) -> bool:
        return self._journal.limbo.leader == self._journal.node and self._journal.term == self._journal.limbo.term

    def commit(self, batches: Sequence[Batch], *, acks: int | None = None, timeout_s: float | None = None) -> Lsn:
        """One transaction. When this returns it has happened; when it raises `relay.rolled_back` it has not; after
        `relay.undecided` it has not, unless a successor of this leader says otherwise."""
        self._check_leading()
        term = self._journal.limbo.term
        begin = list(batches_of([Control(kind=Kind.BEGIN, term=term).message()]))
        lsn = self._journal.append_local([*begin, *batches])[self._journal.node]
        self._decide(lsn, self._acks if acks is None else acks, timeout_s or self._timeout_s)
        return lsn

    def resume(self) -> None:
        """Decide what was left undecided when the node ended."""
        for each in self._journal.limbo.undecided:
            if each.origin == self._journal.node and self.is_leading:
                with suppress(TailraceError):  # rolled back, or for another leader to say
                    self._decide(each.lsn, self._acks, self._timeout_s)

    def promote(self, cluster: str, vote: Vote) -> int:
        """Lead from now on; gives the term. Enough peers must agree: those promise to follow nobody of an earlier term,
        and have nothing of the one who led that this node lacks."""
        term = self._journal.term + 1
        if not self._journal.promise(term, self._journal.node):
            raise _rivalled()
        limbo = self._journal.limbo  # first: what its leader wrote is in the clock
        request = Elect(node=self._journal.node, cluster=cluster, term=term, vclock=self._journal.vclock)
        answers = vote(request)
        agreed = sum(answer.is_granted for answer in answers)
        if agreed < self._acks:
            for answer in answers:
                self._journal.hear_of(answer.term)
            what = f"{agreed} other nodes agree, {self._acks} are needed"
            hint = "see that they run and have all that the leader wrote, then try again"
            raise TailraceError("relay.no_quorum", what, hint=hint)
        upto = request.vclock[limbo.leader]
        said = Control(kind=Kind.PROMOTE, term=term, lsn=upto, predecessor=limbo.leader)

        def check() -> None:
            """Nobody else was promoted, or was promised that it may be, while the others were asked."""
            if self._journal.term != term or self._journal.limbo.term != limbo.term:
                raise _rivalled()

        self._journal.append_local(batches_of([said.message()]), check=check)
        return term

    def _decide(self, lsn: Lsn, acks: int, timeout_s: float) -> None:
        term = self._journal.limbo.term
        is_enough = self._wait(lsn, acks, timeout_s)
        with self._deciding:
            if lsn not in self._decided:
                self._check_leading()
                kind = Kind.CONFIRM if is_enough else Kind.ROLLBACK
                undecided = [each.lsn for each in self._journal.limbo.undecided if each.origin == self._journal.node]
                self._append(Control(kind=kind, term=term, lsn=lsn))
                for each in undecided:
                    if each <= lsn if kind is Kind.CONFIRM else each >= lsn:
                        self._decided[each] = kind
            decided = self._decided.pop(lsn)
        if decided is Kind.ROLLBACK:
            self._wait(self._journal.vclock[self._journal.node], self._acks, timeout_s)
            raise self._refused(acks, timeout_s, is_final=self.close_rollbacks())

    def close_rollbacks(self) -> bool:
        """Say that what was rolled back will stay so, if enough nodes know; False while they do not."""
        node = self._journal.node
        with self._deciding:
            told = [
                each.rolled_back for each in self._journal.limbo.pending if each.origin == node and each.rolled_back
            ]
            if not told:
                return True
            if not self.is_leading or self._service.count_having(node, max(told)) < self._acks:
                return False
            self._append(Control(kind=Kind.CONFIRM, term=self._journal.limbo.term, lsn=max(told)))
            return True

    def _refused(self, acks: int, timeout_s: float, *, is_final: bool) -> TailraceError:
        hint = "see that enough nodes run and follow this one, then commit again"
        what = f"fewer than {acks} other nodes have the transaction after {timeout_s:g} s"
        if is_final:
            return TailraceError("relay.rolled_back", f"{what}, so it did not happen", hint=hint)
        what = f"{what}, and fewer than {self._acks} know that it is rolled back: a successor may let it happen"
        return TailraceError("relay.undecided", what, hint=f"look whether it is there before you commit again; {hint}")

    def _wait(self, lsn: Lsn, acks: int, timeout_s: float) -> bool:
        """Until enough peers have a message of this node; False when time is up."""
        give_up_s = time.monotonic() + timeout_s
        with self._service.acknowledged:
            while self._service.count_having(self._journal.node, lsn) < acks:
                left_s = give_up_s - time.monotonic()
                if left_s <= 0 or lsn in self._decided or not self.is_leading:
                    return False
                self._service.acknowledged.wait(left_s)
        return True

    def _append(self, control: Control) -> None:
        self._journal.append_local(batches_of([control.message()]))

    def _check_leading(self) -> None:
        if self.is_leading:
            return
        limbo = self._journal.limbo
        if limbo.leader == 0:
            raise TailraceError("relay.not_leader", "no node leads", hint="tailrace node promote NODE.yml")
        if limbo.leader != self._journal.node:
            what = f"node {limbo.leader} leads, since term {limbo.term}"
            raise TailraceError("relay.not_leader", what, hint="commit there, or tailrace node promote NODE.yml")
        what = f"this node led in term {limbo.term}, and others know of term {self._journal.term}"
        raise TailraceError("relay.fenced", what, hint="tailrace node promote NODE.yml, if it should lead again")


def _rivalled() -> TailraceError:
    return TailraceError("relay.fenced", "another node wants to lead at the same time", hint="try again")
