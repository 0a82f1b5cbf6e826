"""Rivalry: of rows with different keys that have the same of what must be unique, one stays.

Rows can be changed elsewhere before they come to where both are: then there is no conflict any more, and a row that was
only deleted where they met would stay there. So what loses is removed by a message of this node's own, which all get.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tailrace.node.conflict import Conflict, Keep, Policy
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

    def write(self, writer: NodeWriter, messages: Messages, policy: Policy) -> int:
        """Write messages that are newer than their rows, if they beat those with other keys that are in their way."""
        count = begin = 0
        for at in sorted({clash.at for clash in writer.rivals(messages)}):
            count += self.put(writer, messages.slice(begin, at - begin))
            wins = self._wins(writer, messages.slice(at, 1), policy)
            begin = at if wins else at + 1
        return count + self.put(writer, messages.slice(begin, len(messages) - begin))

    def _wins(self, writer: NodeWriter, message: Messages, policy: Policy) -> bool:
        """Whether a message is written; then what was in its way is gone."""
        found = [told(message, clash, policy, newer(clash)) for clash in writer.rivals(message)]
        if policy is not Policy.LAST_WRITE:
            found = [replace(each, keep=decided(writer, each)) for each in found]
        writer.quarantine(found)
        if all(each.keep is Keep.THEIRS for each in found):
            for each in found:
                writer.drop_rival(each)
            self.beaten.extend(found)
            return True
        if any(each.keep is Keep.OURS for each in found):
            self.lost.append(_deletions(message))
        return False


def _deletions(message: Messages) -> list[Batch]:
    """What removes the row of a message, from where it was, too."""
    before: Any = message.before
    gone = [message.data] if before is None else [message.data, before.cast(message.data.type).drop_null()]
    return [deleted(message.namespace, rows, message.key) for rows in gone]
