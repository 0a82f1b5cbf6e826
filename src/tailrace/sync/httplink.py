"""A link to another node: requests to it, one at a time or several at once, and what can go wrong with them.

The node's own secret goes into a header, never into an address, and redirections are not followed with it.
"""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import WeakSet

import httpx
import orjson

from tailrace.errors import CODES, TailraceError
from tailrace.limits import SYNC_BODY_BYTES_MAX
from tailrace.masking import keep_secret
from tailrace.relay.address import is_loopback_host
from tailrace.sync.address import PeerAddress
from tailrace.sync.counts import HEADER, read_count

JSON: Final = "application/json"
_PACK_FROM_BYTES: Final = 1024
_PACK_LEVEL: Final = 1
_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 60.0
_SILENCE_S: Final = 45.0
"""A subscription hears something every 15 seconds."""
_IDLE_S: Final = 4.0
"""Many servers and proxies close connections that were idle for five seconds, and one that is being closed cannot be
used any more."""
_TOLD_CHARACTERS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node answered."""

    kind: str
    """Its media type."""
    body: bytes
    count: int | None = None
    """How often it has exchanged something with this one, if it says so."""


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
    ) -> Answer:
        """One request. Whatever the answer is if it is none of success is raised, except for the statuses named."""
        sent = {**self._headers, "accept": accept, **(headers or {})}
        if body is not None:
            sent["content-type"] = kind
            if self._packs and len(body) >= _PACK_FROM_BYTES:
                sent["content-encoding"] = "gzip"
                body = gzip.compress(body, _PACK_LEVEL)
        url = f"{self.address.url}{path}"
        with (
            self._errors(),
            self._client.stream(
                method, url, params=parameters, content=body, headers=sent, extensions=self._watched
            ) as response,
        ):
            answer = Answer(_media_type(response), self._body(response), read_count(response.headers.get(HEADER)))
        if not response.is_success and response.status_code not in also:
            raise self._refusal(response, answer)
        return answer

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
                raise self._refusal(response, Answer(_media_type(response), self._body(response)))
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

    def bad_answer(self, what: str) -> TailraceError:
        """It did not say what a node says."""
        told = f"{self.address.name} ({self.address.url}) {what}"
        return TailraceError("sync.bad_answer", told, hint="look whether a node of sync listens there")

    def _body(self, response: httpx.Response) -> bytes:
        """Read it whole, but no more than is sensible, be it ever so small as it is packed."""
        parts, size = [], 0
        for part in response.iter_bytes():
            size += len(part)
            if size > SYNC_BODY_BYTES_MAX:
                raise self.bad_answer(f"answered with more than {SYNC_BODY_BYTES_MAX} bytes")
            parts.append(part)
        return b"".join(parts)

    def _refusal(self, response: httpx.Response, answer: Answer) -> TailraceError:
        """What the other node says is wrong."""
        told = _told_error(answer)
        name, status = self.address.name, response.status_code
        if told is None:
            return self.bad_answer(f"answered {status}")
        code, what, hint = told
        return TailraceError(code, f"{name} answered {status}: {what}", hint=hint)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            why = str(error) or type(error).__name__
            what = f"{self.address.name} ({self.address.url}) cannot be reached: {why}"
            hint = "see whether it runs and the network is there; what is not exchanged yet is kept"
            raise TailraceError("sync.unreachable", what, hint=hint) from error


def _shut(opened: socket.socket) -> None:
    """Below TLS, which has no state that another thread may touch."""
    with suppress(OSError):  # it has ended already
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _told_error(answer: Answer) -> tuple[str, str, str] | None:
    """Code, what and hint, of an error as nodes tell it."""
    if answer.kind != JSON:
        return None
    try:
        said: Any = orjson.loads(answer.body)
        error = said["error"]
        code, what, hint = str(error["code"]), str(error["what"]), str(error.get("hint", ""))
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError):
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
