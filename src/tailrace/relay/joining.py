"""JOIN, the newcomer's side: chunks are fetched into files, several at a time, and published all at once.

A cut costs the chunks that were on their way. What is there of a join that its source has forgotten is thrown away.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.log.batch import Batch
from tailrace.message import NodeId
from tailrace.relay import flight
from tailrace.relay.checking import checked
from tailrace.relay.download import CHUNK_BYTES_MAX, CHUNKS_MAX, SILENCE_S, download, endless, stored
from tailrace.relay.flight import Call
from tailrace.relay.limbo import Limbo
from tailrace.relay.outgoing import Frame
from tailrace.relay.paper import Paper
from tailrace.relay.refusal import malformed
from tailrace.relay.request import Chunk, FinalRows, Finish, Join, Joined, Registered
from tailrace.relay.vclock import Vclock
from tailrace.relay.wire import Unpacker

if TYPE_CHECKING:
    from tailrace.node.identity import Identity
    from tailrace.node.store import Store
    from tailrace.relay.applier import Source
    from tailrace.relay.journal import Journal

PARALLEL: Final = 4
_SESSION: Final = "session.json"
_ANSWER_S: Final = 3600.0
"""A source copies its database before it answers."""
_NOT_TO_BE_RESUMED: Final = frozenset({"relay.join_lost", "relay.gap", "relay.unsent", "relay.endless_join"})


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot that was fetched."""

    vclock: Vclock
    """What is in it."""
    limbo: Limbo
    batches: Iterator[Batch]
    """Its rows, once."""
    promised: Vclock
    """What a newcomer that is registered has after the final rows."""


class Joining:
    """One attempt to join. What it has fetched is kept in a directory for the next."""

    def __init__(
        self,
        source: Source,
        identity: Identity,
        directory: str,
        *,
        is_anonymous: bool = False,
        is_again: bool = False,
        is_passing: bool = False,
    ) -> None:
        """`is_again`: the node belongs to the cluster already, and takes a new snapshot. `is_passing`: it is anonymous,
        and will not follow."""
        self._is_passing = is_passing
        self._source = source
        self._identity = identity
        self._directory = directory
        self._is_anonymous = is_anonymous
        self._is_again = is_again

    def run(self, client: fl.FlightClient, journal: Journal, store: Store) -> None:
        """Everything, up to the moment from which changes are followed."""
        taken = self.take(client)
        only = re.compile(self._source.namespace or "")
        with self._resumable():
            if self._is_again:
                store.reload(taken.batches, taken.vclock, taken.limbo, only)
            else:
                store.load(taken.batches, taken.limbo, only)
        journal.begin_at(taken.vclock, taken.limbo)
        for group in [] if self._is_anonymous else _groups(self._final):
            journal.append_group(group)
        if not self._is_anonymous and not taken.promised <= journal.vclock:
            what = f"the source promised messages up to {taken.promised}, and sent those up to {journal.vclock}"
            raise malformed(what)
        self.forget()

    def take(self, client: fl.FlightClient) -> Taken:
        """The snapshot, whole. Its rows are in files until `forget`."""
        joined = self._resumed() or self._begin(client)
        with self._resumable():
            self._fetch(client, joined)
            registered = Registered.read(self._ask(client, Call.FINISH, Finish(session=joined.session)))
            if not self._is_anonymous:
                self._download(client, FinalRows(session=joined.session), self._final)
        limbo = Limbo() if joined.meta is None else Limbo(joined.meta.term, NodeId(joined.meta.leader))
        return Taken(joined.vclock, limbo, self._batches(joined.chunks), registered.vclock)

    def forget(self) -> None:
        """What was fetched is not needed any more."""
        shutil.rmtree(self._directory, ignore_errors=True)

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        """Within it an error that the next attempt would meet again makes that begin anew."""
        try:
            yield
        except TailraceError as error:
            if error.code in _NOT_TO_BE_RESUMED:
                self.forget()
            raise

    @property
    def _final(self) -> str:
        return os.path.join(self._directory, "final")

    def _begin(self, client: fl.FlightClient) -> Joined:
        self.forget()
        os.makedirs(self._directory)
        joined = Joined.read(self._ask(client, Call.JOIN, self._wish()))
        if joined.chunks > CHUNKS_MAX:
            raise endless(f"it says that there are {joined.chunks} chunks, {CHUNKS_MAX} are allowed")
        noted = {"source": self._source.location, "joined": joined.packed().decode()}
        path = os.path.join(self._directory, _SESSION)
        with open(f"{path}.new", "w", encoding="utf-8") as stream:
            json.dump(noted, stream)
        os.replace(f"{path}.new", path)
        return joined

    def _wish(self) -> Join:
        return Join(
            node=self._identity.node, is_anonymous=self._is_anonymous, is_passing=True if self._is_passing else None
        )

    def _resumed(self) -> Joined | None:
        """The join that was cut, if it was from the same source."""
        with suppress(OSError, ValueError, KeyError, TypeError, TailraceError):
            with open(os.path.join(self._directory, _SESSION), encoding="utf-8") as stream:
                noted: dict[str, Any] = json.load(stream)
            if noted["source"] == self._source.location:
                return Joined.read(noted["joined"].encode())
        return None

    def _fetch(self, client: fl.FlightClient, joined: Joined) -> None:
        missing = [number for number in range(joined.chunks) if not os.path.exists(self._path(number))]
        with ThreadPoolExecutor(PARALLEL) as pool:
            for _ in pool.map(lambda number: self._fetch_chunk(client, joined.session, number), missing):
                pass

    def _fetch_chunk(self, client: fl.FlightClient, session: str, number: int) -> None:
        self._download(client, Chunk(session=session, chunk=number), self._path(number))

    def _download(self, client: fl.FlightClient, wish: Paper, path: str) -> None:
        token = self._source.token
        download(client, wish.packed(), token, path, bytes_max=CHUNK_BYTES_MAX, silence_s=SILENCE_S)

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, f"{number}.chunk")

    def _batches(self, chunks: int) -> Iterator[Batch]:
        """The rows of all chunks, each looked at before it is believed."""
        for number in range(chunks):
            for group in _groups(self._path(number)):
                yield from (checked(head, body) for head, body in group)

    def _ask(self, client: fl.FlightClient, call: Call, paper: Paper) -> bytes:
        (answer,) = flight.ask(client, call, paper, self._source.token, _ANSWER_S)
        return answer


def _groups(path: str) -> Iterator[list[Frame]]:
    unpacker = Unpacker()
    for batch in stored(path):
        yield from unpacker.groups(batch)
    if not unpacker.is_between_groups:
        raise malformed("what a peer sent cannot be read: it ends in the middle of a group")
