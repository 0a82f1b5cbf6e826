"""Access to the page: a token, and for browsers a session that was begun with it.

A page on this machine can be asked by any program on it, and by pages of others that the same browser shows. So a name
in `Host` that is not ours is refused, and what changes something must come from our own page.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

_COOKIE: Final = "tailrace_session"
SESSION_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 100
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{1,5}))?")
_TRIES_MAX: Final = 10
_TRIES_S: Final = 60.0
_ADDRESSES_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that has shown the token."""

    until_s: float
    form: str
    """What its forms carry, so that no other page can send them."""


class Access:
    """Who may look. Any number of threads may use it."""

    def __init__(self, token: str, hosts: frozenset[str]) -> None:
        self._token = token.encode()
        self._hosts = hosts
        self._sessions: dict[str, Session] = {}
        self._failures: dict[str, deque[float]] = {}
        """By the address that they came from: one who guesses locks nobody else out."""
        self._lock = threading.Lock()

    def is_our_host(self, request: Request) -> bool:
        """Whether the request was meant for us, whatever address its name had just then."""
        said = request.headers.getlist("host")
        found = _HOST.fullmatch(said[0].lower()) if len(said) == 1 else None
        return found is not None and (found[1] or found[2]) in self._hosts

    def is_from_ourselves(self, request: Request) -> bool:
        """Whether a page of ours sent it, or a program that is no browser."""
        origin = request.headers.get("origin")
        return origin is None or origin.partition("://")[2] == request.headers.get("host", "")

    def is_let_in(self, request: Request) -> bool:
        """By a session, or by the token as a bearer's."""
        if is_program(request):
            return self._is_token(request.headers["authorization"].partition(" ")[2], request)
        return self.session(request) is not None

    def session(self, request: Request) -> Session | None:
        found = self._sessions.get(request.cookies.get(cookie_of(request), ""))
        return found if found is not None and found.until_s > time.monotonic() else None

    def is_form(self, request: Request, said: str) -> bool:
        """Whether a form is one of this browser's own session."""
        session = self.session(request)
        return session is not None and hmac.compare_digest(session.form.encode(), said.encode())

    def is_exhausted(self, request: Request) -> bool:
        """Whether too many wrong tokens came from there lately."""
        failures = self._failures.get(_address_of(request))
        return failures is not None and len(failures) == _TRIES_MAX and time.monotonic() - failures[0] < _TRIES_S

    def begin(self, request: Request, token: str) -> str | None:
        """A new session's name for whoever has the token."""
        if not self._is_token(token, request):
            return None
        name = secrets.token_urlsafe(32)
        with self._lock:
            now_s = time.monotonic()
            self._sessions = {key: each for key, each in self._sessions.items() if each.until_s > now_s}
            while len(self._sessions) >= SESSIONS_MAX:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[name] = Session(now_s + SESSION_S, secrets.token_urlsafe(32))
        return name

    def end(self, request: Request) -> None:
        with self._lock:
            self._sessions.pop(request.cookies.get(cookie_of(request), ""), None)

    def _is_token(self, said: str, request: Request) -> bool:
        is_right = hmac.compare_digest(self._token, said.encode())
        if not is_right:
            self._note_failure(_address_of(request))
        return is_right and not self.is_exhausted(request)

    def _note_failure(self, address: str) -> None:
        with self._lock:
            failures = self._failures.pop(address, None) or deque(maxlen=_TRIES_MAX)
            failures.append(time.monotonic())
            self._failures[address] = failures  # the last one now
            while len(self._failures) > _ADDRESSES_MAX:
                self._failures.pop(next(iter(self._failures)))


def _address_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def is_program(request: Request) -> bool:
    """Whether it says a token itself, which no browser does for a page of somebody else."""
    return request.headers.get("authorization", "").partition(" ")[0].lower() == "bearer"


def cookie_of(request: Request) -> str:
    """Cookies are of a host with all its ports: each page on a machine has its own."""
    found = _HOST.fullmatch(request.headers.get("host", "").lower())
    return f"{_COOKIE}_{found[3]}" if found is not None and found[3] else _COOKIE
