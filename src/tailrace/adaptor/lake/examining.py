"""What a lake can say of messages without looking at its tables."""

from __future__ import annotations

import pyarrow.compute as pc

from tailrace.adaptor.lake.history import refuse_own_names
from tailrace.deliver.messages import Messages
from tailrace.deliver.refusal import refuse_changes, refuse_null, refuse_without_key


def examine_change(messages: Messages) -> None:
    """Refuse what cannot be merged into the current state."""
    key = messages.key
    if not key:
        refuse_changes(messages)
        return
    refuse_without_key(messages, key)
    refuse_null(messages, key, [pc.struct_field(messages.data, [name]) for name in key])


def examine_event(messages: Messages) -> None:
    """Refuse what cannot be added to a history."""
    refuse_own_names(messages.namespace, messages.fields)
