"""Nodes, read by a pipeline."""

from __future__ import annotations

from typing import Final

from tailrace.adaptor.endpoint import endpoint
from tailrace.adaptor.registry import Adaptor
from tailrace.adaptor.relay.options import RelayReaderOptions

ADAPTOR: Final = Adaptor(
    name="relay",
    summary="a node: a view of its store in chunks, then ranges of its log, over Arrow Flight",
    reader=RelayReaderOptions,
)
relay = endpoint("relay", first="address")
