"""`tailrace queue status` and `resync`: how the sessions of a site are doing, and a new snapshot for one."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer

from tailrace.cli.options import JsonOption

DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="The site's data directory.", show_default=False)]


def status(data: DataArgument, as_json: JsonOption = False) -> None:
    """Show what each session of a site does, how much remains to be sent, and what has come from whom."""
    from tailrace.cli.show import printable

    found = _read(data)
    if as_json:
        print(json.dumps(found))
        return
    for line in _lines(found):
        print(printable(line))


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


def _lines(found: dict[str, Any]) -> list[str]:
    from tailrace.errors import TailraceError
    from tailrace.units import show_bytes, show_seconds

    running = "runs" if found["is_running"] else "does not run"
    lines = [f"site {found['site']} {running}, told {found['age_s']:.1f} s ago"]
    for each in found["sessions"]:
        rest = f"{each['remaining_entries']} messages ({show_bytes(each['remaining_bytes'])}) remain"
        lag = f", the oldest for {show_seconds(each['lag_s'])}" if each["remaining_entries"] else ""
        forced = ", forced" if each["is_forced"] and each["state"] == "snapshot" else ""
        lines.append(f"  {each['client']} to {each['sink']}: {each['state']}{forced}, {rest}{lag}")
        lines += _snapshot_lines(each)
        if each["shed"]:
            lines.append(f"    {each['shed']} messages were not sent there because it was full")
        if each["lost_before"] is not None:
            lines.append(f"    messages before {each['lost_before']} were removed before it had got all of them")
        if each["error"] is not None:
            lines.append(f"    {each['failures']} failures in a row: {TailraceError.decode(each['error'])}")
    lines += [_request_line(each) for each in found["requests"]]
    for each in found["received"]:
        staged = each["staged"]
        what = "consistent" if staged is None else f"snapshot {staged['request']} comes, {staged['messages']} so far"
        lines.append(f"  {each['queue']}: from {each['source']} for {each['client']}, {what}")
    lines += [f"  {TailraceError.decode(error)}" for error in found["outbox_errors"]]
    return lines


def _snapshot_lines(session: dict[str, Any]) -> list[str]:
    from tailrace.message import Micros, moment

    lines = []
    if session["following_entries"]:
        lines.append(f"    {session['following_entries']} messages follow the snapshot")
    if session["snapshot"] is not None:
        at_us = session["completed_us"]
        when = "none is in place" if at_us is None else f"one was in place {moment(Micros(at_us)):%Y-%m-%d %H:%M:%SZ}"
        lines.append(f"    snapshot {session['snapshot']}; {when}")
    return lines


def _request_line(request: dict[str, Any]) -> str:
    total = "" if request["total"] is None else f" of {request['total']}"
    if request["is_done"]:
        state = f"supplied, {request['supplied']}{total}"
    elif request["claimed_by"] is None:
        state = "nobody supplies it now"
    else:
        state = f"{request['claimed_by']} supplies it, {request['supplied']}{total} so far"
    failed = f"; {request['failures']} attempts failed: {request['error']}" if request["error"] else ""
    return f"  snapshot {request['request']} of {request['client']} for {', '.join(request['sites'])}: {state}{failed}"
