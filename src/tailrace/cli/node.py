"""`tailrace node`: look at nodes."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tailrace.cli.options import JsonOption
from tailrace.cli.serve import NodeArgument

app = typer.Typer(
    help="Look at a node, let it lead, commit through it, give its store back to programs.", no_args_is_help=True
)


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


@app.command()
def promote(file: NodeArgument) -> None:
    """Let a running node lead: from then on it, and no other, commits synchronous transactions."""
    from tailrace.node.calling import call
    from tailrace.node.load import load_node
    from tailrace.relay.flight import Call
    from tailrace.relay.request import Promote, Promoted

    answer = Promoted.read(call(load_node(file), Call.PROMOTE, Promote()))
    print(f"it leads since term {answer.term}")


@app.command()
def commit(
    file: NodeArgument,
    changes: Annotated[
        str, typer.Argument(metavar="CHANGES.jsonl", help="One change a line; - reads them from stdin.")
    ],
    *,
    acks: Annotated[int | None, typer.Option(min=0, help="So many other nodes must have it.")] = None,
    timeout: Annotated[str | None, typer.Option(help="How long they may take, such as 500ms or 5s.")] = None,
) -> None:
    """Commit a transaction through a running node that leads: it happens at enough nodes or not at all."""
    from tailrace.node.calling import call, commit_of, read_changes
    from tailrace.node.load import load_node
    from tailrace.relay.flight import Call
    from tailrace.relay.request import Committed
    from tailrace.units import parse_seconds

    timeout_s = None if timeout is None else parse_seconds(timeout)
    spec = load_node(file)
    request = commit_of(read_changes(changes), acks, timeout_s)
    answer = Committed.read(call(spec, Call.COMMIT, request))
    print(f"committed with lsn {answer.lsn}")


@app.command()
def release(file: NodeArgument) -> None:
    """Let programs write the store of a node that does not run, though it was read-only when it ended."""
    from tailrace.cli.conflict import storage_of
    from tailrace.errors import TailraceError
    from tailrace.node.load import load_node
    from tailrace.node.status import is_running

    spec = load_node(file)
    if is_running(spec.form.data):
        what = f"node {spec.form.node} runs, and decides itself who may write"
        raise TailraceError("input.invalid", what, hint="end it first, or change `quorum` or `writes`")
    storage_of(spec).open_to_users()
    print("the store can be written")


def _lines(name: str, found: dict[str, Any]) -> list[str]:
    running = "runs" if found["is_running"] else "does not run"
    kind = ", anonymous" if found["is_anonymous"] else ""
    lines = [f"node {name} ({found['node']}) {running}, cluster {found['cluster'] or 'none yet'}{kind}"]
    lines.append(f"  clock {_clock(found['vclock'])}, told {found['age_s']:.1f} s ago")
    if found["leader"] is not None:
        who = "it" if found["leader"] == found["node"] else f"node {found['leader']}"
        lines.append(f"  {who} leads since term {found['term']}")
    if found["read_only"] is not None:
        lines.append(f"  the store is read-only: {found['read_only']}")
    if found["store_error"] is not None:
        lines.append(f"  the store is not served: {_error(found['store_error'])}")
    for source, told in found["sources"].items():
        age = "" if told["age_s"] is None else f", heard of {told['age_s']:.1f} s before"
        lag = "" if told["lag_s"] is None else f", the last was {told['lag_s']:.3f} s old when it came"
        lines.append(f"  source {source}: {told['state']}, {_behind(told)}{lag}{age}")
        if told["error"] is not None:
            lines.append(f"    {_error(told['error'])}")
    for peer in found["peers"]:
        kind = "anonymous peer" if peer["is_anonymous"] else "peer"
        lines.append(
            f"  {kind} {peer['node']}: {peer['state']}, {_behind(peer)}, heard of {peer['age_s']:.1f} s before"
        )
        if peer["lost"]:
            lines.append(f"    the log is not kept for it any more, it needs a new snapshot: {peer['lost']}")
    lines += _sync_lines(found.get("sync"))
    lines += slow_lines(found)
    lines += [f"  the log is kept for {name}, heard of {age:.0f} s before" for name, age in found["held"].items()]
    return lines


def _sync_lines(told: dict[str, Any] | None) -> list[str]:
    """The peers of sync."""
    if told is None:
        return []
    lines = [f"  sync: node {told['node']}" + (f", reached at {told['url']}" if told["url"] else "")]
    if told["error"] is not None:
        lines.append(f"    its database cannot be looked at: {_error(told['error'])}")
    for peer in told["peers"]:
        done = f"{peer['fetched']} rows fetched, {peer['sent']} sent, {peer['refused']} refused"
        lines.append(f"    peer {peer['name']}: {peer['state']}, {done}")
        if peer["clock_warning"] is not None:
            lines.append(f"      {peer['clock_warning']}")
        lines += [f"      {warning}" for warning in peer["warnings"]]
        if peer["last_error"] is not None:
            lines.append(f"      {_error(peer['last_error'])}")
    return lines


def slow_lines(found: dict[str, Any]) -> list[str]:
    """The copies that are not heard of."""
    return [f"  SLOW: copy {name} was not heard of for {age:.0f} s" for name, age in found.get("slow", {}).items()]


def _behind(told: dict[str, Any]) -> str:
    from tailrace.units import show_bytes

    if told["behind"] is None:
        return "how far behind is not known"
    text = f"{told['behind']} messages behind"
    if told["behind_bytes"] is None:
        return text
    return f"{text} ({show_bytes(told['behind_bytes'])}, {told['behind_s']:.1f} s)"


def _error(told: dict[str, Any]) -> str:
    return f"{told['code']}: {told['what']}; {told['hint']}"


def _clock(vclock: dict[str, int]) -> str:
    return "{" + ", ".join(f"{origin}: {lsn}" for origin, lsn in vclock.items()) + "}"
