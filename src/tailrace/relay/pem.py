"""Certificates and keys that connections between nodes are encrypted with."""

from __future__ import annotations

from tailrace.errors import TailraceError
from tailrace.limits import MIB


def read_pem(path: str | None) -> bytes | None:
    """What a file has; nothing when none is named."""
    if path is None:
        return None
    try:
        with open(path, "rb") as stream:
            return stream.read(MIB)
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}"
        raise TailraceError("config.invalid", what, hint="name a file in PEM that can be read") from None
