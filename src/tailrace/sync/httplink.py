"""A link to another node: requests to it, one at a time or several at once, and what can go wrong with them.

The node's own secret goes into a header, never into an address, and redirections are not followed with it.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

import httpx

from tailrace.errors import CODES, TailraceError
from tailrace.limits import SYNC_BODY_BYTES_MAX, SYNC_PACKED_BYTES_MAX, SYNC_REFUSAL_BYTES_MAX
from tailrace.masking import keep_secret
from tailrace.relay.address import is_loopback_host
from tailrace.sync.address import PeerAddress
from tailrace.sync.content import JSON, MORE, check_sendable, more_than, pack, read_value, unpack
from tailrace.sync.counts import HEADER, read_count

_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 60.0
_SILENCE_S: Final = 45.0
"""A subscription hears something every 15 seconds."""
_IDLE_S: Final = 4.0
"""Many servers and proxies close connections that were idle for five seconds, and one that is being closed cannot be
used any more."""
_TOLD_CHARACTERS_MAX: Final = 500
_NETWORK: Final = (httpx.HTTPError, httpx.StreamError, OSError)
"""What is wrong with a connection, and not with what comes over it."""
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node answered."""

    kind: str
    """Its media type."""
    body: bytes
    has_more: bool = False
    """Whether there would be more, which was too large for one answer."""
    count: int | None = None
    """How often it has exchanged something with this one, if it says so."""


class BadAnswer(TailraceError):
    """A node did not say what a node says."""


class AnswerTooLarge(BadAnswer):
    """It said more than is read at a time."""


