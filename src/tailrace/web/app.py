"""The application: pages, the JSON API, news for open pages, metrics, health."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.cli.report import report_object
from tailrace.errors import Exit, TailraceError
from tailrace.limits import WEB_FORM_S
from tailrace.log import audit
from tailrace.log.consumers import Consumers
from tailrace.log.operator import Operator
from tailrace.observe.metrics import CONTENT_TYPE, exposition
from tailrace.observe.model import Kind, Part
from tailrace.serving.events import EventStream
from tailrace.web import pages
from tailrace.web.access import SESSION_S, Access, cookie_of, is_program
from tailrace.web.browsing import Compacted, Found, Wanted, browse, message_at, offset_of, told
from tailrace.web.html import Markup
from tailrace.web.live import Listener, Live

FORM_BYTES_MAX: Final = 16 << 10
BEAT_S: Final = 10.0
AUDIT_LINES: Final = 200
_OPEN: Final = {"/healthz", "/readyz", "/enter", "/static/style.css", "/static/icon.svg", "/static/live.js"}
_STATIC: Final = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Panel:
    """What a page is about."""

    live: Live
    access: Access
    log: str | None
    """The log's directory, for the browser; None: there is none."""
    retry: Callable[[str, str, str], None] | None = None
    """Let a writer go on, given its name, a reason and who asks; None where there are no writers."""
    is_encrypted: bool = False


def application(panel: Panel) -> Starlette:
    """Everything that is served."""
    shown = _Shown(panel)
    routes = [
        Route("/", shown.now),
        Route("/log", shown.log),
        Route("/log/{offset}", shown.message),
        Route("/audit", shown.audit),
        Route("/stuck/{writer}", shown.stuck),
        Route("/stuck/{writer}/{action}", shown.act, methods=["POST"]),
        Route("/events", shown.events),
        Route("/enter", shown.enter, methods=["POST"]),
        Route("/leave", shown.leave, methods=["POST"]),
        Route("/api/overview", shown.api_overview),
        Route("/api/log", shown.api_log),
        Route("/api/log/{offset}", shown.api_message),
        Route("/api/audit", shown.api_audit),
        Route("/metrics", shown.metrics),
        Route("/healthz", shown.health),
        Route("/readyz", shown.ready),
        Route("/static/{name}", shown.static),
    ]
    guards = [Middleware(_Guard, access=panel.access)]
    return Starlette(
        routes=routes, middleware=guards, exception_handlers={TailraceError: _failed, HTTPException: _no_page}
    )


