"""The handshake of a reverse connection: both ends prove that they know the same secret, and say who they are.

    source   → {"source": site, "nonce": a}
    replica  → {"replica": site, "nonce": b, "proof": …}
    source   → {"proof": …}
    replica  → {"ok": true}

A proof is an HMAC over both names and both nonces, so it is good for this connection and these two only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.topology.site import Site

TIMEOUT_S: Final = 10.0
FIRST_BYTE: Final = b"{"
"""With which a source begins, and no other protocol that is served at the same port."""
_LINE_BYTES_MAX: Final = 4096
_NONCE_BYTES: Final = 32


def greet_replica(connection: socket.socket, source: Site, secret: str) -> Site:
    """The end of a source, which has dialled: says who it reached."""
    mine = secrets.token_hex(_NONCE_BYTES)
    _send(connection, {"source": _packed(source), "nonce": mine})
    answer = _receive(connection)
    replica, theirs = _site(answer.get("replica")), _text(answer, "nonce")
    _check(secret, "replica", source, replica, mine, theirs, _text(answer, "proof"))
    _send(connection, {"proof": _proof(secret, "source", source, replica, mine, theirs)})
    verdict = _receive(connection)
    if verdict.get("ok") is not True:
        raise _refused(str(verdict.get("why"))[:200])
    return replica


def greet_source(connection: socket.socket, replica: Site, secret: str) -> Site:
    """The end of a replica, which was dialled: says who dialled. `accept` or `decline` it then."""
    asked = _receive(connection)
    source, theirs = _site(asked.get("source")), _text(asked, "nonce")
    mine = secrets.token_hex(_NONCE_BYTES)
    proof = _proof(secret, "replica", source, replica, theirs, mine)
    _send(connection, {"replica": _packed(replica), "nonce": mine, "proof": proof})
    _check(secret, "source", source, replica, theirs, mine, _text(_receive(connection), "proof"))
    return source


def accept(connection: socket.socket) -> None:
    """The replica takes it."""
    _send(connection, {"ok": True})


def decline(connection: socket.socket, why: str) -> None:
    """The replica has no use for it."""
    _send(connection, {"ok": False, "why": why})


def _proof(secret: str, who: str, source: Site, replica: Site, first: str, second: str) -> str:
    said = json.dumps([who, _packed(source), _packed(replica), first, second])
    return hmac.new(secret.encode(), said.encode(), hashlib.sha256).hexdigest()


def _check(secret: str, who: str, source: Site, replica: Site, first: str, second: str, proof: str) -> None:
    if not hmac.compare_digest(_proof(secret, who, source, replica, first, second), proof):
        raise _refused(f"the {who} does not know the secret")


def _packed(site: Site) -> list[str]:
    return [site.database, site.host]


def _site(told: Any) -> Site:
    match told:
        case [str(database), str(host)]:
            return Site(database, host)
    raise _refused("it does not say who it is")


def _text(said: dict[str, Any], name: str) -> str:
    found = said.get(name)
    if not isinstance(found, str) or not found.isascii():
        raise _refused(f"it says no {name}")
    return found


def _send(connection: socket.socket, said: dict[str, Any]) -> None:
    connection.sendall(json.dumps(said).encode() + b"\n")


def _receive(connection: socket.socket) -> dict[str, Any]:
    """One line, byte by byte: what follows it belongs to others."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte or len(line) >= _LINE_BYTES_MAX:
            raise _refused("it ended in the middle of a word")
        line += byte
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise _refused("it speaks another language")
    return said


def _refused(why: str) -> TailraceError:
    hint = "see that both files have the same `secret`, in `dials` and in `reverse`"
    return TailraceError("topology.handshake", f"a reverse connection was refused: {why}", hint=hint)
