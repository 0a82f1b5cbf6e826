"""Meeting another node: who it is, what its clock shows, which numbers it leaves to this one for keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tailrace.sync import oneself
from tailrace.sync.address import PeerAddress
from tailrace.sync.auth import secret_for
from tailrace.sync.clock import ClockRule, ClockVerdict, ahead_ms
from tailrace.sync.counts import Counts
from tailrace.sync.httplink import HttpLink
from tailrace.sync.httppeer import HttpPeer
from tailrace.sync.identity import check_identity
from tailrace.sync.store import SyncStore

NowMs = Callable[[], int]


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


@contextmanager
def meeting(
    store: SyncStore,
    address: PeerAddress,
    rule: ClockRule,
    now_ms: NowMs = wall_clock_ms,
    opened: Callable[[HttpLink], None] | None = None,
) -> Iterator[tuple[HttpPeer, ClockVerdict]]:
    """A node that answers. Raises `sync.unreachable` if it does not, `sync.clock` if its clock is too far off.

    1. It says who it is, and lets us in, if need be with the word of `enrol`. It cannot be whoever it likes.
    2. Clocks are compared before anything is exchanged.
    3. Whoever was set back to an older copy of its database gets again what it lacks.
    4. It is known from now on, and gets what it should have.

    Whoever may want to end it early, from another thread, is given the link with `opened`.
    """
    with HttpLink(address, store.node_id, secret_for(store.secret, address.bond)) as link:
        if opened is not None:
            opened(link)
        peer, verdict = _greeted(store, link, rule, now_ms)
        yield peer, verdict


def _greeted(store: SyncStore, link: HttpLink, rule: ClockRule, now_ms: NowMs) -> tuple[HttpPeer, ClockVerdict]:
    database, dialect = store.database, store.database.dialect
    shift_ms = database.read(oneself.clock_shift_ms)
    before_ms = now_ms() + shift_ms
    pinned = store.called(link.address.bond) or link.address.node
    counts = Counts() if pinned is None else store.counts(pinned)
    peer = HttpPeer.greet(link, store.shape, counts.own)  # 1
    after_ms = now_ms() + shift_ms
    known = check_identity(store, link.address, peer.node_id)
    verdict = rule.judge(link.address.name, ahead_ms(peer.greeting.time_ms, before_ms, after_ms))  # 2
    if verdict.shift_ms:
        database.write(lambda at: oneself.shift_clock(at, dialect, shift_ms + verdict.shift_ms))
    _compare_counts(store, peer, counts)  # 3
    if known is None or known.called_as is None:
        number = peer.greeting.key_node
        if number is not None:  # before the node is known, so that a cut between the two does no harm
            store.key_node = database.write(lambda at: oneself.adopt_key_node(at, dialect, number))
        store.call(peer.node_id, link.address.bond)  # 4
    return peer, verdict


def _compare_counts(store: SyncStore, peer: HttpPeer, known: Counts) -> None:
    """`known` is what was counted before the other node was asked: both sides only count on."""
    theirs, name = peer.greeting.counts, peer.link.address.name
    if theirs is None:
        return
    if theirs.own < known.heard:
        store.was_set_back(peer.node_id, theirs.own)
        peer.warnings.append(f"{name} was set back to an older copy of its database; all is compared with it again")
    if theirs.heard > known.own:
        store.welcome_own()
        peer.warnings.append(f"this database was set back to an older copy; what it lacks comes again from {name}")
