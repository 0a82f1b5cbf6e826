"""`tailrace serve`: run a node."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

NodeArgument = Annotated[str, typer.Argument(metavar="NODE.yml", help="The node file.", show_default=False)]
_CLOSING_S = 30.0
_STATUS_S = 1.0


def serve(file: NodeArgument) -> None:
    """Run a node until it is stopped: serve its log to peers, and follow its sources."""
    from tailrace.node.load import load_node

    spec = load_node(file)

    from tailrace.cli.show import printable
    from tailrace.node.node import Node
    from tailrace.node.status import write_status
    from tailrace.pipeline.shutdown import Shutdown

    def say(text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)

    shutdown = Shutdown()
    with shutdown.listening(say, _CLOSING_S), Node(spec, say, shutdown.asked) as node:
        cluster = node.identity.cluster or "no cluster yet"
        say(f"node {spec.form.node} ({node.identity.node}) of {cluster} listens at port {node.port}")
        while True:
            write_status(node, spec.form.data)
            if shutdown.asked.wait(_STATUS_S):
                break
    say(f"node {spec.form.node} has ended")
