"""A node as a pipeline sees it: one connection, its questions and answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.relay import flight
from tailrace.relay.applier import Source
from tailrace.relay.inquiry import Inquiry, Reading
from tailrace.relay.outgoing import Frame
from tailrace.relay.paper import Paper
from tailrace.relay.pem import read_pem
from tailrace.relay.request import Ballot
from tailrace.relay.wire import Unpacker

ASK_S: Final = 60.0
"""A node that does not answer a question for so long is not there."""
FETCH_S: Final = 600.0
"""Nor is one from which the rows of one part do not come for so long."""
COPY_S: Final = 3600.0
"""A view of a large store takes its time."""
_AWAY: Final = ("relay.unreachable", "relay.loading", "relay.busy", "consumer.locked")
_LOST: Final = ("relay.gap", "relay.join_lost", "relay.inside_transaction", "log.below_oldest")


class Remote:
    """A node. The connection is made when it is needed first."""

    def __init__(
        self,
        address: str,
        token: str,
        consumer: str,
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        self.place = f"node {address}"
        self.consumer = consumer
        self._address = address
        self._token = token
        self._files = (ca, certificate, key)
        self._client: fl.FlightClient | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def vote(self) -> Ballot:
        with self._errors():
            return flight.vote(self._connected(), ASK_S)

    def ask(self, inquiry: Inquiry, paper: Paper | None = None, timeout_s: float = ASK_S) -> bytes:
        """What the node answers; nothing when it has only done something."""
        with self._errors():
            asked = paper or Reading(consumer=self.consumer)
            return b"".join(flight.ask(self._connected(), inquiry, asked, self._token, timeout_s))

    def frames(self, ticket: Paper, timeout_s: float = FETCH_S) -> Iterator[Frame]:
        """Rows, in frames that were looked at."""
        unpacker = Unpacker()
        with self._errors(), flight.our_errors():
            reader: Any = self._connected().do_get(fl.Ticket(ticket.packed()), flight.options(self._token, timeout_s))
            try:
                for chunk in reader:
                    for group in unpacker.groups(chunk.data):
                        yield from group
            finally:
                reader.cancel()

    def _connected(self) -> fl.FlightClient:
        if self._client is None:
            ca, certificate, key = (read_pem(path) for path in self._files)
            location = f"{'grpc+tls' if ca else 'grpc'}://{self._address}"
            self._client = Source("node", location, self._token, ca, certificate, key).client()
        return self._client

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What the relay calls its errors, as a pipeline does: what is waited for, and what ends it."""
        try:
            yield
        except TailraceError as error:
            if error.code in _AWAY:
                what = f"{self.place} does not answer: {error.what}"
                raise TailraceError("source.unreachable", what, hint=error.hint) from error
            if error.code in _LOST:
                what = f"changes of {self.place} cannot be read on from where they were: {error.what}"
                hint = "read another node of its cluster that still has them, or copy again, into a new log"
                raise TailraceError("source.position_lost", what, hint=hint) from error
            raise
