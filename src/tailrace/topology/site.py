"""Who takes part in a topology: a log's name, and where a copy of it is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.errors import TailraceError

DATABASE_CHARS_MAX: Final = 60
HOST_CHARS_MAX: Final = 120
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One copy of one log. Whoever has the same database has the same log."""

    database: str
    """The name of the log that is replicated."""
    host: str
    """Where the copy is served: `host:port`."""

    def __post_init__(self) -> None:
        _check_text("the database of a site", self.database, DATABASE_CHARS_MAX)
        _check_text("the host of a site", self.host, HOST_CHARS_MAX)
        name, colon, port = self.host.rpartition(":")
        if not (name and colon and port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX):
            raise TailraceError("name.invalid", f"{self.host!r} is not host:port", hint="name it as 10.0.0.7:4700")

    def __str__(self) -> str:
        return f"{self.database}@{self.host}"


def _check_text(what: str, text: str, chars_max: int) -> None:
    if not text or len(text) > chars_max:
        told = f"{what} has {len(text)} characters; 1 to {chars_max} are possible"
        raise TailraceError("name.invalid", told, hint="choose a name of that length")
    if not text.isprintable() or text != text.strip():
        told = f"{what} has characters that cannot be printed, or spaces around it: {text!r}"
        raise TailraceError("name.invalid", told, hint="choose a name that can be read")
