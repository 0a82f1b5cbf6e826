"""`tailrace serve`: run a node."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.jsonlog import JsonHandler, LogFormat, log_line
from tailrace.cli.options import LogFormatOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailrace.node.form import TlsForm, WebForm
    from tailrace.observe.looking import Look
    from tailrace.topology.form import ReplicaSpec

NodeArgument = Annotated[str, typer.Argument(metavar="NODE.yml", help="The node file.", show_default=False)]
_CLOSING_S = 30.0
_STATUS_S = 1.0


def serve(file: NodeArgument, log_format: LogFormatOption = LogFormat.TEXT) -> None:
    """Run a node until it is stopped: serve its log to peers, and follow its sources."""
    if log_format is LogFormat.JSON:
        logging.getLogger().addHandler(JsonHandler())
    from tailrace.topology.form import ReplicaSpec
    from tailrace.topology.load import load_any

    spec = load_any(file)
    if isinstance(spec, ReplicaSpec):
        run_replica(spec, log_format)
        return

    from tailrace.node.node import Node
    from tailrace.node.status import told, write_status
    from tailrace.observe.looking import look_into
    from tailrace.observe.trees import TreeTelling
    from tailrace.pipeline.shutdown import Shutdown

    form = spec.form
    shutdown = Shutdown()
    say = _SAYING[log_format]
    with shutdown.listening(say, _CLOSING_S), Node(spec, say, shutdown.asked) as node, ExitStack() as serving:
        cluster = node.identity.cluster or "no cluster yet"
        say(f"node {form.node} ({node.identity.node}) of {cluster} listens at port {node.port}")
        tree = TreeTelling(node.topology, form.data)
        write_status(told(node), form.data)
        tree.tell()
        if form.web is not None:
            serving.enter_context(_page(form.web, form.tls, look_into(form.data, form.node), form.data, say))
        while True:
            write_status(told(node), form.data)
            tree.tell()
            if shutdown.asked.wait(_STATUS_S):
                break
    say(f"node {form.node} has ended")


def run_replica(spec: ReplicaSpec, log_format: LogFormat = LogFormat.TEXT) -> None:
    """Keep a copy of a log until it is stopped."""
    from tailrace.node.status import write_status
    from tailrace.observe.looking import look_into
    from tailrace.pipeline.shutdown import Shutdown
    from tailrace.topology.replicanode import ReplicaNode

    shutdown = Shutdown()
    form = spec.form
    say = _SAYING[log_format]
    with shutdown.listening(say, _CLOSING_S), ReplicaNode(spec, say) as node, ExitStack() as serving:
        say(f"replica {form.node} listens at port {node.port}")
        write_status(node.status(), form.data)
        if form.web is not None:
            serving.enter_context(_page(form.web, form.tls, look_into(form.data, form.node), form.data, say))
        while True:
            write_status(node.status(), form.data)
            if node.replica.failure is not None:
                raise node.replica.failure
            if shutdown.asked.wait(_STATUS_S):
                break
    say(f"replica {form.node} has ended")


@contextmanager
def _page(web: WebForm, tls: TlsForm | None, look: Look, data: str, say: Callable[[str], None]) -> Iterator[None]:
    """The status page, for as long as the block lasts."""
    from tailrace.serving.server import Tls
    from tailrace.web.status_page import status_page

    with status_page(
        look,
        listen=web.listen,
        token=web.token.get_secret_value(),
        log=os.path.join(data, "log"),
        hosts=frozenset(name.lower() for name in web.hosts),
        tls=None if tls is None else Tls(tls.certificate, tls.key),
    ) as server:
        say(f"the status page is at {server.url}; its token is the one of the file")
        yield


def _say(text: str) -> None:
    from tailrace.cli.show import printable

    print(printable(text), file=sys.stderr, flush=True)


def _say_json(text: str) -> None:
    print(log_line(text, part="node"), file=sys.stderr, flush=True)


_SAYING = {LogFormat.TEXT: _say, LogFormat.JSON: _say_json}
