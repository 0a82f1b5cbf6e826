"""What a lake can say of messages without looking at its tables."""

from __future__ import annotations

import pyarrow.compute as pc

from tailrace.adaptor.lake.history import refuse_own_names
from tailrace.deliver.messages import Messages
from tailrace.deliver.refusal import refuse_changes, refuse_null, refuse_without_key
from tailrace.errors import TailraceError
from tailrace.log.documents import is_json


def examine_change(messages: Messages) -> None:
    """Refuse what cannot be merged into the current state."""
    key = messages.key
    if not key:
        refuse_changes(messages)
        return
    refuse_without_key(messages, key)
    for name in key:
        if is_json(messages.data.type.field(name)):
            what = f"key column {name} of {messages.namespace} has values of several types, as text some were the same"
            raise TailraceError(
                "destination.refused", what, hint="give the column a type in the source, or keep: history"
            )
    refuse_null(messages, key, [pc.struct_field(messages.data, [name]) for name in key])


def examine_event(messages: Messages) -> None:
    """Refuse what cannot be added to a history."""
    refuse_own_names(messages.namespace, messages.fields)
