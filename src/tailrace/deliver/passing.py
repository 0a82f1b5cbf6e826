"""Passing over: which messages of a range a writer is not to get, because it has them or need not have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages
from tailrace.message import Offset

PASSED: Final = -1
"""No offset: nothing was rewound."""


@dataclass(frozen=True, slots=True)
class Passing:
    """What is known on the driver about messages that are not to be sent."""

    acknowledged: frozenset[int] = frozenset()
    """Offsets that an operator has acknowledged one by one."""
    ahead: Mapping[str, int] = field(default_factory=dict)
    """Namespaces that have come further than the rest, and how far."""
    rewound: int = PASSED
    """Up to here an operator wants everything sent again, whatever the destination says."""

    def wanted(self, messages: Messages) -> Messages:
        """Messages as they are in the log, without those that are acknowledged."""
        if (ahead := self.ahead.get(messages.namespace)) is not None:
            messages = messages.after(ahead)
        if self.acknowledged:
            known: Any = pa.array(sorted(self.acknowledged), pa.int64())
            messages = messages.filter(pc.invert(pc.is_in(messages.offsets(), value_set=known)))
        return messages

    def unwritten(self, messages: Messages, applied: Callable[[str], Offset | None]) -> Messages:
        """Messages as the writer would get them, without those that the destination says it has."""
        done = applied(messages.namespace) if len(messages) else None
        if done is None or done <= self.rewound:
            return messages
        offsets = messages.offsets()
        is_new = pc.greater(offsets, pa.scalar(done, pa.int64()))
        is_asked_for = pc.less_equal(offsets, pa.scalar(self.rewound, pa.int64()))
        return messages.filter(pc.or_(is_new, is_asked_for))
