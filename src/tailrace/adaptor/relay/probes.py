"""What `tailrace doctor` asks a node. Nothing is changed."""

from __future__ import annotations

from contextlib import closing

from tailrace.adaptor.options import Check
from tailrace.adaptor.relay.remote import Remote
from tailrace.errors import TailraceError
from tailrace.relay.inquiry import Inquiry, Tables


def of_source(remote: Remote) -> list[Check]:
    """Whether a node answers, lets the pipeline in, and has something to read."""
    with closing(remote):
        try:
            ballot = remote.vote()
        except TailraceError as error:
            return [Check(what="node answers", ok=False, found=error.what, cure=error.hint)]
        is_ready = ballot.cluster is not None and not ballot.is_loading
        found = f"node {ballot.node} of cluster {ballot.cluster}" if is_ready else "it is not ready yet"
        cure = "" if is_ready else "wait until it has joined"
        checks = [Check(what="node answers", ok=is_ready, found=found, cure=cure)]
        if not is_ready:
            return checks
        try:
            tables = Tables.read(remote.ask(Inquiry.TABLES)).tables
        except TailraceError as error:
            return [*checks, Check(what="node can be read", ok=False, found=error.what, cure=error.hint)]
        return [*checks, Check(what="node can be read", ok=True, found=f"{len(tables)} tables")]
