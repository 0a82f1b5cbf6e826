"""`tailrace replica`: a copy of a log, byte for byte."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from tailrace.cli.options import JsonOption

app = typer.Typer(help="Copies of a log, byte for byte.", invoke_without_command=True)

_LOOK_S = 0.1
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
def status(data: DataArgument, as_json: JsonOption = False) -> None:
    """Show how far a replica is, from whom it copies, and who copies it."""
    from tailrace.cli.overview import print_overview
    from tailrace.observe.looking import look_into

    _status(data)
    print_overview(look_into(data)(), as_json=as_json)


def _status(data: str) -> dict[str, Any]:
    from tailrace.errors import TailraceError
    from tailrace.node.status import read_status

    found = read_status(data)
    if found.get("kind") != "replica":
        hint = "name a replica's data directory, or ask for `tailrace node status NODE.yml`"
        raise TailraceError("input.invalid", f"in {data} is a node, no replica", hint=hint)
    return found
