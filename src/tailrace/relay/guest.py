"""Guests of a node's server: what else it serves, beside its log's messages, to whoever has a token."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

import pyarrow as pa


class Guest(Protocol):
    """One thing that is served."""

    @property
    def calls(self) -> Collection[str]:
        """The names of its calls."""

    def answered(self, peer: str, call: str, said: bytes) -> Iterator[bytes]:
        """What a peer gets for one of them."""

    def opened(self, ticket: bytes, is_over: Callable[[], bool]) -> tuple[pa.Schema, Iterator[Any]] | None:
        """The rows that a ticket is for, until it is over; None when the ticket is another's."""
