"""`tailrace node`: look at nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.options import JsonOption
from tailrace.cli.serve import NodeArgument

app = typer.Typer(
    help="Look at a node, let it lead, commit through it, give its store back to programs.", no_args_is_help=True
)


@app.command()
def status(file: NodeArgument, as_json: JsonOption = False) -> None:
    """Show how far a node is, what it follows and who follows it."""
    from tailrace.cli.overview import print_overview
    from tailrace.observe.looking import look_at_node

    print_overview(look_at_node(file)(), as_json=as_json)


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
