"""The status page of one process: what it looks at, who may look, and where it is served."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.errors import TailraceError
from tailrace.limits import WEB_TOKEN_LETTERS_MIN
from tailrace.masking import keep_secret
from tailrace.observe.looking import Look
from tailrace.web.access import Access
from tailrace.web.app import Panel, application
from tailrace.web.live import Live
from tailrace.web.serving import HttpServer

LISTEN: Final = "127.0.0.1:8480"
TOKEN_VARIABLE: Final = "TAILRACE_UI_TOKEN"  # noqa: S105  the name of a variable
TOKEN_FILE: Final = "ui-token"  # noqa: S105  the name of a file
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})


@contextmanager
def status_page(
    look: Look,
    *,
    listen: str,
    token: str,
    log: str | None,
    retry: Callable[[str, str], None] | None = None,
    hosts: frozenset[str] = frozenset(),
    certificate: str | None = None,
    key: str | None = None,
) -> Iterator[HttpServer]:
    """The page, served for as long as the block lasts."""
    if len(token) < WEB_TOKEN_LETTERS_MIN:
        what = f"the token of the page has fewer than {WEB_TOKEN_LETTERS_MIN} letters"
        raise TailraceError("config.invalid", what, hint="make one with: openssl rand -hex 16")
    keep_secret(token)
    host = listen.rpartition(":")[0].strip("[]").lower()
    access = Access(token, _LOCAL | hosts | {host})
    live = Live(look)
    panel = Panel(live, access, log, retry, is_encrypted=certificate is not None)
    with HttpServer(application(panel), listen, certificate, key) as server:
        live.start()
        try:
            yield server
        finally:
            live.stop()


def token_beside(directory: str) -> tuple[str, str]:
    """The token of a page, and where to find it: in the environment, else in a file that only its owner can read."""
    if said := os.environ.get(TOKEN_VARIABLE, ""):
        return said, f"the environment variable {TOKEN_VARIABLE}"
    path = os.path.join(directory, TOKEN_FILE)
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read().strip(), path
    except FileNotFoundError:
        pass
    token = secrets.token_urlsafe(24)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as stream:
        stream.write(f"{token}\n")
    return token, path