class HttpLink:
    """`with HttpLink(address, node_id, secret) as link`. Any number of threads may use it."""

    def __init__(self, address: PeerAddress, node_id: int, secret: str, *, packs: bool | None = None) -> None:
        """`packs`: whether what is sent is compressed; unless said, if it leaves the machine."""
        keep_secret(secret)
        self.address = address
        host = urlsplit(address.url).hostname or ""
        self._packs = not is_loopback_host(host) if packs is None else packs
        self._headers = {
            "door-node": f"{node_id}/{secret}",
            "accept-encoding": "gzip" if self._packs else "identity",
            "user-agent": "tailrace",
        }
        self._client = httpx.Client(
            verify=_verification(address),
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
            limits=httpx.Limits(keepalive_expiry=_IDLE_S),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # nodes have none, and others' would pile up
        )
        self._lock = threading.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._is_cut = False

    def __enter__(self) -> HttpLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def cut(self) -> None:
        """End what is under way, and whatever is begun: nothing else ends a thread that waits for an answer."""
        with self._lock:
            self._is_cut = True
            for each in self._sockets:
                _shut(each)

    def ask(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
        kind: str = JSON,
        accept: str = JSON,
        headers: Mapping[str, str] | None = None,
        also: Collection[int] = (),
        bytes_max: int = SYNC_BODY_BYTES_MAX,
    ) -> Answer:
        """One request. Whatever the answer is if it is none of success is raised, except for the statuses named.

        What is too large is neither sent (`sync.too_large`) nor read (`AnswerTooLarge`)."""
        sent = {**self._headers, "accept": accept, **(headers or {})}
        if body is not None:
            sent["content-type"] = kind
            check_sendable(len(body))
            packed = pack(body) if self._packs else None
            if packed is not None and len(packed) <= SYNC_PACKED_BYTES_MAX:
                sent["content-encoding"] = "gzip"
                body = packed
        url = f"{self.address.url}{path}"
        with (
            self._errors(),
            self._client.stream(
                method, url, params=parameters, content=body, headers=sent, extensions=self._watched
            ) as response,
        ):
            if not response.is_success and response.status_code not in also:
                raise self._refusal(response, len(body or b""))
            with self.reading():
                content, has_more = self._content(response, bytes_max), response.headers.get(MORE) == "true"
            return Answer(_media_type(response), content, has_more, read_count(response.headers.get(HEADER)))

    @contextmanager
    def listening(self, path: str) -> Iterator[httpx.Response]:
        """An answer that does not end."""
        timeout = httpx.Timeout(_SILENCE_S, connect=_CONNECT_S)
        url = f"{self.address.url}{path}"
        sent = {**self._headers, "accept": "text/event-stream", "accept-encoding": "identity"}
        with (
            self._errors(),
            self._client.stream("GET", url, headers=sent, timeout=timeout, extensions=self._watched) as response,
        ):
            if not response.is_success:
                raise self._refusal(response)
            self._check_coding(response, ("identity",))
            yield response

    @property
    def _watched(self) -> dict[str, Any]:
        return {"trace": self._trace}

    def _trace(self, event: str, said: Mapping[str, Any]) -> None:
        """Connections are known from their beginning on; under TLS there is another socket from then on."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            with self._lock:
                opened = said["return_value"].get_extra_info("socket")
                self._sockets.add(opened)
                if self._is_cut:
                    _shut(opened)

    def bad_answer(self, what: str, made: type[BadAnswer] = BadAnswer) -> BadAnswer:
        """It did not say what a node says."""
        told = f"{self.address.name} ({self.address.url}) {what}"
        return made("sync.bad_answer", told, hint="look whether a node of sync listens there")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What is malformed inside is the other node's answer, and not what this one was asked."""
        try:
            yield
        except TailraceError as error:
            if error.code not in ("sync.malformed", "sync.too_large"):
                raise
            made = AnswerTooLarge if error.code == "sync.too_large" else BadAnswer
            raise self.bad_answer(f"answered otherwise than documented: {error.what}", made) from error
        except _NETWORK:
            raise
        except Exception as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> BadAnswer:
        """An answer of which nobody thought; where it did harm is in the log."""
        _log.error("an answer of %s cannot be read", self.address.name, exc_info=error)
        return self.bad_answer(f"answered what cannot be read: {type(error).__name__}")

    def _content(self, response: httpx.Response, bytes_max: int) -> bytes:
        """All of an answer, if it is not too much: neither as it comes nor when it is unpacked."""
        is_packed = self._check_coding(response, ("gzip", "identity") if self._packs else ("identity",)) == "gzip"
        raw_max = min(bytes_max, SYNC_PACKED_BYTES_MAX) if is_packed else bytes_max
        content = bytearray()  # a list would take more than the answer if that comes byte by byte
        for part in response.iter_raw():
            content += part
            if len(content) > raw_max:
                raise more_than(raw_max)
        return unpack(bytes(content), bytes_max) if is_packed else bytes(content)

    def _check_coding(self, response: httpx.Response, asked: Collection[str]) -> str:
        """How an answer is packed; it may be so only as it was asked for."""
        coding = str(response.headers.get("content-encoding", "identity")).strip().lower()
        if coding not in asked:
            raise self.bad_answer(f"answered with the encoding {coding[:100]!r}, which was not asked for")
        return coding

    def _refusal(self, response: httpx.Response, sent_bytes: int = 0) -> TailraceError:
        """What the other node says is wrong, if it says so in a few words."""
        name, status = self.address.name, response.status_code
        try:
            with self.reading():
                told = _told_error(_media_type(response), self._content(response, SYNC_REFUSAL_BYTES_MAX))
        except BadAnswer:
            told = None
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:  # a proxy before it may have its own limit
            what = f"{name} answered {status} to {sent_bytes:,} bytes{'' if told is None else f': {told[1]}'}"
            return TailraceError("sync.too_large", what, hint="send fewer rows at a time")
        if told is None:
            return self.bad_answer(f"answered {status}")
        code, what, hint = told
        return TailraceError(code, f"{name} answered {status}: {what}", hint=hint)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except TailraceError:
            raise
        except _NETWORK as error:
            why = str(error) or type(error).__name__
            what = f"{self.address.name} ({self.address.url}) cannot be reached: {why}"
            hint = "see whether it runs and the network is there; what is not exchanged yet is kept"
            raise TailraceError("sync.unreachable", what, hint=hint) from error
        except Exception as error:
            raise self._unreadable(error) from error


def _shut(opened: socket.socket) -> None:
    """Below TLS, which has no state that another thread may touch."""
    with suppress(OSError):  # it has ended already
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _told_error(kind: str, content: bytes) -> tuple[str, str, str] | None:
    """Code, what and hint, of an error as nodes tell it."""
    if kind != JSON:
        return None
    said: Any = read_value(content)
    try:
        error = said["error"]
        code, what, hint = str(error["code"]), str(error["what"]), str(error.get("hint", ""))
    except (TypeError, KeyError, AttributeError):
        return None
    if code not in CODES or not code.startswith("sync."):
        return None
    return code, what[:_TOLD_CHARACTERS_MAX], hint[:_TOLD_CHARACTERS_MAX]


def _media_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


@cache
def _usual_verification() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _verification(address: PeerAddress) -> ssl.SSLContext:
    if not address.url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it is not used; one that trusts somebody takes 15 ms to make
    if address.ca is None:
        return _usual_verification()
    try:
        return ssl.create_default_context(cafile=address.ca)
    except (OSError, ssl.SSLError) as error:
        what = f"the certificates of {address.name} in {address.ca} cannot be used: {error}"
        raise TailraceError("config.invalid", what, hint="name a PEM file with `ca`") from error
