"""The relay over Arrow Flight: one server for all peers of a node, and what both ends share."""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.log.watch import Watch
from tailrace.relay.guest import Guest
from tailrace.relay.heartbeat import HEARTBEAT_S
from tailrace.relay.inquiry import Range
from tailrace.relay.names import OPERATOR
from tailrace.relay.paper import Paper
from tailrace.relay.reading import answered
from tailrace.relay.request import (
    Ack,
    Ballot,
    Chunk,
    Commit,
    Committed,
    Elect,
    FinalRows,
    Finish,
    Heartbeat,
    Join,
    Promoted,
    Register,
    Subscribe,
    read_wish,
)
from tailrace.relay.service import Service
from tailrace.relay.subscription import Subscription
from tailrace.relay.unreachable import unreachable
from tailrace.relay.wire import SCHEMA, all_packed, packed_together

_TOKEN: Final = "authorization"  # noqa: S105  the name of a header
_Request = TypeVar("_Request", Elect, Ack, Join, Register, Subscribe)


class Call(StrEnum):
    """What a peer can ask for that is answered at once. Rows come through tickets."""

    VOTE = "vote"
    ACK = "ack"
    JOIN = "join"
    FINISH = "finish"
    REGISTER = "register"
    ELECT = "elect"
    PROMOTE = "promote"
    COMMIT = "commit"


class Operations(Protocol):
    """What operators and applications can ask of a node."""

    def promote(self) -> Promoted:
        """Lead from now on."""

    def commit(self, request: Commit) -> Committed:
        """One synchronous transaction."""


class RelayServer(fl.FlightServerBase):
    """Serves one node's log. It listens from the moment it is made; `port` says where.

    Rows go one way, in one long answer; acknowledgements come as calls of their own. So no call waits for a peer.
    """

    def __init__(
        self,
        service: Service,
        *,
        location: str,
        tokens: Mapping[str, str],
        heartbeat_s: float = HEARTBEAT_S,
        operator: tuple[str, Operations] | None = None,
        guests: Sequence[Guest] = (),
        **tls: Any,
    ) -> None:
        """`operator` is what operators must say, and what they can ask then; `guests` are served, too."""
        known = {**tokens, **({} if operator is None else {OPERATOR: operator[0]})}
        super().__init__(location, middleware={"peer": WhoAsks(known)}, **tls)
        self._service = service
        self._serves_nobody = not tokens
        self._operations = None if operator is None else operator[1]
        self._guests = guests
        self._heartbeat_s = heartbeat_s
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Say goodbye to all peers, and stop listening."""
        self._stopping.set()
        self.shutdown()

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[bytes]:
        with told():
            if action.type == Call.VOTE:
                yield self._service.vote().packed()
                return
            peer = self._check_peer(context)
            said = action.body.to_pybytes()
            match action.type:
                case Call.PROMOTE | Call.COMMIT:
                    yield self._operate(peer, action.type, said).packed()
                case Call.ELECT:
                    yield self._service.elect(self._known(Elect.read(said), peer)).packed()
                case Call.ACK:
                    self._service.acknowledge(self._known(Ack.read(said), peer))
                case Call.JOIN:
                    yield self._service.join(self._known(Join.read(said), peer), peer).packed()
                case Call.FINISH:
                    yield self._service.finish(Finish.read(said)).packed()
                case Call.REGISTER:
                    self._service.register(self._known(Register.read(said), peer))
                case _ if guest := next((each for each in self._guests if action.type in each.calls), None):
                    yield from guest.answered(peer, action.type, said)
                case _:
                    yield from answered(self._service.readings, peer, action.type, said)

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        with told():
            self._check_peer(context)
            for guest in self._guests:
                opened = guest.opened(ticket.ticket, lambda: self._stopping.is_set() or context.is_cancelled())
                if opened is not None:
                    return fl.GeneratorStream(*opened)
            return fl.GeneratorStream(SCHEMA, self._rows(ticket.ticket, context))

    def _rows(self, ticket: bytes, context: fl.ServerCallContext) -> Iterator[Any]:
        with told():
            match read_wish(ticket):
                case Chunk() as wish:
                    yield from all_packed(self._service.chunk(wish))
                case FinalRows() as wish:
                    yield from all_packed(self._service.final(wish))
                case Range() as wish:
                    yield from all_packed(self._service.readings().range(wish))
                case Subscribe() as wish:
                    yield from self._serve(wish, context)

    def _serve(self, request: Subscribe, context: fl.ServerCallContext) -> Iterator[Any]:
        peer = self._check_peer(context)
        beats = self._heartbeat_s
        with self._service.subscribe(self._known(request, peer), peer, heartbeat_s=beats) as (answer, subscription):
            yield _nothing(), pa.py_buffer(answer.packed())
            beat_s = 0.0
            with Watch(self._service.journal.log.directory) as watch:
                while not self._stopping.is_set() and not context.is_cancelled():
                    subscription.check_alive()
                    if time.monotonic() - beat_s >= self._heartbeat_s:
                        beat_s = time.monotonic()
                        yield self._heartbeat(subscription)
                    for batch, is_whole in packed_together(subscription.steps()):
                        yield _nothing() if batch is None else batch
                        if is_whole and time.monotonic() - beat_s >= self._heartbeat_s:
                            break
                    else:
                        watch.wait(max(0.0, beat_s + self._heartbeat_s - time.monotonic()))

    def _heartbeat(self, subscription: Subscription) -> tuple[pa.RecordBatch, pa.Buffer]:
        lag = subscription.lag()
        beat = Heartbeat(vclock=self._service.journal.vclock, behind_bytes=lag.bytes, behind_s=lag.seconds)
        return _nothing(), pa.py_buffer(beat.packed())

    def _known(self, request: _Request, peer: str) -> _Request:
        """What a peer asks for itself, and for no other node."""
        self._service.acquaintances.check(request.node, peer)
        return request

    def _operate(self, peer: str, call: str, said: bytes) -> Paper:
        if self._operations is None or peer != OPERATOR:
            what = "only operators may ask this"
            raise TailraceError("relay.no_rights", what, hint="say what the node file has as `operator`")
        return self._operations.promote() if call == Call.PROMOTE else self._operations.commit(Commit.read(said))

    def _check_peer(self, context: fl.ServerCallContext) -> str:
        try:
            return caller(context)
        except TailraceError:
            if not self._serves_nobody:
                raise
            what = "this node serves its log to nobody"
            hint = "name peers in its `tokens`, or follow another node"
            raise TailraceError("relay.no_log", what, hint=hint) from None


def caller(context: fl.ServerCallContext) -> str:
    """Who asks, as its token says; whoever has none is refused."""
    found: Any = context.get_middleware("peer")
    if found is None or found.name is None:
        what = "the peer has no token, or a wrong one"
        raise TailraceError("relay.no_rights", what, hint="give it a token of this node's `tokens`")
    name: str = found.name
    return name


class WhoAsks(fl.ServerMiddlewareFactory):
    """Finds out which peer asks, by its token. Whether it may is for the call to say."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = dict(tokens)

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, list[str] | list[bytes]]) -> _Caller:
        given = str(next(iter(headers.get(_TOKEN, [])), "")).removeprefix("Bearer ").encode()
        names = [name for name, token in self._tokens.items() if hmac.compare_digest(token.encode(), given)]
        return _Caller(names[0] if names and given else None)


