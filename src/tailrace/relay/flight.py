"""The relay over Arrow Flight: one server for all peers of a node, and what both ends share."""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from tailrace.errors import TailraceError
from tailrace.log.watch import Watch
from tailrace.message import now
from tailrace.relay.request import Ack, Ballot, Heartbeat, Subscribe
from tailrace.relay.service import Service
from tailrace.relay.subscription import Subscription
from tailrace.relay.wire import SCHEMA, packed

VOTE: Final = "vote"
HEARTBEAT_S: Final = 1.0
SILENCE: Final = 4
"""A peer that was silent for so many heartbeats is gone."""
_TOKEN: Final = "authorization"  # noqa: S105  the name of a header


class RelayServer(fl.FlightServerBase):
    """Serves one node's log. It listens from the moment it is made; `port` says where."""

    def __init__(
        self,
        service: Service,
        *,
        location: str,
        tokens: Mapping[str, str],
        heartbeat_s: float = HEARTBEAT_S,
        **tls: Any,
    ) -> None:
        super().__init__(location, middleware={"peer": _WhoAsks(tokens)}, **tls)
        self._service = service
        self._heartbeat_s = heartbeat_s
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Say goodbye to all peers, and stop listening."""
        self._stopping.set()
        self.shutdown()

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[bytes]:
        with told():
            if action.type == VOTE:
                yield self._service.vote().packed()
                return
            self._check_peer(context)
            raise TailraceError(
                "relay.malformed", f"action {action.type[:40]!r} is unknown", hint="use a newer release"
            )

    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        with told():
            self._check_peer(context)
            request = Subscribe.read(descriptor.command or b"")
            with self._service.subscribe(request) as (answer, subscription):
                writer.begin(SCHEMA)
                writer.write_metadata(pa.py_buffer(answer.packed()))
                _Serving(subscription, reader, writer, self._heartbeat_s, self._stopping).run(
                    self._service.journal.log.directory, context
                )

    def _check_peer(self, context: fl.ServerCallContext) -> str:
        found: Any = context.get_middleware("peer")
        if found is None or found.name is None:
            what = "the peer has no token, or a wrong one"
            raise TailraceError("relay.no_rights", what, hint="give it a token of this node's `tokens`")
        name: str = found.name
        return name


class _Serving:
    """One subscription at work: a thread reads acknowledgements, this one sends."""

    def __init__(
        self,
        subscription: Subscription,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
        heartbeat_s: float,
        stopping: threading.Event,
    ) -> None:
        self._subscription = subscription
        self._reader = reader
        self._writer = writer
        self._heartbeat_s = heartbeat_s
        self._stopping = stopping
        self._failure: TailraceError | None = None
        self._is_over = threading.Event()
        self._heard_s = time.monotonic()
        self._beat_s = 0.0

    def run(self, directory: str, context: fl.ServerCallContext) -> None:
        listener = threading.Thread(target=self._listen, name="tailrace-relay-acks", daemon=True)
        listener.start()
        with Watch(directory) as watch:
            self._beat()
            while not self._is_over.is_set() and not self._stopping.is_set() and not context.is_cancelled():
                for group in self._subscription.groups():
                    for batch in packed(group):
                        self._writer.write_batch(batch)
                    self._beat_if_due()
                self._beat_if_due()
                if time.monotonic() - self._heard_s > SILENCE * self._heartbeat_s:
                    what = f"the peer did not answer for {SILENCE * self._heartbeat_s:g} s"
                    raise TailraceError("relay.unreachable", what, hint="see that it runs and can be reached")
                watch.wait(max(0.0, self._beat_s + self._heartbeat_s - time.monotonic()))
        if self._failure is not None:
            raise self._failure

    def _listen(self) -> None:
        try:
            while True:
                chunk = self._reader.read_chunk()
                if chunk.app_metadata is None:
                    raise TailraceError(
                        "relay.malformed", "a peer sent rows", hint="use the same release on both nodes"
                    )
                ack = Ack.read(chunk.app_metadata.to_pybytes())
                self._subscription.acknowledge(ack.vclock)
                self._heard_s = time.monotonic()
        except StopIteration:
            pass  # the peer says goodbye
        except TailraceError as error:
            self._failure = error
        except (pa.ArrowException, OSError):
            pass  # the connection is gone
        finally:
            self._is_over.set()

    def _beat_if_due(self) -> None:
        if time.monotonic() - self._beat_s >= self._heartbeat_s:
            self._beat()

    def _beat(self) -> None:
        self._beat_s = time.monotonic()
        beat = Heartbeat(at_us=now(), vclock=self._subscription.here)
        self._writer.write_metadata(pa.py_buffer(beat.packed()))


class _WhoAsks(fl.ServerMiddlewareFactory):
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
        raise fl.FlightServerError(error.what, extra_info=json.dumps(error.encode()).encode()) from error  # type: ignore[call-arg]


def options(token: str, timeout_s: float | None = None) -> fl.FlightCallOptions:
    """How a peer calls."""
    return fl.FlightCallOptions(timeout=timeout_s, headers=[(_TOKEN.encode(), f"Bearer {token}".encode())])  # type: ignore[list-item]


def vote(client: fl.FlightClient, timeout_s: float) -> Ballot:
    """Ask a node who it is."""
    (answer,) = client.do_action(fl.Action(VOTE, b""), fl.FlightCallOptions(timeout=timeout_s))
    return Ballot.read(answer.body.to_pybytes())