class _Guard:
    """Lets in who may come in, and says so with the headers of every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        is_begun = False

        async def send_guarded(message: Any) -> None:
            nonlocal is_begun
            is_begun = True
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in names)]
            await send(message)

        refusal = self._refusal(Request(scope))
        try:
            await (refusal or self._app)(scope, receive, send_guarded)
        except Exception:  # the caller is told nothing of it, and the page goes on
            _LOGGER.exception("%s %s failed", scope["method"], scope["path"])
            if not is_begun:
                what = "that failed in a way that nobody thought of"
                error = TailraceError("web.failed", what, hint="look into the log of the process, and report it")
                await _told_failure(Request(scope), error)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        if not self._access.is_our_host(request):
            return _error(400, "web.bad_host", "this page is not served under that name")
        if request.method not in ("GET", "HEAD") and not self._access.is_from_ourselves(request):
            return _error(403, "web.bad_origin", "that was sent by a page of somebody else")
        if request.scope["path"] in _OPEN or self._access.is_let_in(request):
            return None
        if self._access.is_exhausted(request):
            return _error(429, "web.too_many_tries", "too many wrong tokens; try again in a minute")
        if _wants_html(request):
            return _html(pages.login_page(to=_way_back(request)), 401)
        return _error(401, "web.no_token", "a token is needed: Authorization: Bearer …")


class _Shown:
    def __init__(self, panel: Panel) -> None:
        self._panel = panel

    async def now(self, _request: Request) -> Response:
        return _html(pages.now_page(await run_in_threadpool(self._panel.live.shown)))

    async def log(self, request: Request) -> Response:
        said = dict(request.query_params)
        try:
            found = await run_in_threadpool(browse, self._log(), Wanted.read(said))
        except TailraceError as error:
            return _html(pages.log_page(said, Found([], None, error)), _status_of(error))
        return _html(pages.log_page(said, found))

    async def message(self, request: Request) -> Response:
        entry = await run_in_threadpool(message_at, self._log(), offset_of(request.path_params["offset"]))
        return _html(pages.message_page(entry))

    async def audit(self, _request: Request) -> Response:
        return _html(pages.audit_page(await run_in_threadpool(self._trail)))

    async def stuck(self, request: Request) -> Response:
        part = await run_in_threadpool(self._writer, request.path_params["writer"])
        session = self._panel.access.session(request)
        return _html(pages.stuck_page(part, session.form if session is not None else ""))

    async def act(self, request: Request) -> Response:
        """Retry or acknowledge: by a form of our own page, or by a program with the token. Both must say that they are
        sure, and why."""
        said = await _form(request)
        if not is_program(request) and not self._panel.access.is_form(request, said.get("form", "")):
            raise TailraceError("web.bad_origin", "the form is not of this session", hint="open the page again")
        if said.get("sure") != "yes" or not said.get("reason", "").strip():
            what = "nothing was done: say that you are sure, and why"
            raise TailraceError("input.invalid", what, hint="fill in the form: reason, and sure=yes")
        writer, action = request.path_params["writer"], request.path_params["action"]
        via = f"{'api' if is_program(request) else 'page'} from {request.client.host if request.client else 'nowhere'}"
        await run_in_threadpool(self._do, writer, action, said, via)
        if is_program(request):
            return JSONResponse({"done": action})
        return RedirectResponse("/", 303)

    async def events(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")  # what goes on for ever would do so for nobody
        known = request.headers.get("last-event-id") or request.query_params.get("known", "")
        with ExitStack() as opened:
            listener = opened.enter_context(self._panel.live.listening())
            return EventStream(self._news(request, listener, known), opened.pop_all())

    async def enter(self, request: Request) -> Response:
        access = self._panel.access
        if access.is_exhausted(request):
            return _html(pages.login_page("Too many wrong tokens; try again in a minute."), 429)
        said = await _form(request)
        name, to = access.begin(request, said.get("token", "")), said.get("to", "")
        if name is None:
            return _html(pages.login_page("That is not the token.", to=to), 401)
        answer = RedirectResponse(to if _is_our_path(to) else "/", 303)
        answer.set_cookie(
            cookie_of(request),
            name,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="strict",
            secure=self._panel.is_encrypted,
        )
        return answer

    async def leave(self, request: Request) -> Response:
        self._panel.access.end(request)
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(cookie_of(request))
        return answer

    async def api_overview(self, _request: Request) -> Response:
        overview = await run_in_threadpool(self._panel.live.overview)
        return _json(overview.encode())

    async def api_log(self, request: Request) -> Response:
        found = await run_in_threadpool(browse, self._log(), Wanted.read(dict(request.query_params)))
        if found.problem is not None:
            raise found.problem
        return _json({"messages": [told(entry) for entry in found.entries], "next_offset": found.next_offset})

    async def api_message(self, request: Request) -> Response:
        return _json(told(await run_in_threadpool(message_at, self._log(), offset_of(request.path_params["offset"]))))

    async def api_audit(self, _request: Request) -> Response:
        return _json({"audit": await run_in_threadpool(self._trail)})

    async def metrics(self, _request: Request) -> Response:
        overview = await run_in_threadpool(self._panel.live.overview)
        return Response(exposition(overview), media_type=CONTENT_TYPE)

    async def health(self, _request: Request) -> Response:
        """The process answers."""
        return JSONResponse({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """It also sees what it serves."""
        is_well = self._panel.live.is_well
        return JSONResponse({"status": "ok" if is_well else "not ready"}, 200 if is_well else 503)

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return _error(404, "input.invalid", "there is no such file")
        content = files("tailrace.web").joinpath("static", name).read_bytes()
        return Response(content, media_type=_STATIC[name])

    async def _news(self, request: Request, listener: Listener, known: str) -> AsyncIterator[str]:
        """For as long as whoever listens may look."""
        live = self._panel.live
        yield "retry: 3000\n\n"
        while not live.is_stopping and self._panel.access.is_let_in(request):
            known, changed = live.news(known)
            if changed:
                yield f"id: {known}\ndata: {changed}\n\n"
            if not await listener.wait(BEAT_S):
                yield "event: beat\ndata:\n\n"

    def _log(self) -> str:
        if self._panel.log is None:
            raise TailraceError("log.not_found", "there is no log here", hint="tailrace run, or tailrace serve")
        return self._panel.log

    def _trail(self) -> list[dict[str, Any]]:
        return list(deque(audit.read(self._log()), AUDIT_LINES))[::-1]

    def _writer(self, name: str) -> Part:
        for part in self._panel.live.overview().of(Kind.WRITER):
            if part.name == name:
                return part
        raise TailraceError("consumer.unknown", f"there is no writer {name}", hint="look at the page again")

    def _do(self, writer: str, action: str, said: dict[str, str], via: str) -> None:
        part = self._writer(writer)
        retry = self._panel.retry
        if retry is None or action not in ("retry", "acknowledge"):
            raise TailraceError(
                "input.invalid", f"{action} is nothing that can be done here", hint="retry, acknowledge"
            )
        reason = said["reason"].strip()
        if action == "acknowledge":
            stuck = part.stuck
            if stuck is None or not stuck.is_single or said.get("offset") != str(stuck.first):
                what = f"writer {writer} is not stuck at message {said.get('offset')} any more"
                raise TailraceError("offset.direction", what, hint="look at the page again")
            Operator(Consumers(self._log()), via=via).acknowledge(writer, stuck.first, reason=reason)
        elif part.goes_on:  # a wish that is kept would be granted at its next failure, which nobody has seen
            what = f"writer {writer} is {part.state}: there is nothing to retry"
            raise TailraceError("consumer.locked", what, hint="look at the page again")
        retry(writer, reason, via)


async def _form(request: Request) -> dict[str, str]:
    """A form's fields. Nothing longer than a form of ours is read."""
    body = b""
    try:
        async with asyncio.timeout(WEB_FORM_S):
            async for piece in request.stream():
                body += piece
                if len(body) > FORM_BYTES_MAX:
                    raise TailraceError("web.too_large", "that is more than a form has", hint="say less")
    except (TimeoutError, ClientDisconnect):
        raise TailraceError("web.slow", "the form took too long to come", hint="send it again") from None
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise TailraceError("input.invalid", "that is no form", hint="send it as the page does") from None


