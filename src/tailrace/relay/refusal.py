"""Why what another node sends is refused."""

from __future__ import annotations

from tailrace.errors import TailraceError
from tailrace.message import Lsn, NodeId


def malformed(what: str) -> TailraceError:
    """It is not of the protocol."""
    return TailraceError("relay.malformed", what, hint="see that both nodes run the same release")


def bad_group(why: str) -> TailraceError:
    """Its messages are not those of whole transactions."""
    return TailraceError("relay.bad_group", f"a group that a peer sent is refused: {why}", hint="mend the peer")


def interleaved(origins: int) -> TailraceError:
    """A transaction begins before the one before it has ended."""
    what = f"a group that a peer sent is refused: it has messages of {origins} nodes"
    return TailraceError("relay.interleaved", what, hint="mend the peer")


def unexpected(error: Exception) -> TailraceError:
    """Something that is no refusal of anybody's."""
    what = f"following failed in a way that nobody thought of: {type(error).__name__}: {error}"[:300]
    return TailraceError("relay.failed", what, hint="restart the node; if it comes again, report it")


def check_next(origin: NodeId, first: Lsn, known: Lsn) -> None:
    """Refuse a group that does not begin right behind what is known of its origin (I8)."""
    if first <= known:
        what = f"messages of node {origin} are known up to {known}, in the middle of a transaction from {first} on"
        raise TailraceError("relay.inside_transaction", what, hint="take a new snapshot")
    if first > known + 1:
        what = f"messages {known + 1} to {first - 1} of node {origin} are missing"
        raise TailraceError("relay.gap", what, hint="take a new snapshot, or ask a node that still has them")
