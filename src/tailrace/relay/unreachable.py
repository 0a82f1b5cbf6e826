"""Why a node cannot be reached, as far as gRPC says: above all whether it is a matter of certificates."""

from __future__ import annotations

from typing import Final

from tailrace.errors import TailraceError

_LAST: Final = "last error: "
_CERTIFICATES: Final = ("handshake failed", "certificate", "empty address list")
"""The last one is what gRPC says to a `ca` that is none."""
_CLOSED: Final = "Socket closed"
_SAID_MAX: Final = 200


def unreachable(said: str) -> TailraceError:
    """What an error of gRPC means that does not come from the other end itself."""
    plain = " ".join(said.split())
    cause = plain.partition(_LAST)[2] or plain
    what = f"the connection is lost: {cause[:_SAID_MAX]}"
    hint = "see that the node runs and can be reached"
    if any(word in plain.lower() for word in _CERTIFICATES):
        what = f"no encrypted connection, the certificate does not fit: {cause[:_SAID_MAX]}"
        hint = "name in `ca` the certificate that has signed the node's, for the name in its address; or leave `ca` out"
    elif _CLOSED in plain:
        hint = f"{hint}; if it has `tls`, name its `ca`, and with `tls.clients` also a `certificate` and `key`"
    return TailraceError("relay.unreachable", what, hint=hint)
