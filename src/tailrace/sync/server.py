"""The server: what other nodes ask over HTTP, with Door's names. See `openapi` for what each takes and gives.

Each request goes the same way: the caller is known, the question is read, the database is asked in a thread, the answer
is written there, too. The loop itself never waits for the database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tailrace.errors import TailraceError
from tailrace.serving.events import EventStream
from tailrace.sync import ackform, arrowform
from tailrace.sync.answers import STATUS, Answer, error_object, failure, nothing, wants
from tailrace.sync.asking import LONGS, count_of, longs_as_text, page_of, parameters, part_of, wire_of
from tailrace.sync.auth import Accept, Caller, Gate, read_caller
from tailrace.sync.bodies import Body, Room, received
from tailrace.sync.content import JSON, MORE, read_json
from tailrace.sync.counts import HEADER, Counts
from tailrace.sync.entity import Authors
from tailrace.sync.exchange import Receipt, RowBatch
from tailrace.sync.faults import Faults
from tailrace.sync.openapi import document
from tailrace.sync.outgoing import next_page
from tailrace.sync.push import Channels, Dispatcher, Processing
from tailrace.sync.store import SyncStore
from tailrace.sync.wire import Wire

PREFIX: Final = "/replication/"
_THREADS: Final = 16
_log: Final = logging.getLogger(__name__)
Result = TypeVar("Result")
Endpoint = Callable[[Request, Caller], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server is to be."""

    accept: Accept = Accept.KNOWN
    enrol: str | None = field(default=None, repr=False)
    """A secret that lets a newcomer in, in the header `door-enrol` of its first request."""
    origins: tuple[str, ...] = ()
    """Pages of these origins may call from a browser: `https://todo.example`."""
    authors: Authors = Authors.ANY
    """Whose versions those who call may send."""
    threads: int = _THREADS
    """So many requests use the database at the same time."""


def app(store: SyncStore, options: ServerOptions | None = None) -> Starlette:
    """What an ASGI server runs. While it runs, a thread works off the ChangeLog."""
    options = options or ServerOptions()
    service = Service(store, options)
    routes = [
        Route("/healthz", _healthz, methods=["GET"]),
        Route("/openapi.json", _openapi, methods=["GET"]),
        *(
            Route(PREFIX + name, service.guarded(endpoint), methods=[method])
            for method, names, endpoint in service.endpoints()
            for name in names
        ),
    ]
    for route in routes:
        route.methods = route.methods and route.methods - {"HEAD"}  # what answers for ever would do so for nobody
    allowed = ["door-node", "door-enrol", LONGS, HEADER, "content-type", "content-encoding"]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=options.origins,
        allow_methods=["GET", "PUT", "POST"],
        allow_headers=allowed,
        expose_headers=[MORE],
    )
    made = Starlette(
        routes=routes,
        middleware=[cors] if options.origins else [],
        exception_handlers={404: _no_route, 405: _no_method},
        lifespan=service.lifespan,
    )
    made.router.redirect_slashes = False
    made.state.service = service
    return made


