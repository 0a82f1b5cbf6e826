"""What a node does for its peers, whatever carries the bytes.

Checks come in Tarantool's order: peers can observe it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailrace.errors import TailraceError
from tailrace.limits import HOLD_S, SUBSCRIPTIONS_MAX, SUBSCRIPTIONS_PER_TOKEN_MAX
from tailrace.log.agreement import Hold
from tailrace.log.consumers import Consumers
from tailrace.message import Lsn, NodeId
from tailrace.namespace import strangers_pattern
from tailrace.relay.acquaintances import Acquaintances
from tailrace.relay.heartbeat import HEARTBEAT_S
from tailrace.relay.holds import Holds, anonymous_name
from tailrace.relay.join import note_member
from tailrace.relay.keeping import as_peers_know, keep_from
from tailrace.relay.oldest import check_kept
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
from tailrace.relay.room import Room
from tailrace.relay.subscription import Subscription, consumer_name

if TYPE_CHECKING:
    from tailrace.node.identity import Identity
    from tailrace.relay.join import Joins
    from tailrace.relay.journal import Journal
    from tailrace.relay.reading import Readings
    from tailrace.relay.vclock import Vclock


class Service:
    """One node's log, open to peers."""

    def __init__(
        self,
        identity: Identity,
        journal: Journal,
        joins: Joins | None = None,
        *,
        hold_s: float = HOLD_S,
        hold: Hold | None = None,
    ) -> None:
        self.identity = identity
        self.journal = journal
        self._joins = joins
        self._readings: Readings | None = None
        self._hold = hold or Hold()
        """How much of the log each peer may hold back."""
        self.consumers = Consumers(journal.log.directory)
        self.holds = Holds(self.consumers, hold_s)
        self.is_loading = False
        self.following: dict[int, Subscription] = {}
        """The peers that follow now."""
        self._connected: dict[int, object] = {}
        """By peer: who serves it."""
        self._lock = threading.Lock()
        self._room = Room("subscriptions", each_max=SUBSCRIPTIONS_PER_TOKEN_MAX, all_max=SUBSCRIPTIONS_MAX)
        self.acquaintances = Acquaintances(journal.log.directory, is_held=self._is_held)
        self.acknowledged = threading.Condition()
        """Told whenever a peer has acknowledged something."""
        self._keeping = threading.Lock()

    def vote(self) -> Ballot:
        """Answered to everybody, always."""
        return Ballot(
            node=self.identity.node,
            cluster=self.identity.cluster,
            vclock=self.journal.vclock,
            oldest=self.journal.oldest(),
            is_loading=self.is_loading,
            term=self.journal.term,
        )

    @contextmanager
    def subscribe(
        self, request: Subscribe, caller: str = "", *, heartbeat_s: float = HEARTBEAT_S
    ) -> Iterator[tuple[Subscribed, Subscription]]:
        """One peer that follows, for as long as the body lasts."""
        cluster = self._check_peer(request.node, request.cluster, is_anonymous=request.is_anonymous)
        name = self._hold_of_anonymous(request) if request.is_anonymous else consumer_name(request.node)
        if name not in self.consumers.names():
            what = f"replica {request.node} is not registered here"
            raise TailraceError("relay.unknown_replica", what, hint="register first")
        wish = Wish(
            peer=request.peer,
            without=frozenset(NodeId(origin) for origin in request.without),
            namespace=strangers_pattern(request.namespace),
        )
        self._check_ahead(request.vclock)
        self.journal.hear_of(request.term)
        with self._exclusively(request.node), self._room.taken(caller), as_peers_know():
            check_kept(self.journal.oldest(), request.vclock, wish.without)
            if not request.is_anonymous:
                self.keep_for(request.node, request.vclock)
            with Subscription(
                self.journal, self.consumers, name, wish, request.vclock, heartbeat_s=heartbeat_s
            ) as subscription:
                check_kept(self.journal.oldest(), request.vclock, wish.without)  # from now on nothing of it goes
                answer = Subscribed(
                    node=self.identity.node,
                    cluster=cluster,
                    vclock=subscription.here,
                    session=subscription.session,
                    heartbeat_s=heartbeat_s,
                )
                self.following[request.node] = subscription
                try:
                    yield answer, subscription
                finally:
                    if self.following.get(request.node) is subscription:
                        del self.following[request.node]

    def join(self, request: Join, caller: str = "") -> Joined:
        """A newcomer begins. The log is kept for it before anything else happens."""
        self._ready()
        if request.node == self.identity.node:
            raise TailraceError("relay.self", "a node cannot join itself", hint="name another source")
        self._check_registers(is_anonymous=request.is_anonymous)
        joins = self._joining()
        if request.is_anonymous and not request.is_passing:
            self.holds.keep(anonymous_name(request.node), self.journal.end)
        elif not request.is_anonymous:
            self.keep_for(request.node)
        return joins.begin(request, caller)

    def chunk(self, request: Chunk) -> Iterator[list[Frame]]:
        if self._readings is not None and self._readings.copies.has(request.session):
            return self._readings.chunk(request)
        return self._joining().chunk(request.session, request.chunk)

    def serve_pipelines(self, readings: Readings) -> None:
        """From now on pipelines may read this node."""
        self._readings = readings

    def readings(self) -> Readings:
        """What pipelines may ask."""
        self._ready()
        if self._readings is None:
            what = "this node has no store, so no pipeline can read it"
            raise TailraceError("relay.no_snapshot", what, hint="read a node that has one")
        return self._readings

    def sweep(self) -> list[str]:
        """Let go of what nobody asks for any more; says for whom the log is not kept from now on."""
        gone = self.holds.sweep()
        if self._joins is not None:
            self._joins.forget_old()
        if self._readings is not None:
            self._readings.forget_old()
        return gone

    def finish(self, request: Finish) -> Registered:
        """A newcomer has all rows of the view."""
        return self._joining().register(request.session)

    def final(self, request: FinalRows) -> Iterator[list[Frame]]:
        return self._joining().final(request.session)

    def acknowledge(self, ack: Ack) -> None:
        """A peer that follows has something, durably."""
        subscription = self.following.get(ack.node)
        if subscription is None or subscription.session != ack.session:
            what = f"replica {ack.node} does not follow, or not through this connection any more"
            raise TailraceError("relay.unknown_replica", what, hint="subscribe first")
        self.journal.hear_of(ack.term)
        subscription.acknowledge(ack.vclock)
        with self.acknowledged:
            self.acknowledged.notify_all()

    def present(self) -> dict[int, Subscription]:
        """The peers that follow and were heard of. Whoever serves another one may be caught in sending something that
        nobody takes."""
        return {node: each for node, each in [*self.following.items()] if not each.is_silent}

    def count_having(self, origin: NodeId, lsn: Lsn) -> int:
        """How many of the peers that follow have a message, durably."""
        return sum(each.vouches_for(origin, lsn) for each in [*self.following.values()])

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
        is_known = consumer_name(request.node) in self.consumers.names()
        check_kept(self.journal.oldest(), request.vclock)
        self.keep_for(request.node, request.vclock)
        if request.is_newcomer and not is_known:
            note_member(self.journal, NodeId(request.node))
        self.holds.release(anonymous_name(request.node), "it is registered")

    def keep_for(self, node: int, vclock: Vclock | None = None) -> None:
        """From now on the log is kept for this replica, from a clock on or from now."""
        start = self.journal.end if vclock is None else first_missing(self.journal.view, vclock)
        with self._keeping:
            keep_from(self.consumers, consumer_name(node), start, self._hold)

    def _is_held(self, node: str) -> bool:
        names = {consumer_name(int(node)), anonymous_name(int(node))}
        return not names.isdisjoint(self.consumers.names())

    def _hold_of_anonymous(self, request: Subscribe) -> str:
        """The log is kept for a replica that only reads from what it does not have, if all of that is there."""
        name = anonymous_name(request.node)
        if request.node not in self._connected:
            self.holds.keep(name, first_missing(self.journal.view, request.vclock))
        try:
            check_kept(self.journal.oldest(), request.vclock)
        except TailraceError:
            self.holds.release(name, "it lacks what is not in the log any more")
            raise
        return name

    def _check_registers(self, *, is_anonymous: bool) -> None:
        if self.identity.is_anonymous and not is_anonymous:
            what = "this node only reads: its cluster does not know it, so no other node of it can follow"
            raise TailraceError("relay.anonymous", what, hint="follow one that is registered, or say `anonymous: true`")

    def _check_peer(self, node: int, theirs: str, *, is_anonymous: bool = False) -> str:
        cluster = self._ready()
        if node == self.identity.node:
            raise TailraceError("relay.self", "a node cannot follow itself", hint="name another source")
        if theirs != cluster:
            what = f"the peer belongs to cluster {theirs}, this node to {cluster}"
            raise TailraceError("relay.wrong_cluster", what, hint="name a source of the same cluster")
        self._check_registers(is_anonymous=is_anonymous)
        return cluster

    def _check_ahead(self, theirs: Vclock) -> None:
        """Refuse to follow a node that has lost its own last messages: it would give their numbers to others (I8)."""
        node = self.identity.node
        here = self.journal.vclock[node]
        if theirs[node] > here:
            what = f"the peer has messages {here + 1} to {theirs[node]} of node {node}, which has lost them"
            hint = "let that node follow this one, and wait until it has them again"
            raise TailraceError("relay.ahead", what, hint=hint)

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
        """Only one connection serves a peer. One that the peer does not hear any more gives way."""
        us = object()
        with self._lock:
            if node in self._connected:
                other = self.following.get(node)
                if other is None or not other.is_silent:
                    what, hint = f"replica {node} follows already", "end its other connection, or try again in a moment"
                    raise TailraceError("relay.duplicate", what, hint=hint)
                other.give_up()
            self._connected[node] = us
        try:
            yield
        finally:
            with self._lock:
                if self._connected.get(node) is us:
                    del self._connected[node]
