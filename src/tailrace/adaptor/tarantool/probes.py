"""Probes: what `tailrace doctor` asks a Tarantool."""

from __future__ import annotations

from tailrace.adaptor.options import Check
from tailrace.adaptor.tarantool.connection import Connection
from tailrace.adaptor.tarantool.copying import live_spaces
from tailrace.adaptor.tarantool.iproto import Type
from tailrace.adaptor.tarantool.server import Server
from tailrace.adaptor.tarantool.vclock import text
from tailrace.errors import TailraceError


def of_source(server: Server, *, is_registered: bool) -> list[Check]:
    """Whether a server can be followed."""
    checks: list[Check] = []
    try:
        with Connection(server) as connection:
            found = f"Tarantool {connection.greeting.version_text}, as {server.user or 'guest'}"
            checks.append(Check(what="server answers", ok=True, found=found))
            checks.append(Check(what="server's log", ok=True, found=f"is at {text(connection.vote())}"))
            checks += _spaces(connection)
            connection.ask(Type.FETCH_SNAPSHOT)
        kept = "until it is read" if is_registered else "as long as the server needs it itself"
        checks.append(Check(what="server may be followed", ok=True, found=f"yes; it keeps its log {kept}"))
    except TailraceError as error:
        what = "server may be followed" if checks else "server answers"
        checks.append(Check(what=what, ok=False, found=error.what, cure=error.hint))
    return checks


def _spaces(connection: Connection) -> list[Check]:
    spaces = live_spaces(connection).values()
    usable = [space for space in spaces if not space.why_unusable]
    checks = [Check(what="spaces that can be followed", ok=True, found=str(len(usable)))]
    for space in spaces:
        if space.why_unusable:
            found, cure = f"is left out: {space.why_unusable}", "leave it out with `namespace`"
            checks.append(Check(what=f"space {space.namespace}", ok=True, found=found, cure=cure))
    return checks
