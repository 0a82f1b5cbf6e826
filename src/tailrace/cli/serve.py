"""`tailrace serve`: run a node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tailrace.topology.form import ReplicaSpec

NodeArgument = Annotated[str, typer.Argument(metavar="NODE.yml", help="The node file.", show_default=False)]
_CLOSING_S = 30.0
_STATUS_S = 1.0


def serve(file: NodeArgument) -> None:
    """Run a node until it is stopped: serve its log to peers, and follow its sources."""
    from tailrace.topology.form import ReplicaSpec
    from tailrace.topology.load import load_any

    spec = load_any(file)
    if isinstance(spec, ReplicaSpec):
        run_replica(spec)
        return

    from tailrace.node.node import Node
    from tailrace.node.status import told, write_status
    from tailrace.pipeline.shutdown import Shutdown

    shutdown = Shutdown()
    with shutdown.listening(_say, _CLOSING_S), Node(spec, _say, shutdown.asked) as node:
        cluster = node.identity.cluster or "no cluster yet"
        _say(f"node {spec.form.node} ({node.identity.node}) of {cluster} listens at port {node.port}")
        while True:
            write_status(told(node), spec.form.data)
            if shutdown.asked.wait(_STATUS_S):
                break
    _say(f"node {spec.form.node} has ended")


def run_replica(spec: ReplicaSpec) -> None:
    """Keep a copy of a log until it is stopped."""
    from tailrace.node.status import write_status
    from tailrace.pipeline.shutdown import Shutdown
    from tailrace.topology.replicanode import ReplicaNode

    shutdown = Shutdown()
    with shutdown.listening(_say, _CLOSING_S), ReplicaNode(spec, _say) as node:
        _say(f"replica {spec.form.node} listens at port {node.port}")
        while True:
            write_status(node.status(), spec.form.data)
            if node.replica.failure is not None:
                raise node.replica.failure
            if shutdown.asked.wait(_STATUS_S):
                break
    _say(f"replica {spec.form.node} has ended")


def _say(text: str) -> None:
    from tailrace.cli.show import printable

    print(printable(text), file=sys.stderr, flush=True)
