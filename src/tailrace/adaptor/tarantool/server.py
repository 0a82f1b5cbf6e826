"""A Tarantool instance: where it is, who we are to it, and what its errors mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.adaptor.tarantool.iproto import ERROR_BIT, Key, Packet
from tailrace.errors import TailraceError

PORT: Final = 3301
VERSION_MIN: Final = (2, 3, 1)
"""The first that takes anonymous replicas."""
_ADDRESS: Final = re.compile(
    r"(?:(?P<user>[^:@]+)(?::(?P<password>.*))?@)?(?P<host>\[[^\]]+\]|[^:@\[\]]+)(?::(?P<port>\d+))?"
)
_DENIED: Final = (42, 45, 47, 48, 57, 211)
_UNSUPPORTED: Final = 5
_READ_ONLY: Final = 7
_DUPLICATE: Final = 59
_UNKNOWN_REPLICA: Final = 62
_OTHER_CLUSTER: Final = 63
_TOO_MANY: Final = 73
_LOADING: Final = 116
_GAPS: Final = (32, 219)
"""32 is any error of the server's own code; its text tells a gap."""


@dataclass(frozen=True, slots=True)
class Server:
    """One instance."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    timeout_s: float = 10.0
    """How often the server is heard of at least; after four times that it is taken for gone."""

    @property
    def place(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def silence_s(self) -> float:
        return 4 * self.timeout_s

    def unreachable(self, why: str, hint: str = "see that the server runs and can be reached") -> TailraceError:
        return TailraceError("source.unreachable", f"Tarantool {self.place}: {why}", hint=hint)

    def unsupported(self, why: str, hint: str) -> TailraceError:
        return TailraceError("source.unsupported", f"Tarantool {self.place}: {why}", hint=hint)

    def lost(self, why: str) -> TailraceError:
        what = f"changes of Tarantool {self.place} cannot be read on from where they were: {why}"
        hint = (
            "remove the log and the destinations' offsets, then run again: the source is copied anew; "
            "`replica: registered` makes the server keep its changes until they are read"
        )
        return TailraceError("source.position_lost", what, hint=hint)

    def error(self, packet: Packet) -> TailraceError:
        """What a refusal means, and what to do."""
        code = packet.type & ~ERROR_BIT
        said = " ".join(str(packet.body.get(Key.ERROR_TEXT, "no reason was given")).split())
        why = f"{said} (error {code})"
        if code in _DENIED:
            what = f"Tarantool {self.place}: {why}"
            cure = f"correct user and password, or box.schema.user.grant('{self.user or 'guest'}', 'replication')"
            return TailraceError("source.no_rights", what, hint=f"{cure}; tailrace doctor")
        if code == _LOADING:
            return self.unreachable(why, "wait until the server has loaded its data")
        if code == _DUPLICATE:
            return self.unreachable(why, "end the other program that follows as the same replica")
        if _is_gap(packet, code, said):
            return self.lost(said)
        if code == _UNSUPPORTED and "wal_mode" in said:
            return self.unsupported(why, "set wal_mode = 'write' and restart the server, so that it notes its changes")
        if code == _READ_ONLY:
            return self.unsupported(why, "name a server that can be written, or say `replica: anonymous`")
        if code in (_UNKNOWN_REPLICA, _OTHER_CLUSTER):
            return self.lost(said)
        if code == _TOO_MANY:
            return self.unsupported(why, "remove replicas that are gone from _cluster, or say `replica: anonymous`")
        return self.unsupported(why, "tailrace doctor")


def _is_gap(packet: Packet, code: int, said: str) -> bool:
    stack: Any = packet.body.get(Key.ERROR) or {}
    causes = stack.get(0) or [] if isinstance(stack, dict) else []
    is_named = any(isinstance(cause, dict) and cause.get(0) == "XlogGapError" for cause in causes)
    return code in _GAPS and (is_named or "Missing .xlog" in said)


def parse_address(address: str) -> dict[str, Any]:
    """The parts of `user:password@host:port`. Raises `ValueError`, which does not repeat it."""
    found = _ADDRESS.fullmatch(address.removeprefix("tarantool://").rstrip("/"))
    if found is None or not 0 < int(found["port"] or PORT) < 1 << 16:
        raise ValueError("this is no address of Tarantool: write user:password@host:3301")
    return {
        "host": found["host"].strip("[]"),
        "port": int(found["port"] or PORT),
        "user": found["user"] or "",
        "password": found["password"] or "",
    }
