"""A node of sync as a program uses it: it exchanges rows with others, once or for as long as it runs.

node = SyncNode("todo.db", [Entity("todo", table_id=42, version="changed")])
node.sync_with("https://central.example:8087", enrol=word)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from tailrace.errors import TailraceError
from tailrace.sync.address import PeerAddress
from tailrace.sync.clock import ClockRule, ClockVerdict
from tailrace.sync.database import Database, open_database
from tailrace.sync.entity import Entity
from tailrace.sync.failing import unexpected
from tailrace.sync.httplink import HttpLink
from tailrace.sync.httppeer import HttpPeer
from tailrace.sync.meeting import NowMs, meeting, wall_clock_ms
from tailrace.sync.round import Peer, Progress, Report, sync_round
from tailrace.sync.store import SyncStore

SEEN_EVERY_S: Final = 60.0
"""How often it is written down when a node was heard of."""


def _say_nothing(_text: str) -> None:
    return


class SyncNode:
    """A database that is synced with others. Any number of threads may use it."""

    def __init__(
        self,
        database: Database | str,
        entities: Sequence[Entity],
        *,
        clock: ClockRule | None = None,
        warn: Callable[[str], None] = _say_nothing,
        now_ms: NowMs = wall_clock_ms,
    ) -> None:
        """What is missing in the database is made. `warn` is told of clocks that show another time."""
        opened = open_database(database) if isinstance(database, str) else database
        try:
            self.store = SyncStore.install(opened, entities, ahead_max_s=(clock or ClockRule()).ahead_max_s)
        except BaseException:
            opened.close()
            raise
        self._set(clock, warn, now_ms)

    @classmethod
    def over(
        cls, store: SyncStore, *, clock: ClockRule | None = None, warn: Callable[[str], None] = _say_nothing
    ) -> SyncNode:
        """A node on a store that is open already; nothing is made."""
        node = cls.__new__(cls)
        node.store = store
        node._set(clock, warn, wall_clock_ms)
        return node

    def _set(self, clock: ClockRule | None, warn: Callable[[str], None], now_ms: NowMs) -> None:
        self._clock = clock or ClockRule()
        self._warn = warn
        self._now_ms = now_ms
        self._seen_s: dict[int, float] = {}

    def __enter__(self) -> SyncNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def node_id(self) -> int:
        return int(self.store.node_id)

    def sync_with(
        self,
        url: str,
        *,
        name: str | None = None,
        enrol: str | None = None,
        ca: str | None = None,
        node: int | None = None,
        report: Report | None = None,
    ) -> Progress:
        """Exchange everything with a node once. What was exchanged stays so, wherever this is cut off.

        A node whose address may change needs a name: it is known by that, or else by host and port.
        """
        return self.sync_at(PeerAddress.of(url, name=name, enrol=enrol, ca=ca, node=node), report)

    def sync_at(self, address: PeerAddress, report: Report | None = None) -> Progress:
        """The same with an address. Whatever the other node answers, what is raised is a `TailraceError`."""
        try:
            with self.meeting(address) as (peer, _):
                return self.round(peer, report)
        except TailraceError:
            raise
        except Exception as error:
            raise unexpected(error) from error

    def sync_with_all(
        self, addresses: Sequence[PeerAddress], report: Callable[[PeerAddress, str, Progress], None] | None = None
    ) -> Mapping[str, Progress | TailraceError]:
        """Exchange everything with several nodes at once. By name: what was done, or why not."""

        def one(address: PeerAddress) -> Progress | TailraceError:
            try:
                return self.sync_at(address, None if report is None else _about(address, report))
            except TailraceError as error:
                return error

        if not addresses:
            return {}
        with ThreadPoolExecutor(len(addresses), "tailrace-sync") as workers:
            done = list(workers.map(one, addresses))
        return {address.name: each for address, each in zip(addresses, done, strict=True)}

    @contextmanager
    def meeting(
        self, address: PeerAddress, opened: Callable[[HttpLink], None] | None = None
    ) -> Iterator[tuple[HttpPeer, ClockVerdict]]:
        """A node that answers, for some rounds; `opened` is given the link, which may be cut from another thread."""
        with meeting(self.store, address, self._clock, self._now_ms, opened) as (peer, verdict):
            if verdict.warning is not None:
                self._warn(verdict.warning)
            for warning in peer.warnings:
                self._warn(warning)
            yield peer, verdict

    def round(self, peer: Peer, report: Report | None = None) -> Progress:
        """Exchange everything once with a node that was met."""
        done = sync_round(self.store, peer, report) if report is not None else sync_round(self.store, peer)
        self._saw(peer.node_id)
        return done

    def _saw(self, node_id: int) -> None:
        """It is written down at most once a minute, so that a round with nothing to do writes nothing."""
        now_s = time.monotonic()
        if now_s - self._seen_s.get(node_id, -SEEN_EVERY_S) >= SEEN_EVERY_S:
            self._seen_s[node_id] = now_s
            self.store.saw([node_id])

    def close(self) -> None:
        self.store.close()


def _about(address: PeerAddress, report: Callable[[PeerAddress, str, Progress], None]) -> Report:
    return lambda table, progress: report(address, table, progress)
