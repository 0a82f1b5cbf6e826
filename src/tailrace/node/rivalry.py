"""Rivalry: of rows with different keys that have the same of what must be unique, one stays.

Rows can be changed elsewhere before they come to where both are: then there is no conflict any more, and a row that was
only deleted where they met would stay there. So what loses is deleted here, and by a message of this node's own, which
all get; except where the node of the message had both, because its table is another: there they stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.message import Op
from tailrace.node.conflict import Clash, Conflict, Keep, Policy
from tailrace.node.quarantine import decided, newer, told
from tailrace.source.rows import deleted

if TYPE_CHECKING:
    from tailrace.deliver.messages import Messages
    from tailrace.log.batch import Batch
    from tailrace.message import Offset
    from tailrace.node.contract import NodeWriter


class GivesWay(Exception):
    """Rows that are here are to be removed first, for everybody."""

    def __init__(self, conflicts: list[Conflict], group: Offset) -> None:
        super().__init__(conflicts[0].rival)
        self.conflicts = conflicts
        self.group = group
        """Where the group begins that the messages are in."""


@dataclass(slots=True)
class Rivalry:
    """What becomes of rivals in one transaction."""

    put: Callable[[NodeWriter, Messages], int]
    """Writes messages, whatever is there."""
    beaten: list[Conflict] = field(default_factory=list)
    """Those whose messages beat what was there."""
    lost: list[list[Batch]] = field(default_factory=list)
    """What removes the rows of messages that were beaten."""

    def settle(self, writer: NodeWriter, messages: Messages, policy: Policy) -> tuple[Messages, set[int]]:
        """Let rows fight for what must be unique. Gives the messages that are written, of some that are newer than
        their own rows, and the numbers of those that are left out, as if they had not come."""
        left_out: set[int] = set()
        while True:
            found = _by_message(writer, messages, policy)
            skipped = [at for each in found if each.is_undecided for at in each.with_it]
            if not skipped:
                break
            for each in found:
                if each.is_undecided:
                    writer.quarantine(each.conflicts)
            left_out |= set(_lsns(messages, skipped))
            messages = _without(messages, skipped)
        if not found:
            return messages, left_out
        for each in found:
            writer.quarantine(each.conflicts)
            if each.wins:
                for conflict, clash in zip(each.conflicts, each.clashes, strict=True):
                    writer.drop_rival(conflict)
                    if not clash.had_both:
                        self.beaten.append(conflict)
            else:
                self._lose(writer, messages.take(pa.array(each.with_it, pa.int64())))
        beaten = [at for each in found if not each.wins for at in each.with_it]
        return _without(messages, beaten), left_out

    def _lose(self, writer: NodeWriter, messages: Messages) -> None:
        """Remove a row wherever it was, here and everywhere."""
        gone: list[Any] = [messages.data]
        before: Any = messages.before
        if before is not None:
            gone.append(before.cast(messages.data.type))
        for rows in gone:
            there = rows.is_valid()
            if there.true_count:
                as_deleted = messages.with_column("data", rows).filter(there)
                ops = pa.repeat(pa.scalar(int(Op.DELETE), pa.int8()), len(as_deleted))
                self.put(writer, as_deleted.with_column("op", ops))
                self.lost.append([deleted(messages.namespace, as_deleted.data, messages.key)])


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A message and all that is in its way."""

    clashes: list[Clash]
    conflicts: list[Conflict]

    @property
    def with_it(self) -> tuple[int, ...]:
        return self.clashes[0].with_it

    @property
    def wins(self) -> bool:
        return all(conflict.keep is Keep.THEIRS for conflict in self.conflicts)

    @property
    def is_undecided(self) -> bool:
        return not self.wins and not any(conflict.keep is Keep.OURS for conflict in self.conflicts)


def _by_message(writer: NodeWriter, messages: Messages, policy: Policy) -> list[_Meeting]:
    found = []
    for _, group in groupby(writer.rivals(messages), lambda clash: clash.at):
        clashes = list(group)
        conflicts = [told(messages, clash, policy, newer(clash)) for clash in clashes]
        if policy is not Policy.LAST_WRITE:
            conflicts = [replace(each, keep=decided(writer, each)) for each in conflicts]
        found.append(_Meeting(clashes, conflicts))
    return found


def _without(messages: Messages, places: list[int]) -> Messages:
    gone = set(places)
    return messages.filter(pa.array([at not in gone for at in range(len(messages))], pa.bool_())) if gone else messages


def _lsns(messages: Messages, places: list[int]) -> list[int]:
    lsns: list[Any] = messages.rows.column("lsn").to_pylist()
    return [lsns[at] for at in places]
