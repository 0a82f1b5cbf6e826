"""`tailrace queue status` and `resync`: how the sessions of a site are doing, and a new snapshot for one."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from tailrace.cli.options import JsonOption

DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="The site's data directory.", show_default=False)]


def status(data: DataArgument, as_json: JsonOption = False) -> None:
    """Show what each session of a site does, how much remains to be sent, and what has come from whom."""
    from tailrace.cli.overview import print_overview
    from tailrace.observe.looking import look_into
    from tailrace.observe.model import Kind

    site = _read(data)["site"]
    found = look_into(data, site)().only(Kind.QUEUE, Kind.RECEIVED, Kind.SNAPSHOT)
    print_overview(found, as_json=as_json)


def resync(
    data: DataArgument,
    client: Annotated[str, typer.Option(help="Whose data.", show_default=False)],
    site: Annotated[str, typer.Option(help="The destination.", show_default=False)],
) -> None:
    """Have a destination get a new snapshot, whatever it has. A site that does not run does it when it starts."""
    from tailrace.errors import TailraceError
    from tailrace.queues import wishes
    from tailrace.queues.site import STATE

    found = _read(data)
    known = {(each["client"], each["sink"]): each["takes_snapshots"] for each in found["sessions"]}
    if (client, site) not in known:
        told = ", ".join(f"{each} to {sink}" for each, sink in known) or "none"
        what = f"{client} sends nothing to {site}"
        raise TailraceError("queue.unknown_destination", what, hint=f"there are: {told}")
    if not known[client, site]:
        what = f"{client} has no snapshots"
        raise TailraceError("input.invalid", what, hint="take `snapshots: false` out of the node file")
    wishes.leave(os.path.join(data, STATE), client, site)
    when = "now" if found["is_running"] else "when its site starts"
    print(f"{site} gets a new snapshot of {client} {when}")


def _read(data: str) -> dict[str, Any]:
    from tailrace.errors import TailraceError
    from tailrace.node.status import read_status

    found = read_status(data)
    if not found.get("queues"):
        what = f"the node in {data} has no queues"
        raise TailraceError("input.invalid", what, hint="say `queues` in its file; docs/guides/queues.md shows how")
    return {**found["queues"], "is_running": found["is_running"], "age_s": found["age_s"]}
