"""The status page of one process: what it looks at, who may look, and where it is served."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.errors import TailraceError
from tailrace.limits import WEB_CONNECTIONS_MAX, WEB_HEAD_S, WEB_STALLED_S, WEB_TOKEN_LETTERS_MIN
from tailrace.log.disk import Disk, disk_errors
from tailrace.masking import keep_secret
from tailrace.observe.looking import Look
from tailrace.serving.bounds import Bounds
from tailrace.serving.server import HttpServer, Tls
from tailrace.web.access import Access
from tailrace.web.app import FORM_BYTES_MAX, Panel, application
from tailrace.web.live import Live

LISTEN: Final = "127.0.0.1:8480"
TOKEN_VARIABLE: Final = "TAILRACE_UI_TOKEN"  # noqa: S105  the name of a variable
TOKEN_FILE: Final = "ui-token"  # noqa: S105  the name of a file
_CLOSING_S: Final = 3
_TOKEN_BYTES_MAX: Final = 4096
_LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})


@contextmanager
def status_page(
    look: Look,
    *,
    listen: str,
    token: str,
    log: str | None,
    retry: Callable[[str, str, str], None] | None = None,
    hosts: frozenset[str] = frozenset(),
    tls: Tls | None = None,
) -> Iterator[HttpServer]:
    """The page, served for as long as the block lasts."""
    if len(token) < WEB_TOKEN_LETTERS_MIN:
        what = f"the token of the page has fewer than {WEB_TOKEN_LETTERS_MIN} letters"
        raise TailraceError("config.invalid", what, hint="make one with: openssl rand -hex 16")
    keep_secret(token)
    host = listen.rpartition(":")[0].strip("[]").lower()
    access = Access(token, _LOCAL | hosts | {host})
    live = Live(look)
    panel = Panel(live, access, log, retry, is_encrypted=tls is not None)
    bounds = Bounds(
        connections_max=WEB_CONNECTIONS_MAX,
        head_s=WEB_HEAD_S,
        stalled_s=WEB_STALLED_S,
        unwanted_bytes_max=FORM_BYTES_MAX,
        closing_s=_CLOSING_S,
    )
    with HttpServer(application(panel), listen, bounds, tls) as server:
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
    with disk_errors("keeping the token of the page", path):
        if not os.path.lexists(path):
            Disk().replace_file(path, f"{secrets.token_urlsafe(24)}\n".encode())
        return _read_token(path), path


def _read_token(path: str) -> str:
    """A token that others can read is none."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as stream:
        if os.fstat(fd).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            hint = f"chmod 600 {path}; or delete it, and a new one is made"
            raise TailraceError("config.invalid", f"others can read {path}", hint=hint)
        said = stream.read(_TOKEN_BYTES_MAX)
    try:
        return said.decode("ascii").strip()
    except UnicodeDecodeError:
        hint = "delete it, and a new one is made"
        raise TailraceError("config.invalid", f"what is in {path} is no token", hint=hint) from None
