"""`tailrace node`: look at nodes."""

from __future__ import annotations

import json
from typing import Any

import typer

from tailrace.cli.options import JsonOption
from tailrace.cli.serve import NodeArgument

app = typer.Typer(help="Look at a node.", no_args_is_help=True)


@app.command()
def status(file: NodeArgument, as_json: JsonOption = False) -> None:
    """Show how far a node is, what it follows and who follows it."""
    from tailrace.cli.show import printable
    from tailrace.node.load import load_node
    from tailrace.node.status import read_status

    spec = load_node(file)
    found = read_status(spec.form.data)
    if as_json:
        print(json.dumps(found))
        return
    for line in _lines(spec.form.node, found):
        print(printable(line))


def _lines(name: str, found: dict[str, Any]) -> list[str]:
    running = "runs" if found["is_running"] else "does not run"
    lines = [f"node {name} ({found['node']}) {running}, cluster {found['cluster'] or 'none yet'}"]
    lines.append(f"  clock {_clock(found['vclock'])}, told {found['age_s']:.1f} s ago")
    for source, told in found["sources"].items():
        age = "" if told["age_s"] is None else f", heard of {told['age_s']:.1f} s before"
        lag = "" if told["lag_s"] is None else f", the last was {told['lag_s']:.3f} s old when it came"
        lines.append(f"  source {source}: {told['state']}, {told['behind']} messages behind{lag}{age}")
        if told["error"] is not None:
            lines.append(f"    {told['error']['code']}: {told['error']['what']}; {told['error']['hint']}")
    lines += [f"  peer {peer['node']}: {peer['behind']} messages behind" for peer in found["peers"]]
    return lines


def _clock(vclock: dict[str, int]) -> str:
    return "{" + ", ".join(f"{origin}: {lsn}" for origin, lsn in vclock.items()) + "}"
