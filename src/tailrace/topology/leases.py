"""Leases: what is over when, looked at in that order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import count

from tailrace.topology.member import Member


class Leases:
    """Prolonging a lease costs nothing: it is looked at again when it would have been over."""

    def __init__(self) -> None:
        self._numbers = count()
        self._deadlines: list[tuple[float, int, Member]] = []
        self._reservations: list[tuple[float, int, Member]] = []

    def set(self, member: Member, deadline: float) -> None:
        """When the member's lease is over, whatever was set before."""
        member.deadline = deadline
        if deadline < member.queued:
            member.queued = deadline
            heapq.heappush(self._deadlines, (deadline, next(self._numbers), member))

    def reserve(self, member: Member) -> None:
        """Watch what has just been reserved for the member."""
        heapq.heappush(self._reservations, (member.reserved_until, next(self._numbers), member))

    def over(self, now: float) -> Iterator[Member]:
        """The members whose deadline has passed, once for each deadline that was set."""
        while self._deadlines and self._deadlines[0][0] <= now:
            when, _, member = heapq.heappop(self._deadlines)
            if when != member.queued:
                continue
            member.queued = math.inf
            if member.deadline <= now:
                yield member
            elif member.deadline < math.inf:
                self.set(member, member.deadline)

    def lapsed(self, now: float) -> Iterator[Member]:
        """The members whose reservation is over."""
        while self._reservations and self._reservations[0][0] <= now:
            when, _, member = heapq.heappop(self._reservations)
            if member.reserved is not None and member.reserved_until == when:
                yield member
