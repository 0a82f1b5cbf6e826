"""What a node does for its peers, whatever carries the bytes.

Checks come in Tarantool's order: peers can observe it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers
from tailrace.message import Lsn, NodeId
from tailrace.namespace import namespace_pattern
from tailrace.relay.outgoing import Frame, Wish, first_missing
from tailrace.relay.request import (
    Ack,
    Ballot,
    Chunk,
    Elect,
    Elected,
    FinalRows,
    Finish,
    Join,
    Joined,
    Register,
    Registered,
    Subscribe,
    Subscribed,
)
from tailrace.relay.subscription import Subscription, consumer_name

if TYPE_CHECKING:
    from tailrace.node.identity import Identity
    from tailrace.relay.join import Joins
    from tailrace.relay.journal import Journal
    from tailrace.relay.vclock import Vclock


class Service:
    """One node's log, open to peers."""

    def __init__(self, identity: Identity, journal: Journal, joins: Joins | None = None) -> None:
        self.identity = identity
        self.journal = journal
        self._joins = joins
        self.consumers = Consumers(journal.log.directory)
        self.is_loading = False
        self.following: dict[int, Subscription] = {}
        """The peers that follow now."""
        self._connected: set[int] = set()
        self._lock = threading.Lock()
        self.acknowledged = threading.Condition()
        """Told whenever a peer has acknowledged something."""

    def vote(self) -> Ballot:
        """Answered to everybody, always."""
        return Ballot(
            node=self.identity.node,
            cluster=self.identity.cluster,
            vclock=self.journal.vclock,
            is_loading=self.is_loading,
            term=self.journal.term,
        )

    @contextmanager
    def subscribe(self, request: Subscribe) -> Iterator[tuple[Subscribed, Subscription]]:
        """One peer that follows, for as long as the body lasts."""
        cluster = self._check_peer(request.node, request.cluster)
        name = consumer_name(request.node)
        if name not in self.consumers.names():
            what = f"replica {request.node} is not registered here"
            raise TailraceError("relay.unknown_replica", what, hint="register first")
        wish = Wish(
            peer=request.peer,
            without=frozenset(NodeId(origin) for origin in request.without),
            namespace=namespace_pattern(request.namespace),
        )
        with self._exclusively(request.node):
            answer = Subscribed(node=self.identity.node, cluster=cluster, vclock=self.journal.vclock)
            with Subscription(self.journal, self.consumers, name, wish, request.vclock) as subscription:
                self.following[request.node] = subscription
                try:
                    yield answer, subscription
                finally:
                    del self.following[request.node]

    def join(self, request: Join) -> Joined:
        """A newcomer begins. The log is kept for it before anything else happens."""
        self._ready()
        if request.node == self.identity.node:
            raise TailraceError("relay.self", "a node cannot join itself", hint="name another source")
        joins = self._joining()
        self.keep_for(request.node)
        return joins.begin(request)

    def chunk(self, request: Chunk) -> Iterator[list[Frame]]:
        return self._joining().chunk(request.session, request.chunk)

    def finish(self, request: Finish) -> Registered:
        """A newcomer has all rows of the view."""
        return self._joining().register(request.session)

    def final(self, request: FinalRows) -> Iterator[list[Frame]]:
        return self._joining().final(request.session)

    def acknowledge(self, ack: Ack) -> None:
        """A peer that follows has something, durably."""
        subscription = self.following.get(ack.node)
        if subscription is None:
            what = f"replica {ack.node} does not follow"
            raise TailraceError("relay.unknown_replica", what, hint="subscribe first")
        self.journal.hear_of(ack.term)
        subscription.acknowledge(ack.vclock)
        with self.acknowledged:
            self.acknowledged.notify_all()

    def count_having(self, origin: NodeId, lsn: Lsn) -> int:
        """How many of the peers that follow have a message, durably."""
        return sum(each.acknowledged[origin] >= lsn for each in [*self.following.values()])

    def elect(self, request: Elect) -> Elected:
        """A peer wants to lead. It may if it has all that this node has of who led so far."""
        self._check_peer(request.node, request.cluster)
        leader = self.journal.limbo.leader
        has_all = self.journal.vclock[leader] <= request.vclock[leader]
        return Elected(
            is_granted=has_all and self.journal.promise(request.term, NodeId(request.node)), term=self.journal.term
        )

    def register(self, request: Register) -> None:
        """A node that joined elsewhere will follow: the log is kept for it from what it does not have."""
        self._check_peer(request.node, request.cluster)
        self.keep_for(request.node, request.vclock)

    def keep_for(self, node: int, vclock: Vclock | None = None) -> None:
        """From now on the log is kept for this replica, from a clock on or from now."""
        start = self.journal.end if vclock is None else first_missing(self.journal.view, vclock)
        self.consumers.register(consumer_name(node), start=start, exist_ok=True)

    def _check_peer(self, node: int, theirs: str) -> str:
        cluster = self._ready()
        if node == self.identity.node:
            raise TailraceError("relay.self", "a node cannot follow itself", hint="name another source")
        if theirs != cluster:
            what = f"the peer belongs to cluster {theirs}, this node to {cluster}"
            raise TailraceError("relay.wrong_cluster", what, hint="name a source of the same cluster")
        return cluster

    def _joining(self) -> Joins:
        if self._joins is None:
            what = "this node has no store, so nobody can join it"
            raise TailraceError("relay.no_snapshot", what, hint="join a node that has one")
        return self._joins

    def _ready(self) -> str:
        if self.is_loading or self.identity.cluster is None:
            raise TailraceError("relay.loading", "the node is not ready yet", hint="try again in a moment")
        return self.identity.cluster

    @contextmanager
    def _exclusively(self, node: int) -> Iterator[None]:
        with self._lock:
            if node in self._connected:
                what = f"replica {node} follows already"
                raise TailraceError("relay.duplicate", what, hint="end its other connection, or try again in a moment")
            self._connected.add(node)
        try:
            yield
        finally:
            with self._lock:
                self._connected.remove(node)
