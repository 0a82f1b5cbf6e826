"""JOIN, the newcomer's side: chunks are fetched into files, several at a time, and published all at once.

A cut costs the chunks that were on their way. What is there of a join that its source has forgotten is thrown away.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.flight as fl
from pyarrow import ipc

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch, decode_body
from tailrace.message import NodeId
from tailrace.relay import flight
from tailrace.relay.flight import Call
from tailrace.relay.limbo import Limbo
from tailrace.relay.outgoing import Frame
from tailrace.relay.paper import Paper
from tailrace.relay.refusal import malformed
from tailrace.relay.request import Chunk, FinalRows, Finish, Join, Joined, Registered
from tailrace.relay.wire import SCHEMA, Unpacker

if TYPE_CHECKING:
    from tailrace.node.identity import Identity
    from tailrace.node.store import Store
    from tailrace.relay.applier import Source
    from tailrace.relay.journal import Journal

PARALLEL: Final = 4
_SESSION: Final = "session.json"


class Joining:
    """One attempt to join. What it has fetched is kept in a directory for the next."""

    def __init__(self, source: Source, identity: Identity, directory: str, *, is_anonymous: bool = False) -> None:
        self._source = source
        self._identity = identity
        self._directory = directory
        self._is_anonymous = is_anonymous

    def run(self, client: fl.FlightClient, journal: Journal, store: Store) -> None:
        """Everything, up to the moment from which changes are followed."""
        joined = self._resumed() or self._begin(client)
        try:
            self._fetch(client, joined)
            answer = self._ask(client, Call.FINISH, Finish(session=joined.session))
            registered = Registered.read(answer)
            final = [] if self._is_anonymous else list(self._groups(client, FinalRows(session=joined.session)))
        except TailraceError as error:
            if error.code == "relay.join_lost":
                self._forget()
            raise
        limbo = Limbo() if joined.meta is None else Limbo(joined.meta.term, NodeId(joined.meta.leader))
        store.load(self._batches(joined.chunks), limbo)
        journal.begin_at(joined.vclock, limbo)
        for group in final:
            journal.append_group(group)
        if not self._is_anonymous and not registered.vclock <= journal.vclock:
            what = f"the source promised messages up to {registered.vclock}, and sent those up to {journal.vclock}"
            raise malformed(what)
        self._forget()

    def _begin(self, client: fl.FlightClient) -> Joined:
        self._forget()
        os.makedirs(self._directory)
        joined = Joined.read(self._ask(client, Call.JOIN, self._wish()))
        noted = {"source": self._source.location, "joined": joined.packed().decode()}
        path = os.path.join(self._directory, _SESSION)
        with open(f"{path}.new", "w", encoding="utf-8") as stream:
            json.dump(noted, stream)
        os.replace(f"{path}.new", path)
        return joined

    def _wish(self) -> Join:
        return Join(node=self._identity.node, is_anonymous=self._is_anonymous)

    def _resumed(self) -> Joined | None:
        """The join that was cut, if it was from the same source."""
        with suppress(OSError, ValueError, KeyError, TypeError, TailraceError):
            with open(os.path.join(self._directory, _SESSION), encoding="utf-8") as stream:
                noted: dict[str, Any] = json.load(stream)
            if noted["source"] == self._source.location:
                return Joined.read(noted["joined"].encode())
        return None

    def _forget(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _fetch(self, client: fl.FlightClient, joined: Joined) -> None:
        missing = [number for number in range(joined.chunks) if not os.path.exists(self._path(number))]
        with ThreadPoolExecutor(PARALLEL) as pool:
            for _ in pool.map(lambda number: self._fetch_chunk(client, joined.session, number), missing):
                pass

    def _fetch_chunk(self, client: fl.FlightClient, session: str, number: int) -> None:
        path = self._path(number)
        ticket = Chunk(session=session, chunk=number)
        with open(f"{path}.part", "wb") as file, ipc.new_stream(file, SCHEMA) as stream:
            for batch in self._get(client, ticket.packed()):
                stream.write_batch(batch)
        os.replace(f"{path}.part", path)  # a file with its own name is whole

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, f"{number}.chunk")

    def _batches(self, chunks: int) -> Iterator[Batch]:
        """The rows of all chunks, each looked at before it is believed."""
        for number in range(chunks):
            with pa.memory_map(self._path(number)) as file, ipc.open_stream(file) as stream:
                unpacker = Unpacker()
                for batch in stream:
                    for group in unpacker.groups(batch):
                        for head, body in group:
                            yield Batch(head.namespace, decode_body(body), head.mode)

    def _groups(self, client: fl.FlightClient, wish: FinalRows) -> Iterator[list[Frame]]:
        unpacker = Unpacker()
        for batch in self._get(client, wish.packed()):
            yield from unpacker.groups(batch)

    def _get(self, client: fl.FlightClient, ticket: bytes) -> Iterator[pa.RecordBatch]:
        with flight.our_errors():
            reader = client.do_get(fl.Ticket(ticket), flight.options(self._source.token))
            for chunk in reader:
                if chunk.data is not None and len(chunk.data):
                    yield chunk.data

    def _ask(self, client: fl.FlightClient, call: Call, paper: Paper) -> bytes:
        (answer,) = flight.ask(client, call, paper, self._source.token)
        return answer
