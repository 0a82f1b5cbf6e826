"""Choosing sources for a node that asks: by tier, then by load, only where its own log goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from tailrace.topology.answers import Reason, Refusal
from tailrace.topology.limits import Limits
from tailrace.topology.member import Member, Report
from tailrace.topology.tree import Tree

_SOON_S: Final = 1.0
"""Whoever is Pending has slots for others in a moment."""


def _nobody(_: Member) -> bool:
    return False


class Choice:
    """One choice. It costs as much as it returns, and what it has to pass over."""

    def __init__(self, tree: Tree, database: str, report: Report, limits: Limits) -> None:
        self._tree = tree
        self._database: Final = database
        self._report = report
        self._limits = limits
        self._passed: set[Reason] = set()
        self.is_barred: Callable[[Member], bool] = _nobody
        """Who gets the log from the one that asks, in a way that the tree does not know."""

    def within_fanout(self) -> list[Member]:
        """Those with a free slot, best first; those about whom there is doubt only if there is nobody else."""
        return self._pick(self._tree.free) or self._pick(self._tree.doubtful)

    def over_fanout(self) -> list[Member]:
        """Those without, for somebody who asked for it."""
        return self._pick(chain(self._tree.crowded, self._tree.full))

    def refusal(self) -> Refusal:
        """Why nobody was found. Who would do and has no slot now is worth waiting for."""
        log = f"log {self._database}"
        if self._would_do(self._tree.crowded):
            what = f"every node of {log} with a free slot has {self._tree.pending_max} or more Pending replicas"
            return self._refused(Reason.PENDING, what)
        if self._would_do(self._tree.full):
            return self._refused(Reason.FULL, f"every node that has {log} so far has {self._tree.fanout} replicas")
        if Reason.NO_OVERLAP in self._passed:
            return self._refused(Reason.NO_OVERLAP, f"no node has {log} from that position on")
        if Reason.GENERATION in self._passed:
            return self._refused(Reason.GENERATION, f"every node has {log} of an earlier generation")
        if Reason.CYCLE in self._passed:
            return self._refused(Reason.CYCLE, f"every node of {log} with a free slot gets it from the one that asks")
        return self._refused(Reason.NO_SOURCE, f"no live source of {log} is known")

    def _pick(self, nodes: Iterable[Member]) -> list[Member]:
        found: list[Member] = []
        for node in nodes:
            reason = self._objection(node)
            if reason is not None:
                self._passed.add(reason)
                continue
            found.append(node)
            if len(found) == self._limits.candidates_max:
                break
        return found

    def _would_do(self, nodes: Iterable[Member]) -> bool:
        for node in nodes:
            reason = self._objection(node)
            if reason is None:
                return True
            self._passed.add(reason)
        return False

    def _objection(self, node: Member) -> Reason | None:
        if self.is_barred(node):
            return Reason.CYCLE
        if not self._report.is_not_newer_than(node.report):
            return Reason.GENERATION
        return None if self._report.overlaps(node.report) else Reason.NO_OVERLAP

    def _refused(self, reason: Reason, what: str) -> Refusal:
        is_soon = reason in (Reason.FULL, Reason.PENDING) and bool(self._tree.pending)
        return Refusal(reason, what, min(_SOON_S, self._limits.retry_s) if is_soon else self._limits.retry_s)