async def _failed(request: Request, error: Exception) -> Response:
    if not isinstance(error, TailraceError):
        raise error
    return _told_failure(request, error)


def _told_failure(request: Request, error: TailraceError) -> Response:
    if _wants_html(request) and not request.scope["path"].startswith("/api/"):
        return _html(pages.error_page(error), _status_of(error))
    near = {"before": error.before, "after": error.after} if isinstance(error, Compacted) else {}
    return JSONResponse({"error": {**report_object(error), **near}}, _status_of(error))


async def _no_page(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    told = TailraceError("input.invalid", "there is nothing at this address, or not with this method", hint="open /")
    if _wants_html(request):
        return _html(pages.error_page(told), error.status_code)
    return JSONResponse({"error": report_object(told)}, error.status_code, error.headers)


def _status_of(error: TailraceError) -> int:
    special = {
        "web.bad_origin": 403,
        "web.too_large": 413,
        "log.not_found": 404,
        "log.past_end": 404,
        "log.below_oldest": 404,
        "log.compacted": 410,
        "consumer.unknown": 404,
        "offset.direction": 409,
        "consumer.locked": 409,
        "web.slow": 408,
        "web.failed": 500,
        "log.corrupt": 500,
        "message.invalid": 500,
    }
    return special.get(error.code, 400 if error.exit_status is Exit.INPUT else 503)


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _html(shown: Markup, status: int = 200) -> Response:
    """Whatever is in a message can be sent: half a letter is shown as what it is."""
    return Response(shown.encode("utf-8", "backslashreplace"), status, media_type="text/html")


def _way_back(request: Request) -> str:
    """Where somebody wanted to go who has to say the token first."""
    query = request.scope["query_string"].decode("latin-1")
    path = quote(request.scope["path"])
    return "/" if request.method != "GET" else f"{path}?{query}" if query else path


def _is_our_path(to: str) -> bool:
    """A path here, and nothing that a browser takes for an address elsewhere."""
    return to.startswith("/") and not to.startswith("//") and "\\" not in to and to.isprintable() and to.isascii()


def _error(status: int, code: str, what: str) -> Response:
    return JSONResponse({"error": {"code": code, "what": what}}, status)


def _json(content: Any) -> Response:
    return Response(json.dumps(content, default=str), media_type="application/json")
