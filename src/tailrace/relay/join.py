"""JOIN, the source's side: a view of the store is taken, its rows are served in chunks, and the newcomer is registered.

1. The log is kept for the newcomer from now on, so that what comes after the view is there when it is asked for.
2. A view of the store, and the clock that belongs to it: `start`.
3. Chunks: pieces of the view's tables, in any order, several at a time, again after a cut. They do not change.
4. Registration, in the log itself, so that all nodes know of the newcomer. The clock then: `stop`.
5. The messages in (start, stop], its own among them; the clock then: `current`, which may be further.

One that only reads is not registered, and has no step 5: it follows from `start` on.

The view is closed when the newcomer has all of it. What it asks for behind that, it can ask again: it may fail to
publish what it has fetched.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import TailraceError
from tailrace.limits import JOINS_MAX, JOINS_PER_TOKEN_MAX
from tailrace.log.batch import batches_of, encode_frame
from tailrace.log.frame import Codec
from tailrace.log.view import LogView
from tailrace.message import Message, NodeId, Op, now
from tailrace.relay.names import CLUSTER
from tailrace.relay.outgoing import Frame, Outgoing, Wish
from tailrace.relay.refusal import malformed
from tailrace.relay.request import META_SINCE, Joined, Meta, Registered
from tailrace.relay.room import Room
from tailrace.relay.vclock import Vclock

if TYPE_CHECKING:
    from tailrace.log.batch import Batch
    from tailrace.node.store import Store, View
    from tailrace.relay.journal import Journal
    from tailrace.relay.request import Join

KEEP_S: Final = 3600.0
"""A join that nobody went on with for so long is forgotten."""


@dataclass(slots=True)
class _Session:
    """One newcomer."""

    id: str
    node: NodeId
    view: View
    pieces: list[tuple[str, Any]]
    is_anonymous: bool = False
    stop: Vclock | None = None
    is_fetched: bool = False
    """Whether the newcomer has all rows of the view, which is closed then."""
    seen_s: float = field(default_factory=time.monotonic)
    caller: str = ""

    @property
    def chunks(self) -> int:
        return len(self.pieces) + 1


class Joins:
    """The newcomers of a node, each with its view in a directory of its own."""

    def __init__(self, journal: Journal, store: Store, directory: str) -> None:
        self._journal = journal
        self._store = store
        self._directory = directory
        self._sessions: dict[str, _Session] = {}
        self._room = Room("joins", each_max=JOINS_PER_TOKEN_MAX, all_max=JOINS_MAX)
        self._lock = threading.Lock()
        shutil.rmtree(directory, ignore_errors=True)  # views of an earlier process: their newcomers begin again
        os.makedirs(directory, exist_ok=True)

    def begin(self, request: Join, caller: str = "") -> Joined:
        """Steps 2 and 3; step 1 is done. A newcomer that asks again gets another view."""
        self.forget_old()
        with self._lock:
            before = [name for name, each in self._sessions.items() if each.node == request.node]
        for name in before:
            self.end(name)
        self._room.take(caller)
        try:
            session = self._session(request, caller)
        except BaseException:
            self._room.leave(caller)
            raise
        with self._lock:
            self._sessions[session.id] = session
        limbo = self._journal.limbo
        meta = Meta(term=limbo.term, leader=limbo.leader) if request.version >= META_SINCE else None
        return Joined(session=session.id, vclock=session.view.vclock, chunks=session.chunks, meta=meta)

    def _session(self, request: Join, caller: str) -> _Session:
        name = secrets.token_hex(8)
        directory = os.path.join(self._directory, name)
        os.makedirs(directory)
        with ExitStack() as opening:
            opening.callback(shutil.rmtree, directory, ignore_errors=True)
            view = self._store.view(directory)
            opening.callback(view.close)
            pieces = pieces_of(self._store, view)
            opening.pop_all()
        return _Session(name, NodeId(request.node), view, pieces, request.is_anonymous, caller=caller)

    def chunk(self, name: str, number: int) -> Iterator[list[Frame]]:
        """The rows of one chunk."""
        session = self._find(name)
        if session.is_fetched:
            raise join_lost()
        if not 0 <= number < session.chunks:
            raise malformed(f"there is no chunk {number}, only {session.chunks}")
        for frame in frames_of(self._batches(session, number)):
            session.seen_s = time.monotonic()
            yield [frame]

    def register(self, name: str) -> Registered:
        """Step 4, once; asked again it gives the same answer."""
        session = self._find(name)
        with self._lock:
            if session.stop is None:
                if not session.is_anonymous:
                    note_member(self._journal, session.node)
                session.stop = self._journal.vclock
        if session.is_anonymous:
            self._close_view(session)
        return Registered(vclock=session.stop)

    def final(self, name: str) -> Iterator[list[Frame]]:
        """Step 5."""
        session = self._find(name)
        if session.stop is None:
            raise TailraceError("relay.malformed", "the newcomer is not registered yet", hint="register first")
        going = Outgoing(LogView(self._journal.log.directory), Wish(NodeId(0)), session.view.vclock, session.stop)
        try:
            for group in going.groups(self._journal.end):
                yield group
                if session.stop <= going.vclock:
                    break
        finally:
            going.close()
        self._close_view(session)

    def end(self, name: str) -> None:
        """The newcomer begins again, or will not come back."""
        with self._lock:
            session = self._sessions.pop(name, None)
        if session is not None:
            self._close_view(session)

    def _close_view(self, session: _Session) -> None:
        with self._lock:
            if session.is_fetched:
                return
            session.is_fetched = True
        session.view.close()
        self._room.leave(session.caller)
        shutil.rmtree(os.path.join(self._directory, session.id), ignore_errors=True)

    def close(self) -> None:
        """The newcomers begin again, here or elsewhere."""
        with self._lock:
            names = list(self._sessions)
        for name in names:
            self.end(name)

    def forget_old(self) -> None:
        """End what nobody goes on with; a view costs its database something."""
        with self._lock:
            old = [name for name, each in self._sessions.items() if time.monotonic() - each.seen_s > KEEP_S]
        for name in old:
            self.end(name)

    def _batches(self, session: _Session, number: int) -> Iterator[Batch]:
        """The rows of a piece; of the last chunk, which messages wrote them last."""
        if number == len(session.pieces):
            yield from session.view.versions()
            return
        yield from rows_of(session.view, *session.pieces[number])

    def _find(self, name: str) -> _Session:
        with self._lock:
            session = self._sessions.get(name)
        if session is None:
            raise join_lost()
        session.seen_s = time.monotonic()
        return session


def note_member(journal: Journal, node: NodeId) -> None:
    """Let all nodes know that a node belongs to the cluster."""
    journal.append_local(batches_of([Message(Op.INSERT, now(), CLUSTER, {"json": json.dumps({"node": str(node)})})]))


def pieces_of(store: Store, view: View) -> list[tuple[str, Any]]:
    """All rows of a view: pieces, each with its namespace, those of one namespace side by side."""
    with closing(view.reader()) as reader:
        tables = store.wanted_tables(reader)
        return [(table.namespace, piece) for table in tables for piece in reader.plan_copy(table)]


def rows_of(view: View, namespace: str, piece: Any) -> Iterator[Batch]:
    with closing(view.reader()) as reader:
        yield from reader.read_copy(namespace, piece)


def frames_of(batches: Iterable[Batch]) -> Iterator[Frame]:
    """Rows as they travel."""
    for batch in batches:
        for part in batch.pieces():
            yield encode_frame(part, Codec.LZ4)


def join_lost() -> TailraceError:
    what = "this join is not known here (any more)"
    return TailraceError("relay.join_lost", what, hint="begin again; it does so by itself")
