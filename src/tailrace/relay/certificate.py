"""A certificate: the name that it is for, so that a node can be told by it whatever address it is reached at."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any, Final

from tailrace.errors import TailraceError

_STEPS: Final = 3
"""What one end says, what the other answers, and the end of it."""
_ANY: Final = "*."


def name_in(certificate: str, key: str) -> str:
    """One of the names that a certificate is for. Two ends in memory shake hands with it: so it is decoded, and shown
    to fit its key."""
    outward, inward = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        showing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        showing.load_cert_chain(certificate, key)
        looking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        looking.check_hostname = False
        looking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it vouches for itself, whoever has signed it
        looking.load_verify_locations(certificate)
        ends = looking.wrap_bio(inward, outward), showing.wrap_bio(outward, inward, server_side=True)
        for _ in range(_STEPS):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        found: Any = ends[0].getpeercert() or {}
    except (ssl.SSLError, OSError, ValueError) as error:
        what = f"{certificate} cannot be used with its key: {error}"
        raise TailraceError("config.invalid", what, hint="correct `certificate` and `key` of `tls`") from None
    given = [name for kind, name in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    given += [name for part in found.get("subject", ()) for kind, name in part if kind == "commonName"]
    if not given:
        hint = "use a certificate that is for the address under which others reach the node"
        raise TailraceError("config.invalid", f"{certificate} is for nobody", hint=hint)
    plain = [name for name in given if not name.startswith(_ANY)]
    return str(plain[0] if plain else given[0].replace("*", "node", 1))
