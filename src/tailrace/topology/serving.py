"""Serving a log's bytes over Arrow Flight, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.relay.flight import WhoAsks, caller, told
from tailrace.topology.pulling import Pulling
from tailrace.topology.request import Call, Keep, Match, Pull

SCHEMA: Final = pa.schema([pa.field("bytes", pa.binary(), nullable=False)])
_NOTHING: Final = pa.RecordBatch.from_arrays([pa.array([], pa.binary())], schema=SCHEMA)


def answered(pulling: Pulling, call: str, said: bytes) -> Iterator[bytes]:
    """What a log answers to a call of a copy."""
    match call:
        case Call.EXTENT:
            yield pulling.extent().packed()
        case Call.MATCH:
            yield pulling.match(Match.read(said)).packed()
        case Call.KEEP:
            pulling.keep(Keep.read(said))
        case _:
            what = f"there is no call {call[:40]!r}"
            raise TailraceError("relay.malformed", what, hint="upgrade the older of the two")


def pulled(pulling: Pulling, request: Pull, is_over: Callable[[], bool]) -> Iterator[Any]:
    """A log's bytes as Flight sends them."""
    for found in pulling.pull(request, is_over):
        batch = _NOTHING
        if found.raw:
            batch = pa.RecordBatch.from_arrays([pa.array([found.raw], pa.binary())], schema=SCHEMA)
        yield batch, pa.py_buffer(found.piece.packed())


class PullServer(fl.FlightServerBase):
    """It listens from the moment it is made; `port` says where."""

    def __init__(self, pulling: Pulling, *, location: str, tokens: Mapping[str, str], **tls: Any) -> None:
        super().__init__(location, middleware={"peer": WhoAsks(tokens)}, **tls)
        self._pulling = pulling
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Say goodbye to all, and stop listening."""
        self._stopping.set()
        self.shutdown()

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[bytes]:
        with told():
            caller(context)
            yield from answered(self._pulling, action.type, action.body.to_pybytes())

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        with told():
            caller(context)
            request = Pull.read(ticket.ticket)
            return fl.GeneratorStream(SCHEMA, self._rows(request, context))

    def _rows(self, request: Pull, context: fl.ServerCallContext) -> Iterator[Any]:
        with told():
            yield from pulled(self._pulling, request, lambda: self._stopping.is_set() or context.is_cancelled())
