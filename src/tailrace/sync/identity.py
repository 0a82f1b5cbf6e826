"""Who a node is that was called. It says so itself, and must not be another one's stand-in: what is meant for that one
would go to it, and count as received."""

from __future__ import annotations

from tailrace.errors import TailraceError
from tailrace.sync.address import PeerAddress
from tailrace.sync.nodes import Node
from tailrace.sync.store import SyncStore


def check_identity(store: SyncStore, address: PeerAddress, node: int) -> Node | None:
    """What is known of the node that answers; None when it is new. Raises `sync.bad_node` if it cannot be the one.

    Whoever answers first under a name is that node from then on, and no other name is the same node.
    """
    says = f"{address.name} ({address.url}) says that it is node {node}"
    if address.node not in (None, node):
        raise _bad(f"{says}, and should be {address.node}", "correct `url` or `node` of the peer")
    pinned = store.called(address.bond)
    if pinned not in (None, node):
        hint = f"correct `url`; if that node was made anew: tailrace sync node remove FILE.yml {pinned}"
        raise _bad(f"{says}, and was node {pinned} before", hint)
    known = store.node(node)
    if known is None:
        return None
    if known.called_as not in (None, address.bond):
        hint = f"if both are the same node: known_as: {known.called_as}, or name={known.called_as!r} in Python"
        raise _bad(f"{says}, which is called {known.called_as} here", hint)
    if known.called_as is None and known.auth is not None and address.node is None:
        hint = f"if that is so, write `node: {node}` beside the peer"
        raise _bad(f"{says}, which calls this one, and anybody could say that", hint)
    return known


def _bad(what: str, hint: str) -> TailraceError:
    return TailraceError("sync.bad_node", what, hint=hint)
