"""The receiving end of routing queues as a guest of a node's server. Who sends is known by its token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.queues.sink import Sink
from tailrace.queues.wire import Call, Session, unpack


class QueueGuest:
    """Serves one sink."""

    calls = tuple(Call)

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def opened(self, _ticket: bytes, _is_over: Callable[[], bool]) -> tuple[pa.Schema, Iterator[Any]] | None:
        return None

    def answered(self, peer: str, call: str, said: bytes) -> Iterator[bytes]:
        if call == Call.NEGOTIATE:
            session = Session.read(said)
            _check_source(peer, session)
            yield self._sink.negotiate(session).packed()
            return
        shipment, rows = unpack(said)
        _check_source(peer, shipment.session)
        yield self._sink.receive(shipment, rows).packed()


def _check_source(peer: str, session: Session) -> None:
    """No site can speak for another."""
    if session.source != peer:
        what = f"the token is that of {peer}, and it speaks for {session.source}"
        raise TailraceError("relay.no_rights", what, hint="call the token in `tokens` like the site that sends")
