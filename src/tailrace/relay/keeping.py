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
        _forget(consumers, name, start)
    with as_gap():
        consumers.register(name, start=start, hold=hold, exist_ok=True)


def _forget(consumers: Consumers, name: str, start: Offset) -> None:
    try:
        consumers.delete(name, f"the peer goes on at offset {start}")
    except TailraceError as error:
        if error.code != "consumer.locked":
            raise
        what = "the peer follows already, through another connection"
        raise TailraceError("relay.duplicate", what, hint="end that connection, or try again in a moment") from error


@contextmanager
def as_gap() -> Iterator[None]:
    """What means that messages are gone which a peer needs is told as such."""
    try:
        yield
    except TailraceError as error:
        if error.code not in _GONE:
            raise
        raise gap(f"what the peer needs next is not in this node's log any more: {error.what}") from error