class _Caller(fl.ServerMiddleware):
    def __init__(self, name: str | None) -> None:
        self.name = name


@contextmanager
def told() -> Iterator[None]:
    """Our errors as Flight carries them."""
    try:
        yield
    except TailraceError as error:
        said: Any = {"extra_info": json.dumps(error.encode()).encode()}  # which the stubs do not know
        raise fl.FlightServerError(error.what, **said) from error


def options(token: str, timeout_s: float | None = None) -> fl.FlightCallOptions:
    """How a peer calls."""
    headers: Any = [(_TOKEN.encode(), f"Bearer {token}".encode())]  # bytes, though the stubs say text
    return fl.FlightCallOptions(timeout=timeout_s, headers=headers)


def vote(client: fl.FlightClient, timeout_s: float) -> Ballot:
    """Ask a node who it is."""
    with our_errors():
        (answer,) = client.do_action(fl.Action(Call.VOTE, b""), fl.FlightCallOptions(timeout=timeout_s))
        return Ballot.read(answer.body.to_pybytes())


def ask(
    client: fl.FlightClient, call: StrEnum, paper: Paper, token: str, timeout_s: float | None = None
) -> list[bytes]:
    """What a node answers."""
    with our_errors():
        found = client.do_action(fl.Action(call, paper.packed()), options(token, timeout_s))
        return [answer.body.to_pybytes() for answer in found]


@contextmanager
def our_errors() -> Iterator[None]:
    """Flight's errors as ours; the inverse of `told`."""
    try:
        yield
    except (fl.FlightError, pa.ArrowException, OSError, StopIteration) as error:
        raise ours(error) from error


def ours(error: BaseException) -> TailraceError:
    """What an error of Flight means: what the other end said, or that it is not there."""
    said = getattr(error, "extra_info", None)
    if said:
        try:
            return TailraceError.decode(json.loads(said))
        except (ValueError, KeyError, TypeError, IndexError):
            pass
    said = "the other end has closed it" if isinstance(error, StopIteration) else str(error)
    return unreachable(said or type(error).__name__)


@cache
def _nothing() -> pa.RecordBatch:
    """Made when it is first needed: pyarrow imports pandas, where there is one, with its first array."""
    return pa.record_batch([pa.array([], pa.binary())], schema=SCHEMA)