class Service:
    """All that requests share."""

    def __init__(self, store: SyncStore, options: ServerOptions) -> None:
        self._store = store
        self._gate = Gate(store, options.accept, options.enrol)
        self._room = Room()
        self._threads = options.threads
        self._authors = options.authors
        self._processing = Processing(store)
        self._channels = Channels()
        self._pool: ThreadPoolExecutor | None = None
        self.faults = Faults()
        self._has_rows: set[int] = set()
        """Tables that were not empty once. They never will be, or it does no harm to think so."""

    def endpoints(self) -> list[tuple[str, tuple[str, ...], Endpoint]]:
        """Method, names and function. The second names are those of Door's code."""
        return [
            ("GET", ("node",), self.node),
            ("GET", ("pending",), self.pending),
            ("GET", ("pendingtrackers", "findPendingReplicationTrackers"), self.pending_trackers),
            ("PUT", ("markReplicateTrackersAsProcessed",), self.mark_processed),
            ("POST", ("checkForEntitiesAlreadyReceived",), self.already_received),
            ("GET", ("pendingReplication", "findPendingReplication"), self.pending_rows),
            ("PUT", ("receive",), self.receive),
            ("GET", ("subscribe",), self.subscribe),
        ]

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        with ThreadPoolExecutor(self._threads, "tailrace sync request") as self._pool:
            dispatcher = Dispatcher(self._store, self._processing, self._channels, self._gate)
            dispatcher.start()
            try:
                yield
            finally:
                await asyncio.get_running_loop().run_in_executor(self._pool, dispatcher.stop)

    def hang_up(self) -> None:
        """Let go of the nodes that are connected, so that the server can end. From any thread."""
        self._channels.close()

    def guarded(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for those who may call."""

        async def call(request: Request) -> Response:
            try:
                return await endpoint(request, await self._known_caller(request))
            except TailraceError as error:
                is_fault = error.code == "sync.unreachable" or error.code not in STATUS
                return failure(self.faults.told(error) if is_fault else error)
            except ClientDisconnect:
                return nothing()
            except Exception:  # noqa: BLE001  the caller is told nothing of it, and the server goes on
                _log.exception("%s %s failed", request.method, request.url.path)
                what = "the node failed in a way that nobody thought of"
                return failure(TailraceError("sync.failed", what, hint="look into the log of that node, and report it"))

        return call

    # The endpoints.

    async def node(self, request: Request, caller: Caller) -> Response:
        parameters(request)
        as_text = longs_as_text(request)

        def ask() -> Answer:
            now = self._store.now_ms()
            counts = self._met(caller.node, count_of(request) or 0)
            told = {
                "nodeId": str(self._store.node_id) if as_text else self._store.node_id,
                "time": str(now) if as_text else now,
                "keyNode": self._store.key_node_of(caller.node),
                "count": counts.own,
                "heard": counts.heard,
                "formats": [JSON, arrowform.MEDIA_TYPE],
                "ackFormats": [JSON, arrowform.MEDIA_TYPE],
                "tables": {
                    str(shape.table_id): {"table": shape.entity.table, "batch": shape.entity.batch}
                    for shape in self._store.by_batch()
                },
            }
            return Answer.json(request, told)

        return (await self._do(ask)).response()

    async def pending(self, request: Request, caller: Caller) -> Response:
        parameters(request)

        def ask() -> Answer:
            self._processing.catch_up()
            found = self._store.pending(caller.node)
            self._channels.keep(caller.node, found.tables)
            for table in self._store.shapes.keys() - self._has_rows:
                if not self._store.is_empty(table):
                    self._has_rows.add(table)
            empty = [table for table in self._store.shapes if table not in self._has_rows]
            return Answer.json(request, {"tables": found.tables, "empty": empty, "deletions": sorted(found.gone or ())})

        return (await self._do(ask)).response()

    async def pending_trackers(self, request: Request, caller: Caller) -> Response:
        wire = wire_of(request, self._store, ("after", "limit"))
        after, limit = page_of(request, wire)
        self._channels.forget(caller.node, wire.shape.table_id)

        def ask() -> Answer:
            found = self._store.pending_trackers(wire.shape.table_id, caller.node, after, limit)
            return Answer.json(request, wire.trackers(found))

        return (await self._do(ask)).response()

    async def mark_processed(self, request: Request, caller: Caller) -> Response:
        wire = wire_of(request, self._store)

        def note(body: Body) -> None:
            content = body.unpacked()
            is_arrow = body.media_type == arrowform.MEDIA_TYPE
            acks = ackform.read_arrow(wire, content) if is_arrow else wire.read_acks(read_json(content))
            self._store.mark_processed(wire.shape.table_id, caller.node, acks, count_of(request))

        await self._with_body(request, (JSON, arrowform.MEDIA_TYPE), note)
        return nothing()

    async def already_received(self, request: Request, caller: Caller) -> Response:
        wire = wire_of(request, self._store)

        def ask(body: Body) -> Answer:
            asked = wire.read_trackers(read_json(body.unpacked()))
            known = self._store.already_received(wire.shape.table_id, caller.node, asked)
            return replace(Answer.json(request, wire.trackers(known.trackers)), count=known.count)

        return (await self._with_body(request, (JSON,), ask)).response()

    async def pending_rows(self, request: Request, caller: Caller) -> Response:
        wire = wire_of(request, self._store, ("after", "limit", "only"))
        (after, limit), part = page_of(request, wire), part_of(request)
        self._channels.forget(caller.node, wire.shape.table_id)

        def as_json(rows: RowBatch) -> bytes:
            return orjson.dumps(wire.rows(rows, caller.node))

        is_arrow = wants(request, arrowform.MEDIA_TYPE)
        form = arrowform.as_arrow if is_arrow else as_json

        def ask() -> Answer:
            found, content = next_page(self._store, wire.shape.table_id, caller.node, after, limit, form, part)
            made = Answer.of(request, content, arrowform.MEDIA_TYPE if is_arrow else JSON)
            return replace(made, count=found.count, has_more=found.was_cut)

        return (await self._do(ask)).response()

    async def receive(self, request: Request, caller: Caller) -> Response:
        wire = wire_of(request, self._store)

        def take(body: Body) -> Answer:
            receipt, count = Receipt(), count_of(request)
            for batch in _batches(wire, body):
                batch.count = count
                part = self._store.receive(wire.shape.table_id, caller.node, batch, self._authors)
                receipt.extend(part)
                receipt = replace(receipt, count=part.count)
            if receipt.older and wire.shape.entity.is_told_by_hooks:  # the caller will ask for what is newer
                self._processing.catch_up()
            told = wire.receipt(self._store.as_told(wire.shape.table_id, caller.node, receipt))
            if not receipt.left:
                return replace(Answer.json(request, told), count=receipt.count)
            what = f"{len(receipt.left)} rows were not taken: {receipt.left[0].refused}"
            hint = "somebody has to look into it at that node; until then keep them, and send them again"
            error = TailraceError("sync.left", what, hint=hint)
            answer = Answer.json(request, {**told, **error_object(error)}, STATUS[error.code])
            return replace(answer, count=receipt.count)

        return (await self._with_body(request, (JSON, arrowform.MEDIA_TYPE), take)).response()

    async def subscribe(self, request: Request, caller: Caller) -> Response:
        parameters(request)
        with ExitStack() as opened:
            channel = opened.enter_context(self._channels.open(caller.node, asyncio.get_running_loop()))
            channel.send(channel.fresh(await self._do(lambda: self._pending_tables(caller.node))))
            events = channel.events(self._store.node_id, lambda: self._is_welcome(caller))
            return EventStream(events, opened.pop_all())

    # What they have in common.

    def _met(self, node: int, count: int) -> Counts:
        """What was exchanged with a caller so far. If it has counted less than it did before, it was set back."""
        counts = self._store.counts(node)
        if count < counts.heard:
            _log.warning("node %d was set back to an older copy of its database; all is compared with it again", node)
            self._store.was_set_back(node, count)
        return counts

    async def _known_caller(self, request: Request) -> Caller:
        caller = read_caller(request.headers.get("door-node"))
        if not self._gate.remembers(caller):
            enrol = request.headers.get("door-enrol")
            await self._do(lambda: self._gate.check(caller, enrol))
        return caller

    async def _is_welcome(self, caller: Caller) -> bool:
        try:
            await self._do(lambda: self._gate.check(caller))
        except TailraceError as error:
            return error.code == "sync.unreachable"
        return True

    def _pending_tables(self, node: int) -> list[int]:
        self._processing.catch_up()
        return self._store.pending_tables(node)

    async def _with_body(
        self, request: Request, media_types: tuple[str, ...], work: Callable[[Body], Result]
    ) -> Result:
        async with received(request, self._room, media_types) as body:
            return await self._do(lambda: work(body))

    async def _do(self, work: Callable[[], Result]) -> Result:
        """In a thread, which may wait for the database."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _batches(wire: Wire, body: Body) -> Iterator[Any]:
    content = body.unpacked()
    if body.media_type == arrowform.MEDIA_TYPE:
        yield arrowform.read_arrow(wire, content)
    else:
        yield from wire.read_rows(read_json(content))


async def _healthz(_: Request) -> Response:
    return Answer(b'{"status":"ok"}').response()


async def _openapi(_: Request) -> Response:
    return Answer(document()).response()


async def _no_route(_: Request, __: Exception) -> Response:
    return _refused(404, "there is nothing at this address")


async def _no_method(request: Request, error: Exception) -> Response:
    return _refused(405, "that is there, but not with this method", getattr(error, "headers", None))


def _refused(status: int, what: str, headers: Mapping[str, str] | None = None) -> Response:
    hint = "GET /openapi.json says what there is"
    return failure(TailraceError("sync.unknown_route", what, hint=hint), status, headers)
