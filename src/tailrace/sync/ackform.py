"""Acknowledgements as an Arrow stream: the columns of the key, the versions, who made them, and why some are refused.

JSON has an object for each of them. Nodes that know this form need none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tailrace.sync.arrowform import as_stream, read_stream, values_of
from tailrace.sync.columns import Columns
from tailrace.sync.exchange import ANY_NODE, Acks
from tailrace.sync.names import numbered
from tailrace.sync.wire import Wire, malformed

_KEY: Final = "primaryKey"
_OTHERS: Final = ("versionId", "changedBy")
_REFUSED: Final = "refused"


def as_arrow(acks: Acks) -> bytes:
    """Acknowledgements as a stream."""
    nodes: Sequence[int | None] = acks.nodes
    if ANY_NODE in nodes:
        nodes = [None if node == ANY_NODE else node for node in nodes]
    names = [*numbered(_KEY, len(acks.keys)), *_OTHERS]
    values: list[Sequence[Any]] = [*acks.keys, acks.versions, nodes]
    if acks.refused:
        names.append(_REFUSED)
        values.append([acks.refused.get(place) for place in range(len(acks))])
    return as_stream(names, Columns(values))


def read_arrow(wire: Wire, body: bytes) -> Acks:
    """The inverse."""
    table = read_stream(body)
    keys = numbered(_KEY, len(wire.shape.key))
    if {*table.schema.names} - {_REFUSED} != {*keys, *_OTHERS}:
        raise malformed(f"acknowledgements have the columns {', '.join((*keys, *_OTHERS))}, and no others")
    found = {name: values_of(table.schema.field(name), table.column(name)) for name in table.schema.names}
    versions, nodes = (found[name] for name in _OTHERS)
    return wire.read_ack_columns([found[name] for name in keys], versions, nodes, found.get(_REFUSED, ()))
