"""Where a node listens."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator

from tailrace.errors import TailraceError

PORT: Final = 4700


def _address(value: str) -> str:
    parts = urlsplit(value if "//" in value else f"//{value}")
    if parts.scheme not in ("", "grpc", "grpc+tls") or not parts.hostname or parts.path or parts.username:
        raise ValueError("should be host:port")
    try:
        port = parts.port if parts.port is not None else PORT
    except ValueError:
        raise ValueError("the port is none") from None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}"


def checked_address(value: str, what: str) -> str:
    """An address that was said on a command line."""
    try:
        return _address(value)
    except ValueError as error:
        raise TailraceError("input.invalid", f"{what}: {value[:80]!r}: {error}", hint="write host:port") from None


Address = Annotated[str, AfterValidator(_address)]
"""Where a node listens: `127.0.0.1:4700`."""


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    return is_loopback_host(address.rpartition(":")[0])


def is_loopback_host(host: str) -> bool:
    """Whether only this machine has a name or number."""
    host = host.strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
