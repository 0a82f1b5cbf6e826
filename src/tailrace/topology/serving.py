"""Serving a log's bytes over Arrow Flight, beside what else a server serves, or alone."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.relay.flight import WhoAsks, caller, told
from tailrace.relay.guest import Guest
from tailrace.topology.pulling import Pulling
from tailrace.topology.request import Call, Keep, Leave, Match, Pull

SCHEMA: Final = pa.schema([pa.field("bytes", pa.binary(), nullable=False)])
_NOTHING: Final = pa.RecordBatch.from_arrays([pa.array([], pa.binary())], schema=SCHEMA)
_TICKET: Final = b"pull "


def ticket_of(request: Pull) -> bytes:
    """What opens a stream of bytes."""
    return _TICKET + request.packed()


class LogGuest:
    """One log, for those who copy it."""

    calls = tuple(Call)

    def __init__(self, pulling: Pulling) -> None:
        self._pulling = pulling

    def answered(self, _peer: str, call: str, said: bytes) -> Iterator[bytes]:
        match call:
            case Call.EXTENT:
                yield self._pulling.extent().packed()
            case Call.MATCH:
                yield self._pulling.match(Match.read(said)).packed()
            case Call.KEEP:
                self._pulling.keep(Keep.read(said))
            case Call.LEAVE:
                self._pulling.leave(Leave.read(said))

    def opened(self, ticket: bytes, is_over: Callable[[], bool]) -> tuple[pa.Schema, Iterator[Any]] | None:
        if not ticket.startswith(_TICKET):
            return None
        return SCHEMA, self._rows(Pull.read(ticket.removeprefix(_TICKET)), is_over)

    def _rows(self, request: Pull, is_over: Callable[[], bool]) -> Iterator[Any]:
        with told():
            for found in self._pulling.pull(request, is_over):
                yield _row(found.raw) if found.raw else _NOTHING, pa.py_buffer(found.piece.packed())


def _row(raw: bytes) -> Any:
    """The bytes themselves, not a copy of them."""
    ends = pa.py_buffer(struct.pack("=ii", 0, len(raw)))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(raw)])
    return pa.RecordBatch.from_arrays([column], schema=SCHEMA)


class TracedGuest:
    """Another guest, and a line for everything that is asked of it."""

    def __init__(self, guest: Guest, trace: Callable[[str], None]) -> None:
        self.calls = guest.calls
        self._guest = guest
        self._trace = trace

    def answered(self, peer: str, call: str, said: bytes) -> Iterator[bytes]:
        self._trace(f"{peer} asks: {call} {said.decode(errors='replace')}")
        return self._guest.answered(peer, call, said)

    def opened(self, ticket: bytes, is_over: Callable[[], bool]) -> tuple[pa.Schema, Iterator[Any]] | None:
        self._trace(f"asked for: {ticket.decode(errors='replace')}")
        return self._guest.opened(ticket, is_over)


class GuestServer(fl.FlightServerBase):
    """Serves guests and nothing else. It listens from the moment it is made; `port` says where."""

    def __init__(self, guests: Sequence[Guest], *, location: str, tokens: Mapping[str, str], **tls: Any) -> None:
        super().__init__(location, middleware={"peer": WhoAsks(tokens)}, **tls)
        self._guests = guests
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Say goodbye to all, and stop listening."""
        self._stopping.set()
        self.shutdown()

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[bytes]:
        with told():
            peer = caller(context)
            for guest in self._guests:
                if action.type in guest.calls:
                    yield from guest.answered(peer, action.type, action.body.to_pybytes())
                    return
            raise _unknown("call", action.type)

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        with told():
            caller(context)
            for guest in self._guests:
                opened = guest.opened(ticket.ticket, lambda: self._stopping.is_set() or context.is_cancelled())
                if opened is not None:
                    return fl.GeneratorStream(*opened)
            raise _unknown("ticket", "")


def _unknown(what: str, name: str) -> TailraceError:
    return TailraceError(
        "relay.malformed", f"there is no {what} {name[:40]!r} here", hint="run the same release at both ends"
    )
