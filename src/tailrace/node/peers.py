"""Those who follow a node, and those for whom it keeps its log until they come back: how far each is."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tailrace.log.consumers import Consumers, State
from tailrace.log.lag import Lag, lag_behind
from tailrace.message import NodeId
from tailrace.relay.holds import anonymous_name
from tailrace.relay.keeping import registered
from tailrace.relay.vclock import Vclock

if TYPE_CHECKING:
    from tailrace.log.consumers import Consumer
    from tailrace.relay.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Peer:
    """One that follows this node, or did."""

    node: NodeId
    is_following: bool
    acknowledged: Vclock | None
    """What it has of what it was sent; None when it does not follow."""
    lag: Lag
    age_s: float
    """How old these figures are: when it was last heard of."""
    lost: str | None = None
    """Why the log is not kept for it any more: it needs a new snapshot."""
    is_anonymous: bool = False

    @property
    def state(self) -> str:
        """In the word that everything uses that shows it."""
        return "follows" if self.is_following else "lost" if self.lost is not None else "away"


def peers(consumers: Consumers, following: dict[int, Subscription]) -> list[Peer]:
    """All of a node, as they are now. For one thread."""
    away = {node: each for node, each in registered(consumers).items() if node not in following}
    present = [_following(consumers, NodeId(node), each) for node, each in following.items()]
    return present + [_away(consumers, node, each) for node, each in away.items()]


def _following(consumers: Consumers, node: NodeId, subscription: Subscription) -> Peer:
    behind = subscription.behind
    lag = lag_behind(consumers.view, subscription.place - 1, consumers.clock()) if behind else Lag(0, 0, 0.0)
    age_s = time.monotonic() - subscription.acknowledged_s
    is_anonymous = subscription.name == anonymous_name(node)
    lag = Lag(behind, lag.bytes, lag.seconds)
    return Peer(node, True, subscription.acknowledged, lag, age_s, is_anonymous=is_anonymous)


def _away(consumers: Consumers, node: NodeId, consumer: Consumer) -> Peer:
    age_s = max(0.0, consumers.clock() - consumer.seen_s)
    position = consumers.position(consumer)
    lag = lag_behind(consumers.view, position, consumers.clock())
    lag = replace(lag, messages=consumers.view.head().next_offset - 1 - position)  # those that are gone, too
    lost = None
    if consumer.state is State.INVALIDATED:
        lost = consumer.agreement.invalidated or "messages that it needs are gone"
    return Peer(node, False, None, lag, age_s, lost)
