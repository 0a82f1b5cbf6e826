"""`tailrace replica`: a copy of a log, byte for byte."""

from __future__ import annotations

import json
import os
import time
from typing import Annotated, Any

import typer

app = typer.Typer(help="Copies of a log, byte for byte.", invoke_without_command=True)

_LOOK_S = 0.1
_SAME_S = 5.0
"""A source that has heard of its own within this time is as good as the top."""
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="The replica's data directory.", show_default=False)]


@app.callback()
def replica(
    context: typer.Context,
    sources: Annotated[
        str, typer.Option("--from", metavar="HOST:PORT,…", help="Where the log is; several are tried in turn.")
    ] = "",
    data: Annotated[str, typer.Option(help="The directory for the copy.")] = "",
    name: Annotated[str, typer.Option(help="Under which sources keep their logs for it; the directory's name.")] = "",
    listen: Annotated[str, typer.Option(help="Where others copy it; any free port unless said.")] = "127.0.0.1:0",
    *,
    resync: Annotated[bool, typer.Option(help="Copy everything anew when no source has what is needed.")] = False,
) -> None:
    """Keep a copy of a node's log until it is stopped, and serve it to others.

    The token for both is read from the environment variable TAILRACE_TOKEN. A node file with `replicate_from` says
    more; `tailrace serve` runs it."""
    if context.invoked_subcommand is not None:
        return

    from tailrace.cli.serve import run_replica
    from tailrace.cli.token import said_token
    from tailrace.errors import TailraceError
    from tailrace.topology.form import assemble

    if not sources or not data:
        hint = "say where the log is, and where the copy goes"
        raise TailraceError("input.invalid", "--from and --data are needed", hint=hint)
    token = said_token()
    addresses = [address.strip() for address in sources.split(",")]
    said: dict[str, Any] = {
        "node": name or os.path.basename(os.path.abspath(data)),
        "data": data,
        "listen": listen,
        "tokens": {"copies": token},
        "replicate_from": {
            "sources": [{"name": f"source{at}", "address": each, "token": token} for at, each in enumerate(addresses)],
            "resync": resync,
        },
    }
    spec, problems = assemble(said, os.getcwd())
    if spec is None:
        raise TailraceError("input.invalid", "; ".join(map(str, problems)), hint="correct the option")
    run_replica(spec)


@app.command()
def promote(data: DataArgument) -> None:
    """Make a copy that is not kept up any more a log of its own, which can be written; end the replica first."""
    from tailrace.errors import TailraceError
    from tailrace.topology.copied import is_begun
    from tailrace.topology.copied import promote as promote_copy

    log = os.path.join(data, "log")
    if not is_begun(log):
        raise TailraceError("input.invalid", f"there is no copy in {data}", hint="name a replica's data directory")
    standing = promote_copy(log)
    print(f"{data} can be written; it is of generation {standing.generation}")


@app.command("apply-now")
def apply_now(
    data: DataArgument,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for it.", min=0.0)] = 60.0,
) -> None:
    """Apply everything that a replica has received by now, whatever its `replicate_wait` says."""
    from tailrace.errors import TailraceError
    from tailrace.topology.applynow import ask

    found = _status(data)
    if not found["is_running"] or found.get("store") is None:
        what = "the replica has no store" if found["is_running"] else "the replica does not run"
        raise TailraceError("input.invalid", what, hint=f"tailrace replica status {data}")
    upto = ask(data)
    ends_s = time.monotonic() + timeout
    while (_status(data)["store"]["applied"] or 0) < upto:
        if time.monotonic() >= ends_s:
            what = f"not everything before offset {upto} is applied yet"
            raise TailraceError("topology.store", what, hint=f"tailrace replica status {data}; it goes on")
        time.sleep(_LOOK_S)
    print(f"everything before offset {upto} is applied")


@app.command()
def status(
    data: DataArgument, as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False
) -> None:
    """Show how far a replica is."""
    from tailrace.cli.show import printable

    found = _status(data)
    if as_json:
        print(json.dumps(found))
        return
    for line in _lines(found):
        print(printable(line))


def _status(data: str) -> dict[str, Any]:
    from tailrace.errors import TailraceError
    from tailrace.node.status import read_status

    found = read_status(data)
    if found.get("kind") != "replica":
        hint = "name a replica's data directory, or ask for `tailrace node status NODE.yml`"
        raise TailraceError("input.invalid", f"in {data} is a node, no replica", hint=hint)
    return found


def _lines(found: dict[str, Any]) -> list[str]:
    from tailrace.cli.node import slow_lines
    from tailrace.errors import TailraceError
    from tailrace.units import show_bytes

    running = "runs" if found["is_running"] else "does not run"
    lines = [f"replica {found['name']} {running}: {found['state']}, generation {found['generation']}"]
    behind = "unknown" if found["behind_bytes"] is None else show_bytes(found["behind_bytes"])
    lines.append(f"  offset {found['next_offset']}, behind by {behind}, told {found['age_s']:.1f} s ago")
    if found["source"] is not None:
        heard = "" if found["heard_s"] is None else f", heard of {found['heard_s']:.1f} s before"
        if (top_s := found.get("top_s") or 0.0) > _SAME_S + (found["heard_s"] or 0.0):
            heard += f", the top of all {top_s:.1f} s before"
        lines.append(f"  source {found['source']}{heard}")
    if found["error"] is not None:
        lines.append(f"  {TailraceError.decode(found['error'])}")
    lines.append(f"  copied {show_bytes(found['copied_bytes'])}, thrown away {show_bytes(found['thrown_bytes'])}")
    lines += [f"  copied by {name}" for name in found["copies"]]
    if found["store"] is not None:
        lines += _store_lines(found["store"], found["next_offset"])
    lines += [f"  alarm: {text}" for text in found["alarms"]]
    return lines + slow_lines(found)


def _store_lines(store: dict[str, Any], received: int) -> list[str]:
    from tailrace.errors import TailraceError

    applied = "not filled yet" if store["applied"] is None else f"received {received}, applied {store['applied']}"
    waits = f", {store['wait_s']:g} s late" if store["wait_s"] else ""
    lines = [f"  store: {applied}{waits}"]
    if store["ignored"]:
        lines.append(f"  ignored: {', '.join(store['ignored'])}")
    if store["backfilled"] is not None:
        lines.append(f"  coming back from the log: {store['backfilled']}")
    if store["error"] is not None:
        lines.append(f"  the store is not kept up: {TailraceError.decode(store['error'])}")
    return lines
