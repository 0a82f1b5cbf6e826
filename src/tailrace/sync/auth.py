"""Who may call: a node says its number and its secret, of which only a salted hash is kept.

Each node that is called hears another secret, made of the one in the database and the name that it has there: with what
it hears it can be nobody at other nodes.

Secrets are random and long, so that a plain hash cannot be guessed. What was read from the database is kept for some
seconds: a node that is removed is let in no longer than that.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tailrace.errors import TailraceError
from tailrace.limits import SYNC_NODES_MAX
from tailrace.masking import keep_secret
from tailrace.sync.nodes import CALLS_US, WE_CALL, Node
from tailrace.sync.store import SyncStore

SECRET_CHARACTERS_MIN: Final = 16
SECRET_CHARACTERS_MAX: Final = 256
KEPT_S: Final = 5.0
_KEPT_MAX: Final = 10_000
_SCHEME: Final = "sha256"
_DOOR_NODE: Final = re.compile(r"(?P<node>[1-9][0-9]{0,18})/(?P<secret>[\x21-\x7e]+)")


class Accept(StrEnum):
    """Which nodes are let in."""

    KNOWN = "known"
    """Those that were registered, and those that know the secret for newcomers."""
    ANYONE = "anyone"
    """Everybody; who comes first as a node is that node."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A node, and what it says to be let in."""

    node: int
    secret: str = field(repr=False)


def secret_for(secret: str, peer: str) -> str:
    """What a node says to one of those that it calls, which goes by that name."""
    digest = hmac.digest(secret.encode(), f"tailrace sync: {peer}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def hashed(secret: str) -> str:
    """What is kept of a secret."""
    check_secret(secret)
    salt = secrets.token_hex(16)
    return f"{_SCHEME}${salt}${_digest(salt, secret)}"


def matches(stored: str | None, secret: str) -> bool:
    """Whether this is the secret of which that is kept."""
    scheme, _, rest = (stored or "").partition("$")
    salt, _, digest = rest.partition("$")
    is_same = hmac.compare_digest(_digest(salt, secret), digest)
    return is_same and scheme == _SCHEME


def check_secret(secret: str) -> None:
    if not SECRET_CHARACTERS_MIN <= len(secret) <= SECRET_CHARACTERS_MAX:
        what = (
            f"a node's secret has {SECRET_CHARACTERS_MIN} to {SECRET_CHARACTERS_MAX} characters, and this one has not"
        )
        raise TailraceError("sync.no_rights", what, hint="use the one that tailrace sync install has made")


def read_caller(header: str | None) -> Caller:
    """Who calls, by the header `door-node: <nodeId>/<secret>`."""
    found = _DOOR_NODE.fullmatch(header or "")
    if found is None or int(found["node"]) >= 1 << 63:
        what = "the header door-node is missing, or is not <nodeId>/<secret>"
        raise TailraceError("sync.no_rights", what, hint="send it with every request")
    check_secret(found["secret"])
    return Caller(int(found["node"]), found["secret"])


class Gate:
    """Lets nodes in. Any number of threads may ask; it reads the database, and writes to it only for newcomers."""

    def __init__(
        self,
        store: SyncStore,
        accept: Accept = Accept.KNOWN,
        enrol: str | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if enrol is not None:
            check_secret(enrol)
            keep_secret(enrol)
        self._store = store
        self._accept = accept
        self._enrol = enrol
        self._now = now
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[str, float]] = {}
        self._seen: set[int] = set()

    def remembers(self, caller: Caller) -> bool:
        """Whether the caller came in some seconds ago, and so may again. Never waits."""
        kept = self._kept.get(caller.node)
        is_kept = kept is not None and kept[1] >= self._now() and matches(kept[0], caller.secret)
        if is_kept:
            self._note(caller)
        return is_kept

    def check(self, caller: Caller, enrol: str | None = None) -> None:
        """Raises unless the caller may come in."""
        if caller.node == self._store.node_id:
            what = f"{caller.node} is this node itself"
            raise TailraceError("sync.bad_node", what, hint="give each database its own: never copy one")
        if not self.remembers(caller):
            self._check_stored(caller, enrol)
            self._note(caller)

    def take_seen(self) -> set[int]:
        """The nodes that came in since this was asked last."""
        with self._lock:
            found, self._seen = self._seen, set()
        return found

    def _note(self, caller: Caller) -> None:
        with self._lock:
            self._seen.add(caller.node)

    def _check_stored(self, caller: Caller, enrol: str | None) -> None:
        known = self._store.node(caller.node)
        if known is None or known.auth is None:
            self._admit(caller, enrol, known)
            known = self._store.node(caller.node)
        if known is None or known.auth is None or not matches(known.auth, caller.secret):
            what = f"that is not the secret of node {caller.node}"
            raise TailraceError("sync.no_rights", what, hint="tailrace sync node add at the other side renews it")
        if not known.rel & CALLS_US:
            self._store.meet(caller.node, CALLS_US)
        with self._lock:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[caller.node] = (known.auth, self._now() + KEPT_S)

    def _admit(self, caller: Caller, enrol: str | None, known: Node | None) -> None:
        """A newcomer. If two come as the same node at once, one of them is it, and the other one is refused.

        One that this node calls is none: with its number anybody could get what is meant for it.
        """
        if known is not None and known.rel & WE_CALL:
            what = f"node {caller.node} is called by this one, and was not let in to call it"
            hint = f"at the node that was called: tailrace sync node add {caller.node}, with the caller's proof"
            raise TailraceError("sync.not_admitted", what, hint=hint)
        is_enrolled = self._enrol is not None and hmac.compare_digest(self._enrol.encode(), (enrol or "").encode())
        if self._accept is not Accept.ANYONE and not is_enrolled:
            what = f"node {caller.node} is not known here"
            hint = f"at the node that was called: tailrace sync node add {caller.node}"
            if enrol is None:
                hint += "; or at the caller: the word for newcomers, as `enrol` of that peer"
            else:
                what += ", and the word that it said to be let in is not accepted"
                hint = f"at the caller: correct `enrol` of that peer; or {hint}"
            raise TailraceError("sync.not_admitted", what, hint=hint)
        if known is None and self._store.count_nodes() >= SYNC_NODES_MAX:
            what = f"there are {SYNC_NODES_MAX} nodes already"
            raise TailraceError("sync.busy", what, hint="register the node, or remove those that are gone")
        self._store.meet(caller.node, CALLS_US, hashed(caller.secret))


def _digest(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}${secret}".encode()).hexdigest()
