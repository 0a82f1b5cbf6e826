"""For whom a node keeps its log: each peer has a consumer, which outlasts its connections and both nodes' restarts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tailrace.errors import TailraceError
from tailrace.log.consumers import State
from tailrace.message import NodeId, Offset
from tailrace.relay.oldest import gap
from tailrace.relay.subscription import PREFIX

if TYPE_CHECKING:
    from tailrace.log.agreement import Hold
    from tailrace.log.consumers import Consumer, Consumers

_GONE: Final = frozenset({"consumer.invalidated", "offset.outside_log", "log.below_oldest"})


def peer_of(name: str) -> NodeId | None:
    """The peer that a consumer is of."""
    return NodeId(int(name.removeprefix(PREFIX), 16)) if name.startswith(PREFIX) else None


def registered(consumers: Consumers) -> dict[NodeId, Consumer]:
    """By peer: its consumer, whether it follows now or not."""
    return {peer: found for found in consumers.all() if (peer := peer_of(found.name)) is not None}


def keep_from(consumers: Consumers, name: str, start: Offset, hold: Hold) -> None:
    """From now on the log is kept for a peer from an offset on, or from an earlier one if it is already.

    One that was invalidated, or that has lost what it had, begins again there."""
    if name in consumers.names():
        known = consumers.get(name)
        if known.state is State.LIVE and consumers.position(known) < start:
            consumers.agree_on_hold(name, hold)
            return
        with as_peers_know():
            consumers.delete(name, f"the peer goes on at offset {start}")
    with as_peers_know():
        consumers.register(name, start=start, hold=hold, exist_ok=True)


@contextmanager
def as_peers_know() -> Iterator[None]:
    """What is wrong with a peer's consumer, as the peer is told: that messages are gone which it needs, or that
    somebody uses the consumer, be it for a moment, so that it is tried again."""
    try:
        yield
    except TailraceError as error:
        if error.code == "consumer.locked":
            what, hint = "the peer follows already, or its place in the log is looked at", "try again in a moment"
            raise TailraceError("relay.duplicate", what, hint=hint) from error
        if error.code not in _GONE:
            raise
        raise gap(f"what the peer needs next is not in this node's log any more: {error.what}") from error
