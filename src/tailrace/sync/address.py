"""Where another node is, what it must hear to let this one in, and who it must be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from tailrace.errors import TailraceError
from tailrace.masking import keep_secret
from tailrace.relay.address import is_loopback_host

_URL_LENGTH_MAX: Final = 2000


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """A node that is called."""

    name: str
    """For people."""
    url: str
    enrol: str | None = field(default=None, repr=False)
    """What is said on the first contact."""
    ca: str | None = None
    """A file with the certificates that sign its own."""
    node: int | None = None
    """The number that it must have."""
    known_as: str | None = None
    """The name under which it has come to know this node, if it is called at several addresses."""

    @property
    def bond(self) -> str:
        """What the secret is for. A user has said it: no peer can make this node tell what is meant for another."""
        return self.known_as or self.name

    def __post_init__(self) -> None:
        if self.enrol is not None:
            keep_secret(self.enrol)

    @classmethod
    def of(
        cls,
        url: str,
        *,
        name: str | None = None,
        enrol: str | None = None,
        ca: str | None = None,
        node: int | None = None,
    ) -> PeerAddress:
        """An address that somebody has typed. Raises `config.invalid`."""
        try:
            sound = checked_url(url)
        except ValueError as error:
            raise TailraceError("config.invalid", str(error), hint="write https://host:port") from None
        return cls(name or sound.partition("://")[2], sound, enrol, ca, node)


def checked_url(url: str) -> str:
    """The address without a slash at its end. Raises ValueError when it is none, or when it is not safe."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("this is no address of a node") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or len(url) > _URL_LENGTH_MAX:
        raise ValueError("this is no address of a node, which begins with https://")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("an address is shown to everybody; it has no user, no password and nothing behind ? or #")
    if parts.scheme == "http" and not is_loopback_host(parts.hostname):
        raise ValueError(f"{parts.hostname} is not this machine, so others could read along; use https://")
    return url.rstrip("/")


def checked_origin(origin: str) -> str:
    """Where pages come from that may call, `https://host:port`; never any. Raises ValueError."""
    url = checked_url(origin)
    parts = urlsplit(url)
    if parts.path or "*" in url:
        raise ValueError("an origin is scheme, host and port, as in https://todo.example; there is none for all")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def checked_listen(address: str) -> str:
    """Where a node listens, `host:port`. Raises ValueError."""
    parts = urlsplit(f"//{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if port is None or not parts.hostname or parts.path or parts.username or parts.query or parts.fragment:
        raise ValueError("should be host:port")
    return f"{f'[{parts.hostname}]' if ':' in parts.hostname else parts.hostname}:{port}"
